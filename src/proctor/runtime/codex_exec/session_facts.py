"""The facts of a session after its last turn, with their sources."""

from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import SessionRequest
from proctor.runtime.codex_exec.rollout import Rollout
from proctor.spec.choices import Persistence

_NEVER = "never"


def session_facts(request: SessionRequest, rollout: Rollout | None, *, thread: ThreadId | None) -> dict[str, Fact]:
    """Return the session's facts. The output names only the thread; the others are in Codex's rollout file."""
    facts = {"approvals": _approvals(request, rollout)}
    if thread is None:
        return facts
    facts["thread"] = Fact(value=thread, authority=Authority.REPORTED, source="thread.started")
    is_kept = rollout is not None
    facts["persistence"] = Fact(
        value=(Persistence.PERSISTENT if is_kept else Persistence.EPHEMERAL).value,
        authority=Authority.OBSERVED,
        source=f"the agent's home has {'a' if is_kept else 'no'} Codex rollout file of the thread",
    )
    if rollout is None:
        return facts
    if rollout.version is not None:
        facts["version"] = Fact(value=rollout.version, authority=Authority.REPORTED, source="rollout session_meta")
    if rollout.model is not None:
        value = {"provider": request.model.provider, "requested": request.model.name, "effective": rollout.model}
        facts["model"] = Fact(value=value, authority=Authority.REPORTED, source="rollout turn_context")
    return facts


def _approvals(request: SessionRequest, rollout: Rollout | None) -> Fact:
    """Return the fact `approvals`. `codex exec` never asks: an action outside the sandbox fails without a denial."""
    reported = None if rollout is None else rollout.approvals
    return Fact(
        value={
            "policy": request.approvals.value,
            "effective": _NEVER if reported is None else reported,
            "areDenialsTold": False,
        },
        authority=Authority.INFERRED if reported is None else Authority.REPORTED,
        source="codex exec never asks" if reported is None else "rollout turn_context",
    )
