"""The probe kinds `browser_smoke` and `render_hash`, apart from what needs Chromium (`make browser` tests that)."""

import base64
import json
import stat
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from proctor.evidence.artifacts import Judged
from proctor.probe.image import MAX_IMAGE_BYTES, ImageError, distance, read_size, summarize
from proctor.probe.model import Fault, ProbeRow, Verdict
from proctor.spec.page_probes import BrowserSmoke, BrowserStep, RenderHash
from proctor.spec.service_probes import ServiceSpec
from tests.probe.page_bench import PageBench, path_without_chromium, picture, png

FILE = BrowserSmoke(file="index.html", steps=[BrowserStep(open="index.html", shows={"h1": "Hello"})])


@pytest.fixture
def bench(tmp_path: Path) -> PageBench:
    return PageBench(tmp_path)


def header(width: int, height: int) -> bytes:
    """The beginning of a PNG of this size, without any pixel."""
    chunk = struct.pack(">4sIIBBBBB", b"IHDR", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


# ── images ──


def test_hash_of_an_image_survives_noise_and_size_and_not_another_picture() -> None:
    one = summarize(png(picture()))
    assert distance(one, summarize(png(picture(noise=20)))) <= 2
    assert distance(one, summarize(png(picture(size=(900, 800))))) == 0
    assert distance(one, summarize(png(picture(seed=1)))) > 16
    assert distance(one, one) == 0


def test_hash_bits_say_which_pixel_is_brighter_than_its_left_neighbour() -> None:
    rising = Image.frombytes("L", (9, 8), bytes(range(9)) * 8)
    falling = Image.frombytes("L", (9, 8), bytes(reversed(range(9))) * 8)
    assert (summarize(png(rising)).hash, summarize(png(falling)).hash) == (2**64 - 1, 0)


@pytest.mark.parametrize("colour", ["white", "black", (12, 200, 90)])
def test_image_of_nearly_one_colour_is_blank(colour: Any) -> None:
    image = Image.new("RGB", (400, 300), colour)
    assert summarize(png(image)).is_blank
    for at in range(11):  # of 120,000 pixels
        image.putpixel((at * 7, 5), (255, 0, 255))
    assert summarize(png(image)).is_blank
    image.paste((255, 0, 255), (0, 0, 4, 3))
    assert not summarize(png(image)).is_blank


def test_transparent_image_is_judged_on_white() -> None:
    assert summarize(png(Image.new("RGBA", (100, 100), (255, 0, 0, 0)))).is_blank


def test_size_is_checked_in_the_header_before_anything_is_decoded() -> None:
    assert read_size(header(1280, 720)) == (1280, 720)
    for size in ((40_000, 40_000), (10_001, 1), (9_000, 9_000)):
        with pytest.raises(ImageError, match=f"{size[0]} × {size[1]} pixels, which is too large"):
            summarize(header(*size))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG",
        b"GIF89a" + bytes(100),
        header(0, 5),
        header(10, 10),
        png(picture())[:200],
        png(picture())[:100] + b"\xff" * 50 + png(picture())[150:],
        header(10, 10) + bytes(1000),
    ],
)
def test_broken_image_is_refused(data: bytes) -> None:
    with pytest.raises(ImageError):
        summarize(data)


def test_large_file_is_refused() -> None:
    with pytest.raises(ImageError, match="larger than 16 MiB"):
        summarize(png(picture()) + bytes(MAX_IMAGE_BYTES))


# ── render_hash of a command ──


def render(command: str, image: str = "{out}/image.png", **more: Any) -> RenderHash:
    return RenderHash(command=command, image=image, reference="ref.png", **more)


SOURCES = {"ref.png": png(picture())}


@pytest.mark.requirement("probe.kinds")
@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize("image", ["{out}/image.png", "made/image.png"])
def test_render_hash_compares_the_image_of_a_command_outside_the_fence(bench: PageBench, image: str) -> None:
    bench.write(
        {"good.png": png(picture(noise=5)), "bad.png": png(picture(seed=1)), "made/image.png": SOURCES["ref.png"]}
    )
    good = bench.run(render(f"mkdir -p made; cp good.png {image}", image), sources=SOURCES)
    assert (good.verdict, good.judged) == (Verdict.PASS, Judged.OUTSIDE)
    assert bench.kept_file(good, "actual.png") == png(picture(noise=5))
    assert bench.kept_file(good, "reference.png") == SOURCES["ref.png"]
    bad = bench.run(render(f"mkdir -p made; cp bad.png {image}", image), sources=SOURCES)
    assert (bad.verdict, bad.judged) == (Verdict.FAIL, Judged.OUTSIDE)
    assert bad.summary == f"the image (90 × 80) has the hash {summarize(png(picture(seed=1))).hash:016x}"
    assert json.loads(bench.kept_file(bad, "hashes.json"))["different_bits"] > 4


@pytest.mark.parametrize("variant", ["bundled-bwrap", "unshare"])
def test_render_hash_ignores_an_image_that_was_there_before(
    bench: PageBench, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    monkeypatch.setenv("PROCTOR_CONTAINMENT", variant)
    bench.write({"image.png": SOURCES["ref.png"]})
    row = bench.run(render("true", "image.png"), sources=SOURCES)
    assert (row.verdict, row.summary) == (Verdict.FAIL, "exited 0, and there is no image")


@pytest.mark.requirement("probe.process")
@pytest.mark.parametrize(
    ("command", "summary"),
    [
        ("cp huge.png {out}/image.png", "the image cannot be judged: it has 40000 × 40000 pixels, which is too large"),
        ("cp text.png {out}/image.png", "the image cannot be judged: it is not a PNG image"),
        ("cp blank.png {out}/image.png", "the image (90 × 80) is blank"),
        ("ln -s $PWD/good.png {out}/image.png", "exited 0, and there is no image"),
        ("mkfifo {out}/image.png", "exited 0, and there is no image"),
        ("rmdir {out}/x; ln -s / {out}/x; true", "exited 0, and there is no image"),
        ("cp good.png {out}/image.png; exit 3", "exited 3"),
        ("head -c 20000000 /dev/zero >{out}/image.png", "the image cannot be judged: it is larger than 16 MiB"),
    ],
)
def test_render_hash_fails_for_an_image_that_cannot_be_judged(bench: PageBench, command: str, summary: str) -> None:
    blank = png(Image.new("RGB", (90, 80), "white"))
    bench.write(
        {"huge.png": header(40_000, 40_000), "text.png": "text", "blank.png": blank, "good.png": png(picture())}
    )
    row = bench.run(render(command), sources=SOURCES)
    assert (row.verdict, row.summary) == (Verdict.FAIL, summary)


@pytest.mark.parametrize("reference", [b"text", header(40_000, 40_000), png(Image.new("RGB", (90, 80), "white"))])
def test_render_hash_cannot_judge_with_a_reference_that_is_no_image_or_blank(
    bench: PageBench, reference: bytes
) -> None:
    row = bench.run(render("true"), sources={"ref.png": reference})
    assert (row.verdict, row.fault) == (Verdict.UNAVAILABLE, Fault.MACHINE)
    assert row.summary.startswith("the reference ref.png cannot be used: it ")


# ── what this machine lacks ──


@pytest.mark.requirement("probe.process")
def test_probe_is_unavailable_without_chromium_and_says_what_to_install(bench: PageBench, tmp_path: Path) -> None:
    bench.write({"index.html": "<h1>Hello</h1>"})
    path = path_without_chromium(tmp_path)
    for spec in (FILE, RenderHash(file="index.html", reference="ref.png")):
        row = bench.run(spec, sources=SOURCES, search_path=path)
        assert (row.verdict, row.fault, row.judged) == (Verdict.UNAVAILABLE, Fault.MACHINE, None)
        assert row.summary == (
            "Chromium is not on this machine: install it (Debian's package chromium), "
            "or set PROCTOR_CHROMIUM to its absolute path"
        )
        assert [(each.path, each.sha256) for each in row.programs] == [("chromium", None)]


def test_chromium_that_the_environment_names_must_be_a_program(
    bench: PageBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write({"index.html": "<h1>Hello</h1>"})
    for named in ("/no/such/chromium", "chromium", "/etc"):
        monkeypatch.setenv("PROCTOR_CHROMIUM", named)
        row = bench.run(FILE)
        assert row.verdict is Verdict.UNAVAILABLE
        assert row.summary == f"PROCTOR_CHROMIUM is '{named}', which is not the absolute path of a program"


@pytest.mark.parametrize(("module", "name"), [("playwright", "playwright"), ("PIL", "Pillow")])
def test_probe_is_unavailable_without_its_optional_dependencies(
    bench: PageBench, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    bench.write({"index.html": "<h1>Hello</h1>"})
    monkeypatch.setitem(sys.modules, module, None)
    row = bench.run(RenderHash(file="index.html", reference="ref.png"), sources=SOURCES)
    assert (row.verdict, row.fault) == (Verdict.UNAVAILABLE, Fault.MACHINE)
    assert row.summary == f"{name} is not in Proctor's environment: install proctor-harness[browser]"


def stub(folder: Path, script: str) -> str:
    """A program in place of Chromium."""
    place = folder / "chrome" / "chromium"
    place.parent.mkdir()
    place.write_text(f"#!/bin/bash\n{script}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return str(place)


@pytest.mark.long
@pytest.mark.requirement("probe.process")
@pytest.mark.parametrize(
    ("script", "timeout", "summary"),
    [
        ("sleep 300 & setsid sleep 301 & wait", "6s", "Chromium did not start: it did not start in time"),
        ("echo 'FATAL: no display' >&2; exit 1", "1m", "Chromium did not start: FATAL: no display"),
    ],
)
def test_chromium_that_does_not_start_makes_the_probe_unavailable_and_leaves_no_process(
    bench: PageBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, timeout: str, summary: str
) -> None:
    bench.write({"index.html": "<h1>Hello</h1>"})
    monkeypatch.setenv("PROCTOR_CHROMIUM", stub(tmp_path, script))
    row = bench.run(msgspec.structs.replace(FILE, timeout=timeout))
    assert (row.verdict, row.fault, row.summary) == (Verdict.UNAVAILABLE, Fault.MACHINE, summary)


@pytest.mark.requirement("probe.process")
def test_page_that_is_not_in_the_workspace_fails(bench: PageBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CHROMIUM", sys.executable)
    row = bench.run(FILE)
    assert (row.verdict, row.summary) == (Verdict.FAIL, "index.html is not in the workspace")
    service = ServiceSpec(start=["./serve"])
    absent = bench.run(BrowserSmoke(service=service, steps=[BrowserStep(open="/")]))
    assert (absent.verdict, absent.summary) == (Verdict.FAIL, "./serve is not in the workspace")


# ── comparing what was observed ──


def step(*texts: tuple[int, str], title: str = "", problem: str | None = None) -> dict[str, Any]:
    elements = [{"count": count, "text": text} for count, text in texts]
    return {"problem": problem, "title": title, "elements": elements, "isSettled": True}


def lines(*first: str, more: int = 0) -> dict[str, Any]:
    return {"first": list(first), "total": len(first) + more}


STEPS = [
    BrowserStep(open="index.html", shows={"h1": "Hello"}, title="Greeting"),
    BrowserStep(click="#more", shows={"#one": "1", "#two": ""}),
]
RIGHT = [step((1, " Hello\n"), title="Greeting"), step((1, "1"), (1, ""))]


def judge(bench: PageBench, monkeypatch: pytest.MonkeyPatch, seen: Any, **more: Any) -> ProbeRow:
    """Judge these observations. In the fence a stand-in reports them, and prints its request to stderr."""
    programs = bench.folder / "programs"
    programs.mkdir(exist_ok=True)
    said = seen if isinstance(seen, str) else json.dumps(seen)
    (programs / "__init__.py").write_text("")
    (programs / "browser.py").write_text(
        "import sys\ndef main():\n    word = sys.stdin.readline()\n"
        f"    sys.stderr.write(sys.stdin.read())\n    sys.stdout.write(word + {said!r})\n"
    )
    monkeypatch.setattr("proctor.probe.observe._PROGRAMS", programs)
    monkeypatch.setenv("PROCTOR_CHROMIUM", sys.executable)
    bench.write({"index.html": ""})
    return bench.run(BrowserSmoke(file="index.html", steps=STEPS, **more))


@pytest.mark.requirement("probe.outside")
def test_expected_texts_never_enter_the_fence(bench: PageBench, monkeypatch: pytest.MonkeyPatch) -> None:
    image = base64.b64encode(png(picture())).decode()
    row = judge(bench, monkeypatch, {"steps": RIGHT, "screenshot": image, "trace": "not base64"}, console=["allowed"])
    assert (row.verdict, row.judged) == (Verdict.PASS, Judged.OUTSIDE)
    request = json.loads(row.stderr_tail)
    assert [each["read"] for each in request["steps"]] == [["h1"], ["#one", "#two"]]
    for expected in ("Hello", "Greeting", "allowed"):
        assert expected not in row.stderr_tail
    assert bench.kept_file(row, "screenshot.png") == png(picture())


@pytest.mark.parametrize(
    ("seen", "summary"),
    [
        (
            {"steps": [step((1, "Bye"), title="T"), *RIGHT[1:]]},
            "step 1 (open index.html): the title is 'T'; step 1 (open index.html): h1 shows 'Bye'",
        ),
        (
            {"steps": [RIGHT[0], step((0, ""), (2, ""))]},
            "step 2 (click #more): #one matches 0 elements; step 2 (click #more): #two matches 2 elements",
        ),
        ({"steps": [RIGHT[0], step((1, "12"), (1, ""))]}, "step 2 (click #more): #one shows '12'"),
        ({"steps": [RIGHT[0], step(problem="Timeout")]}, "step 2 (click #more): Timeout"),
        ({"steps": RIGHT[:1]}, "step 2 (click #more) was not done"),
        ({"steps": [RIGHT[0], step((1, "1"))]}, "step 2 (click #more): nothing was read"),
        ({"steps": []}, "step 1 (open index.html) was not done"),
        ({"steps": RIGHT, "console": lines("bad")}, "console error: bad"),
        ({"steps": RIGHT, "console": lines("allowed 12 not"), "requests": lines("GET /y 404")},
         "console error: allowed 12 not; failed request: GET /y 404"),
        ({"steps": RIGHT, "console": lines("allowed 1", more=3)}, "console error: ? (and 2 more)"),
        ({"steps": RIGHT, "pageErrors": lines("allowed 1")}, "uncaught exception: allowed 1"),
        ({"steps": RIGHT, "dialogs": lines("alert 'x'")}, "opened a dialog: alert 'x'"),
        ({"steps": RIGHT, "blocked": lines("file:///x")}, "went to a forbidden address: file:///x"),
        ({"steps": RIGHT, "popups": lines("about:blank")}, "opened a window: about:blank"),
        ({"steps": RIGHT, "downloads": lines("data:,x")}, "started a download: data:,x"),
        ({"ready": {"isListening": False, "afterMs": 1500, "exit": 0, "otherPorts": []}},
         "the service exited 0 after 1.5 s without listening on its port"),
        ({"ready": {"isListening": False, "afterMs": 1500, "exit": None, "otherPorts": [80]}},
         "the service did not listen on its port within 1.5 s, but on port 80"),
        ("{", "nothing was observed that can be read: the observer exited 0"),
        ('{"steps": 1}', "nothing was observed that can be read: the observer exited 0"),
        ('{"screenshot": "\\ud800"}', "nothing was observed that can be read: the observer exited 0"),
    ],
)  # fmt: skip
def test_observations_that_differ_fail_and_the_summary_does_not_say_what_was_expected(
    bench: PageBench, monkeypatch: pytest.MonkeyPatch, seen: Any, summary: str
) -> None:
    row = judge(bench, monkeypatch, seen, console=["allowed [0-9]+", "GET /x 404"])
    assert (row.verdict, row.summary) == (Verdict.FAIL, summary)


def test_allowed_lines_are_console_errors_and_failed_requests(
    bench: PageBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"steps": RIGHT, "console": lines("allowed 12", "allowed 3"), "requests": lines("GET /x 404")}
    row = judge(bench, monkeypatch, seen, console=["allowed [0-9]+", "GET /x 404"])
    assert (row.verdict, row.summary) == (Verdict.PASS, "2 steps done, and no error on the page")


def test_program_that_reports_megabytes_gives_a_bounded_row(bench: PageBench, monkeypatch: pytest.MonkeyPatch) -> None:
    row = judge(bench, monkeypatch, {"steps": RIGHT, "console": lines("x" * 1_000_000)})
    assert row.verdict is Verdict.FAIL
    assert len(row.summary) <= 500


# ── the spec ──

OPEN = {"open": "index.html"}


@pytest.mark.parametrize(
    ("probe", "key", "what"),
    [
        ({"steps": [OPEN]}, "service", "it needs the key `service` or `file`"),
        ({"file": "a.html", "service": {"start": "x"}, "steps": [{"open": "/"}]}, "file", "exclude each other"),
        ({"file": "../a.html", "steps": [OPEN]}, "file", "is not a path of a file inside the workspace"),
        ({"file": "a.html", "steps": [{"click": "p"}]}, "steps[0].open", "the first step must be `open`"),
        ({"file": "a.html", "steps": [{"open": "b.html"}]}, "steps[0].open", "`b.html` is not the probe's `file`"),
        ({"service": {"start": "x"}, "steps": [{"open": "http://x"}]}, "steps[0].open", "is not a path of the service"),
        ({"file": "a.html", "steps": [{"open": "a.html"}, {}]}, "steps[1]", "a step needs one action"),
        ({"file": "a.html", "steps": [{"open": "a.html", "click": "p"}]}, "steps[0].click", "a second action"),
        ({"file": "a.html", "steps": [{"open": "a.html"}, {"fill": "p"}]}, "steps[1].value", "`fill` needs"),
        ({"file": "a.html", "steps": [{"open": "a.html", "value": "p"}]}, "steps[0].value", "no effect without `fill`"),
        ({"file": "a.html", "steps": [{"open": "a.html"}], "console": ["("]}, "console[0]", "not a valid RE2 pattern"),
        ({"service": {"start": "x", "ready": "soon"}, "steps": [{"open": "/"}]}, "service.ready", "soon"),
    ],
)
def test_browser_smoke_with_a_wrong_key_is_refused(probe: dict[str, Any], key: str, what: str) -> None:
    problems = [*msgspec.convert({"kind": "browser_smoke", **probe}, BrowserSmoke).problems()]
    assert any(each.key == key and what in each.what for each in problems), problems


@pytest.mark.parametrize(
    ("probe", "key", "what"),
    [
        ({}, "service", "it needs the key `service` or `file` or `command`"),
        ({"file": "a.html", "command": "x", "image": "a.png"}, "command", "exclude each other"),
        ({"file": "a.html", "path": "/x"}, "path", "no effect without `service`"),
        ({"service": {"start": "x"}, "path": "x"}, "path", "is not a path of the service"),
        ({"command": "x"}, "image", "`command` needs the key `image`"),
        ({"file": "a.html", "image": "a.png"}, "image", "no effect without `command`"),
        ({"command": "x", "image": "/etc/a.png"}, "image", "is not a path inside the workspace"),
    ],
)
def test_render_hash_with_a_wrong_key_is_refused(probe: dict[str, Any], key: str, what: str) -> None:
    spec = msgspec.convert({"kind": "render_hash", "reference": "a.png", **probe}, RenderHash)
    problems = [*spec.problems()]
    assert any(each.key == key and what in each.what for each in problems), problems


@pytest.mark.parametrize("more", [{"tolerance": 33}, {"tolerance": -1}, {"width": 0}, {"height": 10_000}])
def test_render_hash_with_a_number_out_of_bounds_is_refused(more: dict[str, int]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "render_hash", "file": "a.html", "reference": "a.png", **more}, RenderHash)


def test_page_probes_with_right_keys_have_no_problem() -> None:
    service = ServiceSpec(start="x")
    steps = [BrowserStep(open="/"), BrowserStep(press="Enter", selector="#x"), BrowserStep(fill="#x", value="")]
    for spec in (
        FILE,
        BrowserSmoke(service=service, steps=steps, console=["x"]),
        RenderHash(service=service, path="/x", reference="a.png"),
        render("x", "a.png"),
    ):
        assert [*spec.problems()] == []
