"""The probes `browser_smoke` and `render_hash` in the real Chromium, inside the fence."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from PIL import Image

from proctor.evidence.artifacts import Judged
from proctor.probe.model import Verdict
from proctor.spec.page_probes import BrowserSmoke, BrowserStep, RenderHash
from proctor.spec.service_probes import ServiceSpec
from tests.probe.page_bench import PageBench, png, processes_below

ROOT = Path(__file__).parent.parent
COUNTER = """\
<!doctype html>
<title>Counter</title>
<button id="add">Add</button> <input id="name"> <p id="count">0</p> <p id="hello"></p>
<script src="counter.js"></script>
"""
SCRIPT = """\
let count = 0;
document.querySelector("#add").onclick = async () => {
  const step = await (await fetch("/step.txt")).text();
  document.querySelector("#count").textContent = count += Number(step);
};
document.querySelector("#name").onkeydown = event => {
  if (event.key === "Enter") document.querySelector("#hello").textContent = "Hello, " + event.target.value;
};
"""
SERVICE = ServiceSpec(start="exec python3 -m http.server $PORT --bind 127.0.0.1")
COUNTER_STEPS = [
    BrowserStep(open="/", shows={"#count": "0", "#hello": ""}, title="Counter"),
    BrowserStep(click="#add", shows={"#count": "1"}),
    BrowserStep(fill="#name", value="Ada"),
    BrowserStep(press="Enter", selector="#name", shows={"#hello": "Hello, Ada"}),
]
SITE = {"index.html": COUNTER, "counter.js": SCRIPT, "step.txt": "1\n"}


@pytest.fixture
def bench(tmp_path: Path) -> PageBench:
    return PageBench(tmp_path)


@pytest.mark.requirement("probe.kinds")
def test_browser_smoke_passes_and_keeps_screenshot_and_trace(bench: PageBench) -> None:
    bench.write(SITE)
    row = bench.run(BrowserSmoke(service=SERVICE, steps=COUNTER_STEPS, width=400, height=300))
    assert (row.verdict, row.summary) == (Verdict.PASS, "4 steps done, and no error on the page")
    assert row.judged is Judged.OUTSIDE
    assert "chromium" in " ".join(program.path for program in row.programs)
    with Image.open(io.BytesIO(bench.kept_file(row, "screenshot.png"))) as image:
        assert image.size == (400, 300)
    with zipfile.ZipFile(io.BytesIO(bench.kept_file(row, "trace.zip"))) as trace:
        assert "trace.trace" in trace.namelist()


def test_browser_smoke_fails_for_another_text_an_error_and_a_failed_request(bench: PageBench) -> None:
    broken = SCRIPT + "console.error('no', 'good'); setTimeout(() => { throw new Error('thrown') }); fetch('/absent');"
    bench.write({**SITE, "counter.js": broken, "step.txt": "2\n"})
    row = bench.run(BrowserSmoke(service=SERVICE, steps=COUNTER_STEPS[:2]))
    assert row.verdict is Verdict.FAIL
    assert row.summary == (
        "step 2 (click #add): #count shows '2'; uncaught exception: thrown; console error: no good (and 1 more)"
    )
    assert {each.file.rpartition("-")[2] for each in row.artifacts} == {"screenshot.png", "trace.zip"}


HOSTILE = """\
<!doctype html><title>Hostile</title><p id="text">shown</p><a id="down" href="data:text/plain,x" download="x">x</a>
<script>
const later = (after_ms, act) => setTimeout(act, after_ms);
later(10, () => alert("pay"));
later(20, () => window.open("about:blank"));
later(30, () => document.querySelector("#down").click());
later(60, () => { location.href = "file:///etc/passwd" });
later(80, () => { location.href = "view-source:http://127.0.0.1/" });
later(100, () => { location.href = "chrome://version" });
</script>
"""


@pytest.mark.requirement("probe.process")
def test_browser_smoke_fails_for_dialogs_windows_downloads_and_forbidden_addresses(bench: PageBench) -> None:
    bench.write({"index.html": HOSTILE})
    row = bench.run(BrowserSmoke(service=SERVICE, steps=[BrowserStep(open="/", shows={"#text": "shown"})]))
    assert row.verdict is Verdict.FAIL
    assert row.summary == (
        "opened a dialog: alert 'pay'; went to a forbidden address: file:///etc/passwd (and 2 more); "
        "opened a window: about:blank (and 1 more)"
    )


def test_page_of_a_file_uses_its_own_folder_and_no_other_file(bench: PageBench) -> None:
    page = "<!doctype html><p id=text>before</p><script src=page.js></script>"
    script = "document.querySelector('#text').textContent = location.hash || 'after';"
    steps = [
        BrowserStep(open="page.html", shows={"#text": "after"}),
        BrowserStep(open="page.html#top", shows={"#text": "after"}),
    ]
    bench.write({"page.html": page, "page.js": script, "other.html": "<p id=text>after</p>"})
    good = bench.run(BrowserSmoke(file="page.html", steps=steps))
    assert (good.verdict, good.summary) == (Verdict.PASS, "2 steps done, and no error on the page")
    bench.write({"page.js": "setTimeout(() => { location.href = 'other.html' })"})
    bad = bench.run(BrowserSmoke(file="page.html", steps=steps[:1]))
    assert bad.verdict is Verdict.FAIL
    assert "went to a forbidden address: file://" in bad.summary
    assert "other.html" in bad.summary


@pytest.mark.requirement("probe.process")
def test_page_that_hangs_fails_in_time_and_leaves_no_process(bench: PageBench) -> None:
    bench.write({"page.html": "<p id=text>x</p><script>setTimeout(() => { while (true) {} }, 50)</script>"})
    steps = [BrowserStep(open="page.html", shows={"#text": "x"}), BrowserStep(click="#text")]
    row = bench.run(BrowserSmoke(file="page.html", steps=steps, timeout="20s"))
    assert row.verdict is Verdict.FAIL
    assert row.summary == "step 1 (open page.html): the page did not react in time"


@pytest.mark.requirement("probe.process")
def test_browser_of_a_probe_that_is_cancelled_leaves_no_process(bench: PageBench) -> None:
    bench.write({"page.html": "<p id=text>x</p><script>setInterval(() => fetch('data:,x'), 10)</script>"})
    spec = BrowserSmoke(file="page.html", steps=[BrowserStep(open="page.html")])

    async def main() -> None:
        with anyio.fail_after(60):
            await cancel_once_it_runs()

    async def cancel_once_it_runs() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(bench.judge, spec)
            while not any("--type=renderer" in each for each in processes_below(bench.folder)):  # noqa: ASYNC110
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()

    anyio.run(main)
    assert processes_below(bench.folder) == []


CHART = """\
<!doctype html><style>body {{ margin: 0; background: white }} div {{ position: absolute; background: navy }}</style>
<div style="left: 40px; top: 20px; width: 120px; height: {0}px"></div>
<div style="left: 220px; top: 90px; width: 60px; height: 180px"></div>
"""


@pytest.mark.requirement("probe.kinds")
def test_render_hash_compares_a_page_with_its_reference_and_keeps_both_images(bench: PageBench) -> None:
    size: dict[str, Any] = {"width": 400, "height": 300}
    reference = Image.new("RGB", (400, 300), "white")
    reference.paste((0, 0, 128), (40, 20, 160, 220))
    reference.paste((0, 0, 128), (220, 90, 280, 270))
    sources = {"chart.png": png(reference)}
    bench.write({"chart.html": CHART.format(200)})
    good = bench.run(RenderHash(file="chart.html", reference="chart.png", tolerance=0, **size), sources=sources)
    assert (good.verdict, good.judged) == (Verdict.PASS, Judged.OUTSIDE)
    assert bench.kept_file(good, "reference.png") == sources["chart.png"]
    with Image.open(io.BytesIO(bench.kept_file(good, "actual.png"))) as actual:
        assert actual.convert("RGB").tobytes() == reference.tobytes()
    bench.write({"chart.html": CHART.format(60)})
    service = bench.run(RenderHash(service=SERVICE, path="/chart.html", reference="chart.png", **size), sources=sources)
    assert service.verdict is Verdict.FAIL
    assert json.loads(bench.kept_file(service, "hashes.json"))["different_bits"] > 4
    bench.write({"chart.html": "<p style='opacity: 0'>nothing</p>"})
    blank = bench.run(RenderHash(file="chart.html", reference="chart.png", **size), sources=sources)
    assert (blank.verdict, blank.summary) == (Verdict.FAIL, "the image (400 × 300) is blank")


@pytest.mark.proctor_process
@pytest.mark.parametrize("kind", ["browser_smoke", "render_hash"])
def test_example_mission_is_verified_by_its_solution_alone(kind: str) -> None:
    command = [sys.executable, "-m", "proctor", "probe", "check", f"examples/probes/{kind}.yaml", "--runs", "1"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
