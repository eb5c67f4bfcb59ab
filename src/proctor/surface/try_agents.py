"""Agents compared on one task in one repository: a campaign made on the spot, and its attempts side by side."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.event.outcome import Outcome
from proctor.evidence.layout import AttemptPaths
from proctor.ids import AttemptId, FlowId, RuntimeId
from proctor.report.row import Report
from proctor.report.trials import speakers
from proctor.spec.load import LoadedSpec, load_built
from proctor.spec.model import Login
from proctor.surface.detect import DetectedAgent

CAMPAIGN: Final = "try"
ADDED: Final = "PROCTOR-TRY.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAgent:
    """An agent with the real model that was named for it or that it has."""

    agent: DetectedAgent
    model: str | None

    def flow(self, *, is_offline: bool) -> dict[str, Any]:
        flow: dict[str, Any] = {"id": self.agent.name, "runtime": [self.agent.runtime_id]}
        if is_offline:
            return flow
        assert self.agent.login is not None, "one without a login is refused before"
        flow |= {"model": {"provider": self.agent.provider, "name": self.model}, "login": self.agent.login.value}
        return {**flow, "token": self.agent.token} if self.agent.login is Login.TOKEN else flow


def build_trial(
    prompt: str, contestants: Sequence[TryAgent], *, folder: Path, probe: str | None, script: Path | None
) -> LoadedSpec:
    """One mission, a flow each. With a script it is offline."""
    is_offline = script is not None
    mission: dict[str, Any] = {"id": "task", "prompt": prompt, "workspace": {"git": ".", "ref": "HEAD"}}
    # What nobody can verify is as expected when it came to an end.
    mission["expect"] = {"outcome": "completed", "verified": "unknown" if probe is None else "yes"}
    if probe is not None:
        mission["probes"] = [{"kind": "headless_run", "command": probe, "timeout": "5m"}]
    if script is not None:
        mission["script"] = str(script)
    spec = {
        "version": 1,
        "campaign": CAMPAIGN,
        "missions": [mission],
        "flows": [each.flow(is_offline=is_offline) for each in contestants],
        "limits": {"attempt": "30m", "turn": "25m", "stall": "5m"},
        "schedule": {"parallel": len(contestants)},
    }
    return load_built(spec, name="proctor-try.yaml", folder=folder)


def built_in_script(prompt: str) -> str:
    """What the scripted model does where nobody says otherwise: it looks around and leaves a file."""
    said = f"I am Proctor's scripted model, and was asked: {prompt}"
    marker = 'PROCTOR-RESULT: {"done": true, "answer": ""}'
    steps = [
        {"run": "ls"},
        {"patch": {"file": ADDED, "content": said}},
        {"say": f"{ADDED} is all that a scripted model can add.\n{marker}"},
    ]
    return json.dumps({"version": 1, "steps": steps})


class DiffSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a diff comes to."""

    files: int
    added: int
    removed: int


class TryResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of one agent's attempt. `reasons`: why it is not verified. `changes` is None where it left no diff."""

    flow_id: FlowId
    runtime: RuntimeId | None
    attempt_id: AttemptId
    outcome: Outcome | None
    code: str | None
    claimed: bool | None
    verified: bool | None
    reasons: tuple[str, ...]
    changes: DiffSummary | None
    tool_calls: int | None
    tokens: int | None
    usd: float | None
    duration_ms: int | None
    diff: str | None
    dir: str


def side_by_side(report: Report) -> tuple[TryResult, ...]:
    """The attempt of each flow that counts, in the order in which they were named."""
    counting = {row.flow_id: row for row in speakers(report.attempts) if row.flow_id is not None}
    tried = []
    for flow, row in counting.items():
        diff = AttemptPaths(Path(row.dir)).workspace_diff
        tried.append(
            TryResult(
                flow_id=flow,
                runtime=row.runtime_id,
                attempt_id=row.attempt_id,
                outcome=row.outcome,
                code=row.code,
                claimed=row.claimed,
                verified=row.verified,
                reasons=row.reasons,
                changes=_changes(diff),
                tool_calls=row.tool_calls,
                tokens=row.tokens,
                usd=row.usd,
                duration_ms=row.duration_ms,
                diff=str(diff) if diff.is_file() else None,
                dir=row.dir,
            )
        )
    return tuple(tried)


def _changes(diff: Path) -> DiffSummary | None:
    with suppress(OSError):
        return count_changes(diff.read_text(errors="replace"))
    return None


def count_changes(diff: str) -> DiffSummary:
    """
    >>> count_changes("diff --git a/x b/x\\n--- a/x\\n+++ b/x\\n@@ -1 +1 @@\\n-old\\n+new\\n+++ more\\n")
    DiffSummary(files=1, added=2, removed=1)
    """
    files = added = removed = 0
    is_head = False
    for line in diff.splitlines():
        if line.startswith("diff --git "):
            files, is_head = files + 1, True
        elif line.startswith("@@"):
            is_head = False
        elif not is_head:
            added += line.startswith("+")
            removed += line.startswith("-")
    return DiffSummary(files=files, added=added, removed=removed)
