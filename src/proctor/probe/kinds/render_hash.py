"""The probe kind `render_hash`: compare an image with a reference by their 64-bit difference hashes.

The image is a screenshot of a page in Chromium, or a file that a command writes. The reference never enters the fence.
"""

from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import msgspec

from proctor.evidence.artifacts import Judged
from proctor.probe.command import judge_command, replace_out
from proctor.probe.image import ImageError, ImageSummary, distance, summarize
from proctor.probe.kind import Judgement, Layout, ProbeReference, ProbeWorkspace
from proctor.probe.model import Fault, Verdict
from proctor.probe.page import PageStep, decode_file, forbidden, missing_modules, unavailable, visit
from proctor.probe.view import Subject
from proctor.probe.written import read_written
from proctor.spec.duration import parse_duration_s
from proctor.spec.page_probes import RenderHash
from proctor.spec.probe_options import OUT


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
    if reference.hash.bit_count() <= spec.tolerance:
        plain = "it is so plain that a blank image would be within the tolerance"
        return _unfit(spec, f"the reference {spec.reference} cannot be used: {plain}")
    judgement, image = await (_page(spec, workspace) if spec.command is None else _command(spec, workspace))
    judgement = replace(judgement, judged=Judged.OUTSIDE)
    if image is None:
        return judgement
    return await anyio.to_thread.run_sync(lambda: _compare(spec, judgement, image, expected, reference))


def _unfit(spec: RenderHash, summary: str) -> Judgement:
    # No agent can cause this, or change it.
    return Judgement(verdict=Verdict.UNAVAILABLE, summary=summary, argv=spec.argv, fault=Fault.MACHINE)


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
    assert spec.image is not None, "the spec was checked"
    path = spec.image
    ended = await judge_command(
        replace_out(spec.command, str(workspace.out)),
        workspace,
        exit_code=0,
        timeout_s=parse_duration_s(spec.timeout),
    )
    judgement = replace(ended, argv=spec.argv)
    if judgement.verdict is not Verdict.PASS:
        return judgement, None
    image = await anyio.to_thread.run_sync(lambda: read_written(path, view=workspace.view, out=workspace.out))
    judgement = replace(judgement, verdict=Verdict.FAIL)
    if not image:
        return replace(judgement, summary=f"{judgement.summary}, and there is no image"), None
    return judgement, image


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
