"""Runs a probe on a fresh copy of the workspace and tells what came of it as a row, whatever happens."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from proctor.canonical import digest
from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.fences import fence_in
from proctor.contain.intent import IntentBook
from proctor.contain.ladder import Containment
from proctor.errors import ProctorError
from proctor.evidence.redact import Redactor
from proctor.ids import Digest
from proctor.probe.kind import Bench, Judgement, Kind, sanitised
from proctor.probe.kinds import KINDS
from proctor.probe.model import Contained, Phase, ProbeRow, Verdict, kind_of
from proctor.probe.tail import tail
from proctor.spec.model import Contain, Network, ProbeSpec
from proctor.transport.process import Finished
from proctor.workspace.copy import copy_tree
from proctor.workspace.name import quoted
from proctor.workspace.prepare import leads_out
from proctor.workspace.remove import remove
from proctor.workspace.snapshot import snapshot
from proctor.workspace.walk import EntryKind, Found, walk

_REMOVAL_S: Final = 30.0
_SUMMARY_CHARS: Final = 500
_SYSTEM: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")


async def run_probe(
    spec: ProbeSpec,
    *,
    index: int,
    phase: Phase,
    subject: Path,
    subject_digest: Digest,
    scratch: Path,
    containment: Containment,
    intents: IntentBook,
    redactor: Redactor,
    hidden: Sequence[Path] = (),
    search_path: str | None = None,
    kinds: Mapping[str, Kind] = KINDS,
    clock: Clock = SYSTEM_CLOCK,
) -> ProbeRow:
    """Never raises but for cancellation. `scratch` must exist; nothing of the probe stays in it.

    Unless the spec says otherwise the probe sees neither the subject, nor what else is in scratch, nor what is hidden,
    and writes to its own copy only; where that cannot be had here it is unavailable. The subject's digest is taken
    again afterwards: what was judged must still be what is there. What the row shows of texts is redacted, then cut.
    """
    began_s = clock.steady_s()
    judged = await _judge(
        spec,
        subject=subject,
        scratch=scratch,
        hidden=(subject, scratch, *hidden),
        containment=containment,
        intents=intents,
        redactor=redactor,
        search_path=os.environ.get("PATH", os.defpath) if search_path is None else search_path,
        kinds=kinds,
    )
    ended_s = clock.steady_s()
    after = await anyio.to_thread.run_sync(snapshot, subject)
    finished = judged.finished
    ended = finished.exit if finished else None
    stdout_tail, stderr_tail = await anyio.to_thread.run_sync(lambda: _tails(finished, redactor))
    return ProbeRow(
        phase=phase,
        index=index,
        kind=kind_of(spec),
        probe_digest=digest(spec),
        workspace_digest=subject_digest,
        verdict=judged.verdict,
        summary=redactor.text(judged.summary).text[:_SUMMARY_CHARS],
        argv=judged.argv,
        exit_code=ended.code if ended else None,
        signal=ended.signal if ended else None,
        duration_ms=round((ended_s - began_s) * 1000),
        timed_out=finished.timed_out if finished else False,
        stdout_tail=stdout_tail,
        stderr_tail=stderr_tail,
        mutated=after.digest != subject_digest,
        contained=_contained(spec, containment),
    )


def _tails(finished: Finished | None, redactor: Redactor) -> tuple[str, str]:
    if finished is None:
        return "", ""
    return (
        tail(finished.stdout, redactor=redactor, is_cut=finished.stdout_cut),
        tail(finished.stderr, redactor=redactor, is_cut=finished.stderr_cut),
    )


def _link_out(subject: Path, found: Sequence[Found]) -> str | None:
    """A link to content that is neither the workspace's nor the system's own, such as an interpreter."""
    for item in found:
        is_system = (item.target or "").startswith(_SYSTEM)
        if item.kind is EntryKind.LINK and not is_system and leads_out(subject, item):
            return quoted(item.path)
    return None


async def _judge(
    spec: ProbeSpec,
    *,
    subject: Path,
    scratch: Path,
    hidden: Sequence[Path],
    containment: Containment,
    intents: IntentBook,
    redactor: Redactor,
    search_path: str,
    kinds: Mapping[str, Kind],
) -> Judgement:
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(dir=scratch, prefix="probe-"))
        workspace, home, temporary = (folder / name for name in ("workspace", "home", "tmp"))
        for each in (workspace, home, temporary):
            each.mkdir(mode=0o700)
        found = await anyio.to_thread.run_sync(walk, subject)
        if (link := _link_out(subject, found)) is not None:
            what = f"{link} is a link that leads out of the workspace: what it shows is in no evidence"
            return Judgement(verdict=Verdict.UNAVAILABLE, summary=what)
        await anyio.to_thread.run_sync(lambda: copy_tree(subject, found, into=workspace))
        env = sanitised(search_path=search_path, home=home, temporary=temporary)
        bench = Bench(
            workspace=workspace,
            env=env,
            containment=containment,
            intents=intents,
            redactor=redactor,
            fence=None
            if spec.contain is Contain.NONE
            else lambda program: fence_in(
                (workspace, home, temporary),
                hidden=hidden,
                network=spec.network,
                search_path=env["PATH"],
                program=program,
            ),
        )
        judged = await kinds[kind_of(spec)](spec, bench)
        if not isinstance(judged, Judgement):
            raise TypeError(f"gave {judged!r} for a judgement")
    except ProctorError as problem:
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=str(problem))
    # Around a plugin: whatever it raises becomes a record.
    except Exception as problem:
        return Judgement(verdict=Verdict.UNAVAILABLE, summary=f"the probe broke: {type(problem).__name__}: {problem}")
    else:
        return judged
    finally:
        if folder is not None:
            # Shielded so that a cancelled caller leaves no copy; bounded because a disk may hang.
            with anyio.move_on_after(_REMOVAL_S, shield=True), suppress(OSError):
                await anyio.to_thread.run_sync(remove, folder, abandon_on_cancel=True)


def _contained(spec: ProbeSpec, containment: Containment) -> Contained | None:
    if spec.contain is Contain.NONE:
        return Contained(by=containment.variant, files=Contain.NONE, network=Network.HOST)
    if containment.rung != 1:
        return None
    return Contained(by=containment.variant, files=Contain.FENCED, network=spec.network)
