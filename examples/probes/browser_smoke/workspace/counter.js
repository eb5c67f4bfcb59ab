let count = 0;

document.querySelector("#add").addEventListener("click", () => {
  count = 1;
  document.querySelector("#count").textContent = count;
});
