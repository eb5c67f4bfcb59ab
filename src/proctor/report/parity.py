"""Compare two attempts at the same mission: what is equal, what differs, and what explains a difference."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from proctor.event.command import bare_command
from proctor.event.trace import ToolCall
from proctor.ids import AttemptId, FlowId, MissionId
from proctor.report.view import AttemptView


class Aspect(StrEnum):
    """What is compared, the most important first."""

    OUTCOME = "outcome"
    VERIFIED = "verified"
    CLAIM = "claim"
    WORKSPACE = "workspace"
    TOOL_CALLS = "toolCalls"
    USAGE = "usage"
    METRICS = "metrics"


class AspectComparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One aspect of two attempts."""

    aspect: Aspect
    """What is compared."""
    left: Any
    """Value of the first attempt; null if unknown."""
    right: Any
    """Value of the second attempt; null if unknown."""
    is_equal: bool
    """Whether the two values are equal."""
    why: str | None = None
    """What explains the difference; null if the values are equal or no rule explains it."""

    @property
    def is_explained(self) -> bool:
        """Whether the values are equal, or a rule explains why not."""
        return self.is_equal or self.why is not None


class Pair(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The attempts of both flows at one repeat of a mission."""

    mission_id: MissionId
    """The mission."""
    repeat: int
    """Number of the repeat."""
    left: AttemptId
    """Attempt of the first flow."""
    right: AttemptId
    """Attempt of the second flow."""
    compared: tuple[AspectComparison, ...]
    """All aspects, the most important first."""


class Parity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `parity --json` prints: a suite, run by two flows and compared."""

    exit: int
    """Exit code: 0 if every difference is explained."""
    left: FlowId
    """First flow."""
    right: FlowId
    """Second flow."""
    pairs: tuple[Pair, ...]
    """The attempts that were compared."""
    problems: tuple[str, ...] = ()
    """Why trials could not be compared."""


def compare(left: AttemptView, right: AttemptView, *, is_usage_scripted: bool) -> tuple[AspectComparison, ...]:
    """Compare two sealed attempts.

    `is_usage_scripted` says that the script fixes the tokens of each reply, whatever the prompt is.
    """
    rules: dict[Aspect, Callable[[], str | None]] = {
        Aspect.OUTCOME: lambda: _explain_outcome(left, right),
        Aspect.TOOL_CALLS: lambda: _explain_unseen_tools(left, right) or _explain_other_tools(left, right),
        Aspect.METRICS: lambda: _explain_metrics(left, right),
        Aspect.USAGE: lambda: _explain_usage(left, right, is_usage_scripted=is_usage_scripted),
    }
    return tuple(_compare_aspect(aspect, of(left), of(right), rules.get(aspect)) for aspect, of in ASPECTS.items())


def _compare_aspect(aspect: Aspect, left: Any, right: Any, rule: Callable[[], str | None] | None) -> AspectComparison:
    is_equal = left == right
    why = None if is_equal or rule is None else rule()
    return AspectComparison(aspect=aspect, left=left, right=right, is_equal=is_equal, why=why)


# ── aspects ──


def _outcome(view: AttemptView) -> Any:
    return None if view.report is None else {"outcome": view.report.outcome.value, "code": view.report.code}


def _verified(view: AttemptView) -> Any:
    return None if view.report is None else view.report.verified


def _claim(view: AttemptView) -> Any:
    return None if view.feedback is None else {"claimed": view.feedback.claimed, "answer": view.feedback.answer}


def _workspace(view: AttemptView) -> Any:
    return None if view.report is None else view.report.workspace_digest_after


def _tool_calls(view: AttemptView) -> Any:
    return [{"kind": call.kind, "what": call_subject(call), "ok": call.ok} for call in view.tool_calls]


def _usage(view: AttemptView) -> Any:
    usage = None if view.report is None else view.report.metrics.usage
    if usage is None or usage.tokens is None:
        return None
    return {"input": usage.tokens.input, "output": usage.tokens.output}


def _metrics(view: AttemptView) -> Any:
    if view.report is None:
        return None
    metrics = view.report.metrics
    return {"turns": metrics.turns, "toolCalls": metrics.tool_calls, "toolFailures": metrics.tool_failures}


ASPECTS: Final[dict[Aspect, Callable[[AttemptView], Any]]] = {
    Aspect.OUTCOME: _outcome,
    Aspect.VERIFIED: _verified,
    Aspect.CLAIM: _claim,
    Aspect.WORKSPACE: _workspace,
    Aspect.TOOL_CALLS: _tool_calls,
    Aspect.USAGE: _usage,
    Aspect.METRICS: _metrics,
}


def call_subject(call: ToolCall) -> Any:
    """Return what a call was about, the same for every agent: the command without its shell, or the changed files."""
    match call.kind, call.input:
        case "command", {"command": str(command)}:
            return bare_command(command)
        case "patch", {"changes": [*changes]}:
            return sorted(_file_name(change) for change in changes)
        case _:
            return call.name


def _file_name(change: Any) -> str:
    # Only the name: each attempt has another workspace folder.
    return PurePosixPath(str(change.get("path"))).name if isinstance(change, dict) else ""


# ── explanations ──


def _explain_unseen_tools(left: AttemptView, right: AttemptView) -> str | None:
    for view in (left, right):
        fact = None if view.runner is None else view.runner.facts.get("toolCalls")
        if fact is not None and fact.value == "unseen":
            return f"{_runtime_id(view)} records what its command prints, not which tools it uses"
    return None


def _explain_outcome(left: AttemptView, right: AttemptView) -> str | None:
    """Explain different codes of two failures if one runtime knows only the exit code."""
    codes = {view.report.code for view in (left, right) if view.report is not None}
    outcomes = {view.report.outcome for view in (left, right) if view.report is not None}
    if len(outcomes) != 1 or "agent.exit-status" not in codes or _explain_unseen_tools(left, right) is None:
        return None
    return "for a command that failed, only the exit code is known, not why it failed"


def _explain_other_tools(left: AttemptView, right: AttemptView) -> str | None:
    """Explain different tool calls if they are neither commands nor changes, and the workspaces are equal."""
    if _workspace(left) != _workspace(right) or _commands_and_patches(left) != _commands_and_patches(right):
        return None
    views = (left, right)
    parts = [f"{_runtime_id(view)} also uses {' and '.join(names)}" for view in views if (names := _other_tools(view))]
    return f"{', and '.join(parts)}, and the workspaces are equal" if parts else None


def _explain_metrics(left: AttemptView, right: AttemptView) -> str | None:
    one, other = _metrics(left), _metrics(right)
    if one is None or other is None or one["turns"] != other["turns"]:
        return None
    if (why := _explain_unseen_tools(left, right)) is not None:
        return why
    return _explain_other_tools(left, right) if one["toolFailures"] == other["toolFailures"] else None


def _commands_and_patches(view: AttemptView) -> list[Any]:
    return [call for call in _tool_calls(view) if call["kind"] != "other"]


def _other_tools(view: AttemptView) -> list[str]:
    return sorted({call.name for call in view.tool_calls if call.kind == "other"})


def _explain_usage(left: AttemptView, right: AttemptView, *, is_usage_scripted: bool) -> str | None:
    unreported = [_runtime_id(view) for view in (left, right) if _usage(view) is None]
    if unreported:
        return f"{' and '.join(unreported)} did not report tokens"
    if not is_usage_scripted:
        return (
            "the scripted model counts tokens by the length of the request, and the two agents send different requests"
        )
    return None


def _runtime_id(view: AttemptView) -> str:
    return "?" if view.record is None else str(view.record.runtime_id)


def differences(parity: Parity) -> Iterator[tuple[Pair, AspectComparison]]:
    """Yield every difference, explained or not."""
    return ((pair, each) for pair in parity.pairs for each in pair.compared if not each.is_equal)
