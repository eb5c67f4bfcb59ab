"""What is known of a session when its last turn is over, and on whose word."""

from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import SessionAsk
from proctor.runtime.codex_exec.rollout import Rollout
from proctor.spec.model import Persistence

_NEVER = "never"


def session_facts(ask: SessionAsk, rollout: Rollout | None, *, thread: ThreadId | None) -> dict[str, Fact]:
    """The stream names the thread and nothing else; the rest stands in the file that Codex keeps of it, if it does."""
    facts = {"approvals": _approvals(ask, rollout)}
    if thread is None:
        return facts
    facts["thread"] = Fact(value=thread, authority=Authority.REPORTED, source="thread.started")
    is_kept = rollout is not None
    facts["persistence"] = Fact(
        value=(Persistence.PERSISTENT if is_kept else Persistence.EPHEMERAL).value,
        authority=Authority.OBSERVED,
        source="its rollout in the agent's home" if is_kept else "no rollout of it in the agent's home",
    )
    if rollout is None:
        return facts
    if rollout.version is not None:
        facts["version"] = Fact(value=rollout.version, authority=Authority.REPORTED, source="rollout session_meta")
    if rollout.model is not None:
        value = {"provider": ask.model.provider, "requested": ask.model.name, "effective": rollout.model}
        facts["model"] = Fact(value=value, authority=Authority.REPORTED, source="rollout turn_context")
    return facts


def _approvals(ask: SessionAsk, rollout: Rollout | None) -> Fact:
    """Whatever the flow says, nobody is asked: what leaves the sandbox fails in it, and no denial is on record."""
    told = None if rollout is None else rollout.approvals
    return Fact(
        value={"policy": ask.approvals.value, "effective": _NEVER if told is None else told, "areDenialsTold": False},
        authority=Authority.INFERRED if told is None else Authority.REPORTED,
        source="codex exec asks nobody" if told is None else "rollout turn_context",
    )
