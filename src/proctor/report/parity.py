"""Two attempts at the same mission side by side: what is the same, what differs, and what explains it."""

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
    """What is compared, in the order of how much it matters."""

    OUTCOME = "outcome"
    VERIFIED = "verified"
    CLAIM = "claim"
    WORKSPACE = "workspace"
    TOOL_CALLS = "toolCalls"
    USAGE = "usage"
    METRICS = "metrics"


class AspectComparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One aspect. Where the two differ, `why` explains it, if a rule of ours knows."""

    aspect: Aspect
    left: Any
    right: Any
    is_equal: bool
    why: str | None = None

    @property
    def is_explained(self) -> bool:
        return self.is_equal or self.why is not None


class Pair(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One mission, tried by both."""

    mission_id: MissionId
    repeat: int
    left: AttemptId
    right: AttemptId
    compared: tuple[AspectComparison, ...]


class Parity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A suite through two flows. `exit` is 0 where every difference is explained."""

    exit: int
    left: FlowId
    right: FlowId
    pairs: tuple[Pair, ...]
    problems: tuple[str, ...] = ()


def compare(left: AttemptView, right: AttemptView, *, is_usage_scripted: bool) -> tuple[AspectComparison, ...]:
    """Both are sealed. `is_usage_scripted` where the model was told what each reply costs, whatever was asked."""
    rules: dict[Aspect, Callable[[], str | None]] = {
        Aspect.OUTCOME: lambda: _blind_to_why(left, right),
        Aspect.TOOL_CALLS: lambda: _blind(left, right) or _looks(left, right),
        Aspect.METRICS: lambda: _counts(left, right),
        Aspect.USAGE: lambda: _tokens_apart(left, right, is_usage_scripted=is_usage_scripted),
    }
    return tuple(_compared(aspect, of(left), of(right), rules.get(aspect)) for aspect, of in ASPECTS.items())


def _compared(aspect: Aspect, left: Any, right: Any, rule: Callable[[], str | None] | None) -> AspectComparison:
    is_equal = left == right
    why = None if is_equal or rule is None else rule()
    return AspectComparison(aspect=aspect, left=left, right=right, is_equal=is_equal, why=why)


# ── what is compared ──


def _outcome(view: AttemptView) -> Any:
    return None if view.report is None else {"outcome": view.report.outcome.value, "code": view.report.code}


def _verified(view: AttemptView) -> Any:
    return None if view.report is None else view.report.verified


def _claim(view: AttemptView) -> Any:
    return None if view.feedback is None else {"claimed": view.feedback.claimed, "answer": view.feedback.answer}


def _workspace(view: AttemptView) -> Any:
    return None if view.report is None else view.report.workspace_digest_after


def _tool_calls(view: AttemptView) -> Any:
    return [{"kind": call.kind, "what": what_of(call), "ok": call.ok} for call in view.tool_calls]


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


def what_of(call: ToolCall) -> Any:
    """What a call was about, however its agent spells it: a command as it was meant, the names of the files changed."""
    match call.kind, call.input:
        case "command", {"command": str(command)}:
            return bare_command(command)
        case "patch", {"changes": [*changes]}:
            return sorted(_file_name(change) for change in changes)
        case _:
            return call.name


def _file_name(change: Any) -> str:
    """The folders before it are those of a workspace of the attempt's own."""
    return PurePosixPath(str(change.get("path"))).name if isinstance(change, dict) else ""


# ── what explains a difference ──


def _blind(left: AttemptView, right: AttemptView) -> str | None:
    for view in (left, right):
        fact = None if view.runner is None else view.runner.facts.get("toolCalls")
        if fact is not None and fact.value == "unseen":
            return f"{_runtime_id(view)} sees what its command prints, and not which tools it uses"
    return None


def _blind_to_why(left: AttemptView, right: AttemptView) -> str | None:
    """Both failed, and one of them can only say with which exit code."""
    codes = {view.report.code for view in (left, right) if view.report is not None}
    outcomes = {view.report.outcome for view in (left, right) if view.report is not None}
    if len(outcomes) != 1 or "agent.exit-status" not in codes or _blind(left, right) is None:
        return None
    return "of a command that failed only its exit code is known, and not why it failed"


def _looks(left: AttemptView, right: AttemptView) -> str | None:
    """Calls that are neither a command nor a change, and that one of the two does without."""
    if _workspace(left) != _workspace(right) or _deeds(left) != _deeds(right):
        return None
    views = (left, right)
    told = [f"{_runtime_id(view)} also uses {' and '.join(names)}" for view in views if (names := _others(view))]
    return f"{', and '.join(told)}, and the workspaces are the same" if told else None


def _counts(left: AttemptView, right: AttemptView) -> str | None:
    one, other = _metrics(left), _metrics(right)
    if one is None or other is None or one["turns"] != other["turns"]:
        return None
    if (why := _blind(left, right)) is not None:
        return why
    return _looks(left, right) if one["toolFailures"] == other["toolFailures"] else None


def _deeds(view: AttemptView) -> list[Any]:
    return [call for call in _tool_calls(view) if call["kind"] != "other"]


def _others(view: AttemptView) -> list[str]:
    return sorted({call.name for call in view.tool_calls if call.kind == "other"})


def _tokens_apart(left: AttemptView, right: AttemptView, *, is_usage_scripted: bool) -> str | None:
    silent = [_runtime_id(view) for view in (left, right) if _usage(view) is None]
    if silent:
        return f"{' and '.join(silent)} did not say what it cost"
    if not is_usage_scripted:
        return "the scripted model counts by the size of what it is asked, and the two agents ask in different words"
    return None


def _runtime_id(view: AttemptView) -> str:
    return "?" if view.record is None else str(view.record.runtime_id)


def differences(parity: Parity) -> Iterator[tuple[Pair, AspectComparison]]:
    """All that is not the same, explained or not."""
    return ((pair, each) for pair in parity.pairs for each in pair.compared if not each.is_equal)
