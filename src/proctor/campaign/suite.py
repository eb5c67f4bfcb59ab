"""Flows for a suite: its missions run on the runtimes that the command names instead of the spec's own flows."""

from collections.abc import Sequence

from proctor.config.model import Config
from proctor.errors import InputError, ProctorError
from proctor.ids import AGENT_RUNTIMES, FlowId, RuntimeId, runtime_id_of
from proctor.runtime.registry import runtime_by_id, runtime_ids
from proctor.spec.choices import Isolation
from proctor.spec.model import FlowSpec
from proctor.spec.suggest import suggest, suggest_nearest

CHAINED = "+"


def flows_on(words: Sequence[str], *, config: Config) -> list[FlowSpec]:
    """Return a flow with default settings for each word. `a+b` is one flow that falls back to b if a cannot be used.

    A runtime that cannot run many sessions in one process gets a process per attempt.
    Raises InputError if a word names no runtime, or two words make the same flow.
    """
    flows: list[FlowSpec] = []
    for word in words:
        chain = [runtime_id_of(each.strip()) for each in word.split(CHAINED)]
        for runtime_id in chain:
            _refuse_unknown(runtime_id, config)
        id_ = FlowId("-or-".join(each.replace("_", "-") for each in chain))
        if id_ in (flow.id for flow in flows):
            raise InputError("usage", f"--on names {word} twice")
        can_share = all(_can_share(each, config) for each in chain)
        flows.append(FlowSpec(id=id_, runtime=chain, isolation=Isolation.SHARED if can_share else Isolation.PROCESS))
    return flows


def _refuse_unknown(runtime_id: RuntimeId, config: Config) -> None:
    known = runtime_ids(config)
    if runtime_id not in known:
        what = f"no runtime is called `{runtime_id}`" if runtime_id else "--on contains an empty name"
        close = suggest_nearest(runtime_id, [*AGENT_RUNTIMES, *known])
        suggestion = close or suggest(runtime_id, known, noun="Runtimes")
        raise InputError("spec.unknown-runtime", what, key="--on", suggestion=suggestion)


def _can_share(runtime_id: RuntimeId, config: Config) -> bool:
    try:
        return runtime_by_id(runtime_id, config).capabilities.parallel_sessions
    except ProctorError:  # reported by preflight
        return True
