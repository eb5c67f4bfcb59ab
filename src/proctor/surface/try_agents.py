"""Compare agents on one task: build a campaign without a spec file, and summarize its attempts."""

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
from proctor.report.campaign import CampaignReport
from proctor.spec.choices import Login
from proctor.spec.load import LoadedSpec, load_built
from proctor.spec.model import WorkspaceSpec
from proctor.surface.detect import DetectedAgent
from proctor.surface.first_task import TIMEOUT

CAMPAIGN: Final = "try"
ADDED: Final = "PROCTOR-TRY.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAgent:
    """An agent, and the model it uses; None for the scripted model."""

    agent: DetectedAgent
    model: str | None

    def flow(self, *, is_offline: bool) -> dict[str, Any]:
        flow: dict[str, Any] = {"id": self.agent.name, "runtime": [self.agent.runtime_id]}
        if is_offline:
            return flow
        assert self.agent.login is not None, "an agent without a login was rejected earlier"
        flow |= {"model": {"provider": self.agent.provider, "name": self.model}, "login": self.agent.login.value}
        return {**flow, "token": self.agent.token} if self.agent.login is Login.TOKEN else flow


def build_trial(
    prompt: str,
    agents: Sequence[TryAgent],
    *,
    folder: Path,
    workspace: WorkspaceSpec,
    probe: str | None,
    script: Path | None,
) -> LoadedSpec:
    """Return a campaign of one mission, with one flow per agent. With a script, the scripted model is used.

    `probe` is a command for a shell that starts at the top of the workspace.
    """
    is_offline = script is not None
    mission: dict[str, Any] = {"id": "task", "prompt": prompt, "workspace": msgspec.to_builtins(workspace)}
    # Without a probe nothing can be verified, so completing is all that is expected.
    mission["expect"] = {"outcome": "completed", "verified": "unknown" if probe is None else "yes"}
    if probe is not None:
        mission["probes"] = [{"kind": "headless_run", "command": probe, "timeout": TIMEOUT}]
    if script is not None:
        mission["script"] = str(script)
    spec = {
        "version": 1,
        "campaign": CAMPAIGN,
        "missions": [mission],
        "flows": [each.flow(is_offline=is_offline) for each in agents],
        "limits": {"attempt": "30m", "turn": "25m", "stall": "5m"},
        "schedule": {"parallel": len(agents)},
    }
    return load_built(spec, name="proctor-try.yaml", folder=folder)


def built_in_script(prompt: str) -> str:
    """Return the default script of the scripted model: it lists the files and adds one."""
    content = f"I am Proctor's scripted model, and was asked: {prompt}"
    marker = 'PROCTOR-RESULT: {"done": true, "answer": ""}'
    steps = [
        {"run": "ls"},
        {"patch": {"file": ADDED, "content": content}},
        {"say": f"{ADDED} is all that a scripted model can add.\n{marker}"},
    ]
    return json.dumps({"version": 1, "steps": steps})


class DiffSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The size of a diff."""

    files: int
    """Changed files."""
    added: int
    """Added lines."""
    removed: int
    """Removed lines."""


class TryResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one agent's attempt."""

    flow_id: FlowId
    """Id of the agent's flow, which is the name of the agent."""
    runtime: RuntimeId | None
    """Runtime that was used; null if unknown."""
    attempt_id: AttemptId
    """Id of the attempt."""
    outcome: Outcome | None
    """How the attempt ended; null if unknown."""
    code: str | None
    """Code of the failure; null if the attempt did not fail."""
    claimed: bool | None
    """Whether the agent claims that the task is done; null without a claim."""
    verified: bool | None
    """Whether the probe verified the task; null if unknown."""
    reasons: tuple[str, ...]
    """Why the task is not verified; empty if it is."""
    changes: DiffSummary | None
    """Size of the changes in the workspace; null without a diff."""
    tool_calls: int | None
    """Tool calls of the agent; null if unknown."""
    tokens: int | None
    """Tokens used; null if unknown."""
    usd: float | None
    """Cost in US dollars; null if unknown."""
    duration_ms: int | None
    """Duration of the attempt, in milliseconds; null if unknown."""
    diff: str | None
    """Path of the attempt's diff; null without a diff."""
    dir: str
    """Path of the attempt's folder."""


def side_by_side(report: CampaignReport) -> tuple[TryResult, ...]:
    """Return the counted attempt of each flow, in the order of the flows."""
    counting = {row.flow_id: row for row in report.counted_attempts if row.flow_id is not None}
    results = []
    for flow, row in counting.items():
        diff = AttemptPaths(Path(row.dir)).workspace_diff
        results.append(
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
    return tuple(results)


def _changes(diff: Path) -> DiffSummary | None:
    with suppress(OSError):
        return count_changes(diff.read_text(errors="replace"))
    return None


def count_changes(diff: str) -> DiffSummary:
    """Return the size of a unified diff.

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
