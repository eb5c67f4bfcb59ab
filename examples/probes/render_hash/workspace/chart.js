const sales = [40, 120, 80, 200];

sales.forEach((value, at) => {
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.style.left = `${30 + at * 90}px`;
  bar.style.height = "10px";
  document.documentElement.append(bar);
});
