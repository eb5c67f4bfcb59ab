"""From a chain of strategies to a runtime that really starts; every refusal on the way is kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from proctor.config.model import Config
from proctor.errors import Exit, InputError, MachineError, ProctorError
from proctor.evidence.health import LaneHealth, LaneKey
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.ids import StrategyId
from proctor.plan.model import ResolvedFlow, ResolvedModel
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.capability import WORDS
from proctor.runtime.lane import DEFAULT_LANE, Lane, Member, lane_of, spell_out
from proctor.runtime.registry import runtime_by_id, strategy_ids
from proctor.spec.model import AUTO, Approvals, Isolation, Persistence


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A strategy that was passed over, and why."""

    strategy: StrategyId
    error: ProctorError

    @property
    def todo(self) -> str:
        return self.error.suggestion or self.error.meaning.todo


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A strategy that may be tried: its lane, its runtime, and the program that would run, if it has one."""

    lane: Lane
    runtime: Runtime
    executable: Executable | None
    health: LaneHealth | None = None
    is_degraded: bool = False

    @property
    def strategy(self) -> StrategyId:
        return self.lane.strategy

    @property
    def key(self) -> LaneKey:
        """Whom its health is counted for."""
        return LaneKey(self.strategy, "" if self.executable is None else self.executable.sha256)

    def facts(self) -> dict[str, Fact]:
        """State, flag, program, health and rollout, each by itself. The credential is a fact of the flow's own."""
        enabled = self.lane.is_enabled
        return {
            "laneState": Fact(
                value="degraded" if self.is_degraded else "ready",
                authority=Authority.INFERRED,
                source="its last starts, when the run began",
            ),
            "laneFlag": Fact(value=enabled.value, authority=Authority.DECLARED, source=enabled.source),
            "laneBinary": Fact(
                value=None if self.executable is None else self.executable.sha256,
                authority=Authority.OBSERVED,
                source="sha256 of the program that was found",
            ),
            "laneHealth": UNKNOWN if self.health is None else _health_fact(self.health),
            "rollout": self.lane.rollout_fact(),
        }


def _health_fact(health: LaneHealth) -> Fact:
    return Fact(
        value={
            "starts": health.starts,
            "failedStarts": health.failed_starts,
            "crashes": health.crashes,
            "lastCode": health.last_code,
        },
        authority=Authority.OBSERVED,
        source="health.db, when the run began",
    )


Link = Candidate | Refused


class Chain:
    """A flow's strategies in order, each a candidate or refused. The first candidate is the one in use."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = list(links)

    @property
    def current(self) -> Candidate:
        return self._candidates[0]

    @property
    def has_more(self) -> bool:
        """Whether there is another one to fall to."""
        return len(self._candidates) > 1

    @property
    def _candidates(self) -> list[Candidate]:
        return [link for link in self._links if isinstance(link, Candidate)]

    def refuse(self, error: ProctorError) -> None:
        """The one in use is of no use: the next one is in use now."""
        at = self._links.index(self.current)
        self._links[at] = Refused(strategy=self.current.strategy, error=error)

    @property
    def passed(self) -> list[Refused]:
        """Who was passed over on the way to the one in use."""
        before = self._links[: self._links.index(self.current)]
        return [link for link in before if isinstance(link, Refused)]

    def fact(self) -> Fact:
        """Who was chosen, and who was passed over, with the reason."""
        return Fact(
            value={"chosen": self.current.strategy, "refused": [_told(each) for each in self.passed]},
            authority=Authority.OBSERVED,
            source="each of the flow's chain, in order",
        )


def _told(link: Refused) -> dict[str, str]:
    return {"strategy": link.strategy, "code": link.error.code, "what": link.error.what, "todo": link.todo}


def _nothing(_: Runtime) -> None:
    """There is nothing else to be said against anybody."""


def links(flow: ResolvedFlow, *, config: Config, check: Callable[[Runtime], None] = _nothing) -> Iterator[Link]:
    """Each of the flow's chain, as far as it can be judged before a credential is looked for.

    `check` is asked about each that is let in, before its program is looked for: what it raises is no refusal.
    """
    lanes = [lane_of(strategy, config) for strategy in strategy_ids(config)]
    chain = spell_out(
        flow.runtime,
        lanes=lanes,
        claims=lambda strategy: _claims(strategy, flow.model, config),
        default_lane=config.default_lane(otherwise=DEFAULT_LANE).value,
    )
    for member in chain:
        try:
            runtime = _let_in(member, flow, config, lanes=lanes)
        except ProctorError as error:
            yield Refused(strategy=member.strategy, error=error)
        else:
            check(runtime)
            yield _with_program(runtime, flow, config)


def _let_in(member: Member, flow: ResolvedFlow, config: Config, *, lanes: Sequence[Lane]) -> Runtime:
    strategy = member.strategy
    if strategy == AUTO:
        shut = [f"{lane.strategy} is {lane.standing}" for lane in lanes if not lane.is_open_to_auto]
        what = f"no default lane is there for {_spelled(flow.model)}: {', '.join(shut)}"
        raise InputError("runtime.no-lane", what)
    runtime = runtime_by_id(strategy, config)
    lane_of(strategy, config).admit()
    if not member.is_unclaimed and not serves(runtime, flow.model):
        raise InputError("runtime.not-served", f"{strategy} does not serve {_spelled(flow.model)}")
    for claim, why in needs(flow).items():
        if not getattr(runtime.claims, claim):
            what = f"{strategy} cannot {WORDS[claim]}, which {why} needs"
            suggestion = "Write `isolation: process`." if claim == "parallel_sessions" else None
            raise InputError("runtime.capability", what, suggestion=suggestion)
    return runtime


def _with_program(runtime: Runtime, flow: ResolvedFlow, config: Config) -> Link:
    try:
        program = runtime.locate(flow.options.get(runtime.id, {}))
    except ProctorError as error:
        return Refused(strategy=runtime.id, error=error)
    except Exception as error:  # a plugin may do anything
        broken = MachineError("runtime.broken", f"{runtime.id}: {type(error).__name__}: {error}")
        return Refused(strategy=runtime.id, error=broken)
    return Candidate(lane=lane_of(runtime.id, config), runtime=runtime, executable=program)


def needs(flow: ResolvedFlow) -> dict[str, str]:
    """The capabilities that a flow cannot do without, each with the key that asks for it."""
    asked = {
        "parallel_sessions": ("`isolation: shared` (the default)", flow.isolation is Isolation.SHARED),
        "approvals": ("`approvals: ask`", flow.approvals is Approvals.ASK),
        "thread_resume": ("`persistence: persistent`", flow.persistence is Persistence.PERSISTENT),
    }
    return {claim: why for claim, (why, is_asked) in asked.items() if is_asked}


def serves(runtime: Runtime, model: ResolvedModel) -> bool:
    """Whether the runtime takes the model. One that names no provider takes any, and all take the scripted one."""
    return model.is_scripted or runtime.serves is None or _is_named(runtime, model)


def _claims(strategy: StrategyId, model: ResolvedModel, config: Config) -> bool:
    try:
        return _is_named(runtime_by_id(strategy, config), model)
    except ProctorError:  # told when its turn comes
        return False


def _is_named(runtime: Runtime, model: ResolvedModel) -> bool:
    patterns = (runtime.serves or {}).get(model.provider)
    return patterns is not None and any(fnmatchcase(model.name or "", each) for each in patterns)


def _spelled(model: ResolvedModel) -> str:
    return "/".join(part for part in (model.provider, model.name) if part)


def prefer_healthy(
    chain: Sequence[Link], *, health: Mapping[LaneKey, LaneHealth], now_ms: int
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """The chain with its degraded candidates refused, unless no other is left; and then a warning for each of them."""
    known = [
        _with_health(link, health.get(link.key), now_ms) if isinstance(link, Candidate) else link for link in chain
    ]
    candidates = [link for link in known if isinstance(link, Candidate)]
    if all(each.is_degraded for each in candidates):
        return tuple(known), tuple(map(_sickness, candidates))
    return tuple(
        Refused(strategy=link.strategy, error=MachineError("runtime.degraded", _sickness(link)))
        if isinstance(link, Candidate) and link.is_degraded
        else link
        for link in known
    ), ()


def _with_health(candidate: Candidate, health: LaneHealth | None, now_ms: int) -> Candidate:
    return replace(candidate, health=health, is_degraded=health is not None and health.is_degraded(now_ms=now_ms))


def _sickness(candidate: Candidate) -> str:
    code = None if candidate.health is None else candidate.health.last_code
    return f"{candidate.strategy} failed to start again and again, last with {code}"


def none_left(flow: ResolvedFlow, chain: Sequence[Link]) -> ProctorError | None:
    """What to say where nobody may be tried: the only refusal as it is, or all of them, each with what to do."""
    refused = [link for link in chain if isinstance(link, Refused)]
    if len(refused) < len(chain):
        return None
    if len(refused) == 1:
        return refused[0].error
    told = "; ".join(f"{each.strategy}: {each.error.what} ({each.error.code}: {each.todo})" for each in refused)
    kind = InputError if all(each.error.exit is Exit.USAGE for each in refused) else MachineError
    return kind("runtime.none", f"none of the {len(refused)} runtimes of flow `{flow.id}` can be used: {told}")
