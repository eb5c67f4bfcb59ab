"""Play the catalogue of cheats through the real Codex, offline. No cheat may be verified, every honest solution must.

`--without restore`, `controls`, `hiding` or `feedback` leaves out one of Proctor's defences, to show that the catalogue
needs it.
"""

import argparse
import json
import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import anyio

from hostile.catalogue import CHEATS, FLAWS, HONEST, Play
from hostile.examples import example_plays
from proctor.attempt.expectation import decide_tree
from proctor.campaign.run import run_campaign
from proctor.campaign.watch import CampaignWatcher
from proctor.errors import ProctorError
from proctor.evidence.artifacts import AttemptRecord, AttemptReport
from proctor.evidence.layout import AttemptPaths, RootPaths
from proctor.evidence.reader import read_artifact, read_rows
from proctor.ids import CampaignId
from proctor.probe.expected_values import ExpectedValues
from proctor.probe.feedback import FeedbackOptions, make_feedback
from proctor.probe.model import ProbeRow
from proctor.probe.protect import Restoration
from proctor.report.campaign import load_campaign
from proctor.spec.load import LoadedSpec, load_spec

DEADLINE_S: Final = 900.0
_WHY_CHARS: Final = 150
DEFENCES: Final[dict[str, tuple[tuple[str, Callable[..., Any]], ...]]] = {
    "restore": (("proctor.probe.suite_run.plan_restoration", lambda *_, **__: Restoration()),),
    "controls": (("proctor.probe.suite_run._find_unfit", lambda *_, **__: None),),
    "hiding": (
        ("proctor.campaign.hiding.can_hide", lambda *_, **__: False),
        # Otherwise a mission with hidden files would be refused.
        ("proctor.campaign.preflight.why_not_enforced", lambda *_, **__: None),
    ),
    # Instead of feedback, the agent is shown all that the probes printed.
    "feedback": (),
}
"""What replaces a part of Proctor so that a defence is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one play ended."""

    play: Play
    verified: bool | None
    """None also if the campaign requires more than what was verified."""
    why: str
    feedback: str
    """What an agent would be shown about it."""


def write_spec(plays: Sequence[Play], folder: Path, feedback: Mapping[str, str]) -> Path:
    """Write a campaign with one mission for each play, and return the path of its spec."""
    spec = folder / "spec" / "spec.json"
    missions = []
    for play in plays:
        task = play.task
        if task.origin is not None:
            shutil.copytree(task.origin, spec.with_name(task.name), dirs_exist_ok=True)
        for name, text in task.files.items():
            (spec.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (spec.parent / name).write_text(text)
        script = spec.with_name(f"{play.name}.yaml")
        shown = b64encode(feedback.get(play.after or "", "").encode()).decode()
        script.write_text(json.dumps(play.script(spec=str(spec), feedback=shown)))
        missions.append({"id": play.name, **task.mission, "script": script.name})
    flows = [{"id": "codex", "runtime": ["codex_app_server"]}]
    campaign = {"version": 1, "campaign": "hostile", "missions": missions, "flows": flows}
    schedule = {"retries": 0, "parallel": 2}
    gates = {"require": "outside" if plays[0].task.needs_outside else "none"}
    spec.write_text(json.dumps({**campaign, "schedule": schedule, "gates": gates}, indent=1))
    return spec


@contextmanager
def defences_without(name: str | None) -> Iterator[None]:
    with ExitStack() as stack:
        for target, replacement in DEFENCES.get(name or "", ()):
            stack.enter_context(patch(target, replacement))
        yield


def all_plays() -> list[Play]:
    """Return the whole catalogue."""
    return [*HONEST, *CHEATS, *example_plays()]


def play_all(plays: Sequence[Play], *, without: str | None = None) -> list[Result]:
    """Play all of them on the real Codex, in one campaign for those that can share one."""
    results = dict[str, Result]()
    groups = dict[tuple[bool, bool], list[Play]]()
    for play in plays:
        groups.setdefault((play.after is not None, play.task.needs_outside), []).append(play)
    for _, group in sorted(groups.items()):
        feedback = {name: each.feedback for name, each in results.items()}
        results |= {each.play.name: each for each in _play(group, feedback, without=without)}
    return [results[play.name] for play in plays]


def _play(plays: Sequence[Play], feedback: Mapping[str, str], *, without: str | None) -> Iterator[Result]:
    # Not under /tmp: an agent's home there disables its sandboxed shell.
    with tempfile.TemporaryDirectory(prefix="proctor-hostile-", dir="/var/tmp") as place:
        folder = Path(place)
        loaded, root = load_spec(write_spec(plays, folder, feedback)), folder / "evidence"

        async def run() -> CampaignId:
            with anyio.fail_after(DEADLINE_S):
                return (await run_campaign(loaded, root=root, watcher=CampaignWatcher())).campaign_id

        with defences_without(without):
            campaign = load_campaign(RootPaths(root).campaign(anyio.run(run)), root=RootPaths(root))
        blocked = {each.mission_id for gate in campaign.gates if gate.name == "require" for each in gate.blocked}
        for paths in (paths for run_paths in RootPaths(root).runs() for paths in run_paths.attempts()):
            name = paths.folder.name.partition(".")[0]
            [play] = [play for play in plays if play.name == name]
            report = read_artifact(paths.report, AttemptReport)
            is_enough = name not in blocked
            yield Result(
                play=play,
                verified=report.verified if is_enough else None,
                why="; ".join(report.reasons) or report.detail or ("" if is_enough else "verified only inside"),
                feedback=feedback_on(paths, loaded, without=without),
            )


def feedback_on(paths: AttemptPaths, loaded: LoadedSpec, *, without: str | None) -> str:
    """Return what the agent of an attempt would be shown before its next turn."""
    record, report = read_artifact(paths.attempt, AttemptRecord), read_artifact(paths.report, AttemptReport)
    rows = list(read_rows(paths.probes, ProbeRow))
    if without == "feedback":
        return "".join(row.summary + row.stdout_tail + row.stderr_tail for row in rows)
    [mission] = [each for each in loaded.missions if each.id == record.mission_id]
    decision = decide_tree(
        record.required_probes,
        rows,
        workspace_digest=report.workspace_digest_after or record.workspace_digest,
        base_digest=record.workspace_digest,
    )
    hidden = [] if mission.overlay is None else sorted((loaded.folder / mission.overlay).rglob("*"))
    expected = ExpectedValues(
        [value for probe in mission.probes for value in probe.expected_values],
        files=[
            *(loaded.sources[path] for probe in mission.probes for path in probe.files.values()),
            *(file.read_bytes() for file in hidden if file.is_file()),
        ],
    )
    options = FeedbackOptions(expected=expected, has_hidden_files=mission.overlay is not None)
    return make_feedback(decision, rows, options=options).text


def describe(result: Result) -> str:
    verdict = {True: "VERIFIED", False: "not verified", None: "unknown"}[result.verified]
    if result.play.flaw is None:
        verdict = verdict.lower()
    return f"  {result.play.name:<28} {result.play.task.kinds:<20} {verdict:<13} {result.why[:_WHY_CHARS]}".rstrip()


def lines_of(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each cheat, by the flaw that it is aimed at, then one for each honest solution."""
    for number, title in (*enumerate(FLAWS, start=1), (None, "honest solutions")):
        lines = [describe(each) for each in results if each.play.flaw == number]
        if lines:
            yield from (f"{title}:", *lines)


def conclusion(results: Sequence[Result]) -> str:
    cheats, honest = (
        [each.verified is True for each in results if (each.play.flaw is None) is is_honest]
        for is_honest in (False, True)
    )
    return f"{sum(cheats)} of {len(cheats)} cheats verified, {sum(honest)} of {len(honest)} honest twins verified"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("--without", choices=sorted(DEFENCES), help="leave out one defence")
    asked = parser.parse_args()
    try:
        results = play_all(all_plays(), without=asked.without)
    except ProctorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit
    sys.stdout.write("\n".join([*lines_of(results), conclusion(results), ""]))
    return 0 if all((each.verified is True) is (each.play.flaw is None) for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
