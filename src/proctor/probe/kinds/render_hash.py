"""The probe kind `render_hash`: compare an image with a reference by their 64-bit difference hashes.

The image is a screenshot of a page in Chromium, or a file that a command writes. The reference never enters the fence.
"""

import os
import shlex
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import msgspec

from proctor.errors import MachineError
from proctor.evidence.artifacts import Judged
from proctor.probe.command import describe_exit, is_in_workspace, judge_missing, may_have_been_killed
from proctor.probe.image import MAX_IMAGE_BYTES, ImageError, ImageSummary, distance, summarize
from proctor.probe.kind import Judgement, Layout, ProbeReference, ProbeWorkspace
from proctor.probe.missing import find_missing
from proctor.probe.model import Fault, Verdict
from proctor.probe.page import PageStep, decode_file, forbidden, missing_modules, unavailable, visit
from proctor.probe.view import Subject
from proctor.spec.argv import argv_of
from proctor.spec.duration import parse_duration_s
from proctor.spec.page_probes import RenderHash
from proctor.spec.probe_options import OUT
from proctor.workspace.walk import open_regular


def lay_out(spec: RenderHash, *, subject: Subject, reference: ProbeReference, folder: Path) -> Layout:
    """Leave out an image that is already there: it says nothing about this run."""
    if spec.image is None or spec.image.startswith(OUT):
        return Layout()
    return Layout(removed=(spec.image,), keep_changes=True)


async def judge(spec: RenderHash, workspace: ProbeWorkspace) -> Judgement:
    """Get the image and compare it."""
    if (summary := missing_modules("PIL")) is not None:
        return unavailable(summary, spec.argv)
    expected = workspace.reference.sources[spec.reference]
    try:
        reference = await anyio.to_thread.run_sync(summarize, expected)
    except ImageError as problem:
        return _unfit(spec, f"the reference {spec.reference} cannot be used: {problem}")
    if reference.is_blank:
        return _unfit(spec, f"the reference {spec.reference} cannot be used: it is blank")
    judgement, image = await (_page(spec, workspace) if spec.command is None else _command(spec, workspace))
    judgement = replace(judgement, judged=Judged.OUTSIDE)
    if image is None:
        return judgement
    return await anyio.to_thread.run_sync(lambda: _compare(spec, judgement, image, expected, reference))


def _unfit(spec: RenderHash, summary: str) -> Judgement:
    return Judgement(verdict=Verdict.UNAVAILABLE, summary=summary, argv=spec.argv, fault=Fault.WORKSPACE)


async def _page(spec: RenderHash, workspace: ProbeWorkspace) -> tuple[Judgement, bytes | None]:
    """Return the screenshot of the page; None, with a final judgement, without one."""
    step = PageStep(action="open", target=spec.path if spec.service is not None else spec.file or "")
    visited = await visit(spec, workspace, [step], has_trace=False)
    judgement, seen = visited.judgement, visited.seen
    if visited.is_over:
        return judgement, None
    problems = [each.problem for each in seen.steps if each.problem is not None] or ([] if seen.steps else ["it hangs"])
    wrong = [*(f"the page could not be opened: {each}" for each in problems), *forbidden(seen)]
    image = decode_file(seen.screenshot)
    if wrong or not image:
        return replace(judgement, summary="; ".join(wrong) or "there is no screenshot of the page"), None
    return judgement, image


async def _command(spec: RenderHash, workspace: ProbeWorkspace) -> tuple[Judgement, bytes | None]:
    """Return the image that the command writes; None, with a final judgement, without one."""
    assert spec.command is not None, "the caller looked"
    out = str(workspace.out)
    if isinstance(spec.command, str):
        argv = argv_of(spec.command.replace(OUT, shlex.quote(out)))
    else:
        argv = tuple(word.replace(OUT, out) for word in spec.command)
    missing = judge_missing(argv, workspace)
    if missing is not None:
        return replace(missing, argv=spec.argv), None
    timeout_s = parse_duration_s(spec.timeout)
    try:
        finished = await workspace.run(argv, timeout_s=timeout_s)
    except MachineError as problem:
        fault = Fault.WORKSPACE if is_in_workspace(argv[0]) else Fault.MACHINE
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem), argv=spec.argv, fault=fault), None
    ended = describe_exit(finished, timeout_s=timeout_s)
    judgement = Judgement(verdict=Verdict.FAIL, summary=ended, argv=spec.argv, finished=finished)
    if finished.timed_out:
        return judgement, None
    if finished.exit is None or may_have_been_killed(finished):
        return replace(judgement, verdict=Verdict.UNAVAILABLE, fault=Fault.MACHINE), None
    if finished.exit.code != 0:
        absent = find_missing(spec.command, finished, has_tool=workspace.has_tool)
        if absent is not None:
            summary = f"{absent.name} is not on this machine"
            judgement = replace(judgement, verdict=Verdict.UNAVAILABLE, fault=absent.fault, summary=summary)
        return judgement, None
    image = await anyio.to_thread.run_sync(_read_image, spec, workspace)
    return (judgement, image) if image else (replace(judgement, summary=f"{ended}, and there is no image"), None)


def _read_image(spec: RenderHash, workspace: ProbeWorkspace) -> bytes:
    """Return the image of the command, and at most one byte too many; empty without one.

    Links are not followed: they would be followed outside the fence.
    """
    assert spec.image is not None, "the spec was checked"
    top = workspace.view.changes or workspace.view.place
    if spec.image.startswith(OUT):
        top = workspace.out
    place = top / spec.image.removeprefix(f"{OUT}/")
    real = Path(os.path.realpath(place.parent), place.name)
    if not real.is_relative_to(top.resolve()):
        return b""
    try:
        with open_regular(real) as stream:
            return stream.read(MAX_IMAGE_BYTES + 1)
    except (OSError, ValueError):
        return b""


def _compare(
    spec: RenderHash, judgement: Judgement, image: bytes, expected: bytes, reference: ImageSummary
) -> Judgement:
    try:
        actual = summarize(image)
    except ImageError as problem:
        return replace(judgement, summary=f"the image cannot be judged: {problem}")
    bits = distance(actual, reference)
    hashes = {"actual": f"{actual.hash:016x}", "reference": f"{reference.hash:016x}", "different_bits": bits}
    artifacts = {"actual.png": image, "reference.png": expected, "hashes.json": msgspec.json.encode(hashes)}
    judgement = replace(judgement, artifacts=artifacts)
    if actual.is_blank:
        return replace(judgement, summary=f"the image ({actual.width} × {actual.height}) is blank")
    # Without the distance: an agent that is shown it could approach the reference step by step.
    summary = f"the image ({actual.width} × {actual.height}) has the hash {actual.hash:016x}"
    return replace(judgement, verdict=Verdict.PASS if bits <= spec.tolerance else Verdict.FAIL, summary=summary)
