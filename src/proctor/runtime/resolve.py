"""Resolve a flow's runtime chain to candidates that may be started, and record why each other one was refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from proctor.config.model import Config, RolloutRequirement
from proctor.errors import Exit, InputError, MachineError, ProctorError
from proctor.evidence.health import ProgramHealth, ProgramKey
from proctor.evidence.proofs import ProofRow
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.ids import RuntimeId
from proctor.plan.model import ResolvedFlow, ResolvedModel
from proctor.runtime.base import Executable, Runtime
from proctor.runtime.capability import WORDS
from proctor.runtime.proof import ProofSet, proofs_of, subject_of
from proctor.runtime.registry import runtime_by_id, runtime_ids
from proctor.runtime.rollout import DEFAULT_RUNTIME, ChainMember, Rollout, rollout_of, spell_out
from proctor.spec.choices import Approvals, Isolation, Persistence
from proctor.spec.model import AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRuntime:
    """A runtime of the chain that is not used, with the reason."""

    runtime_id: RuntimeId
    error: ProctorError

    @property
    def todo(self) -> str:
        """What the user can do about it."""
        return self.error.suggestion or self.error.meaning.todo


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A runtime of the chain that may be started."""

    rollout: Rollout
    runtime: Runtime
    executable: Executable | None
    """The program that would run. None if the runtime has none."""
    proofs: ProofSet | None = None
    """The results of the conformance suite for the flow's transport. None if they cannot be read."""
    health: ProgramHealth | None = None
    """Counts of its starts and crashes. None if none are recorded."""
    is_degraded: bool = False
    """Whether its last starts failed."""

    @property
    def runtime_id(self) -> RuntimeId:
        return self.rollout.runtime_id

    @property
    def key(self) -> ProgramKey:
        """The key of its health counts."""
        return ProgramKey(self.runtime_id, "" if self.executable is None else self.executable.sha256)

    def facts(self) -> dict[str, Fact]:
        """Return state, flag, program, health and rollout as separate facts."""
        enabled = self.rollout.is_enabled
        return {
            "runtimeState": Fact(
                value="degraded" if self.is_degraded else "ready",
                authority=Authority.INFERRED,
                source="the runtime's last starts before the run",
            ),
            "runtimeFlag": Fact(value=enabled.value, authority=Authority.DECLARED, source=enabled.source),
            "runtimeBinary": Fact(
                value=None if self.executable is None else self.executable.sha256,
                authority=Authority.OBSERVED,
                source="sha256 of the program file",
            ),
            "runtimeHealth": UNKNOWN if self.health is None else _health_fact(self.health),
            "rollout": self.rollout.fact(),
            "capabilityProfile": Fact(
                value=self.runtime.profile.value, authority=Authority.DECLARED, source="the runtime"
            ),
            "provenCapabilities": UNKNOWN if self.proofs is None else _proofs_fact(self.proofs, self.runtime),
            # A runtime that knows its program's schema states it when it starts.
            "schemaDigest": UNKNOWN,
        }


def _proofs_fact(proofs: ProofSet, runtime: Runtime) -> Fact:
    return Fact(
        value={name: state.value for name, state in proofs.capability_states(runtime.capabilities).items()},
        authority=Authority.OBSERVED,
        source="proofs.db at the start of the run, for this program and transport",
    )


def _health_fact(health: ProgramHealth) -> Fact:
    return Fact(
        value={
            "starts": health.starts,
            "failedStarts": health.failed_starts,
            "crashes": health.crashes,
            "lastCode": health.last_code,
        },
        authority=Authority.OBSERVED,
        source="health.db at the start of the run",
    )


Link = Candidate | RefusedRuntime


class RuntimeChain:
    """A flow's runtimes in order, each a candidate or refused. The first candidate is in use."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = list(links)

    @property
    def current(self) -> Candidate:
        return self._candidates[0]

    @property
    def has_more(self) -> bool:
        """Whether another candidate follows the one in use."""
        return len(self._candidates) > 1

    @property
    def _candidates(self) -> list[Candidate]:
        return [link for link in self._links if isinstance(link, Candidate)]

    def refuse(self, error: ProctorError) -> None:
        """Refuse the candidate in use, so that the next one is used."""
        index = self._links.index(self.current)
        self._links[index] = RefusedRuntime(runtime_id=self.current.runtime_id, error=error)

    @property
    def passed(self) -> list[RefusedRuntime]:
        """The refused runtimes before the one in use."""
        before = self._links[: self._links.index(self.current)]
        return [link for link in before if isinstance(link, RefusedRuntime)]

    def fact(self) -> Fact:
        """Return which runtime was chosen, and which were refused and why."""
        return Fact(
            value={"chosen": self.current.runtime_id, "refused": [_to_json(each) for each in self.passed]},
            authority=Authority.OBSERVED,
            source="the flow's runtime chain, in order",
        )


def _to_json(link: RefusedRuntime) -> dict[str, str]:
    return {"runtime": link.runtime_id, "code": link.error.code, "what": link.error.what, "todo": link.todo}


ExamineProgram = Callable[[Runtime, Executable | None], Executable | None]
"""Returns the program that really runs. Raises ProctorError if Proctor cannot use it."""

ReadProofs = Callable[[], Sequence[ProofRow]]
"""Returns the results of the conformance suite. Raises MachineError if they cannot be read."""


def _accept_any(_: Runtime) -> None:
    """Accept every runtime."""


def as_located(_: Runtime, program: Executable | None) -> Executable | None:
    """Return the program without running it."""
    return program


def links(
    flow: ResolvedFlow,
    *,
    config: Config,
    check: Callable[[Runtime], None] = _accept_any,
    examine: ExamineProgram = as_located,
    proofs: ReadProofs = tuple,
) -> Iterator[Link]:
    """Yield each runtime of the flow's chain as a candidate or as refused. Credentials are not checked yet.

    `check` is called for each admitted runtime, before its program is located. What it raises is not a refusal: it
    ends the iteration. `examine` is called with the located program, and `proofs` returns all proofs.
    """
    rollouts = [rollout_of(runtime_id, config) for runtime_id in runtime_ids(config)]
    chain = spell_out(
        flow.runtime,
        rollouts=rollouts,
        declares_model=lambda runtime_id: _declares_model(runtime_id, flow.model, config),
        default_runtime=config.default_runtime(default=DEFAULT_RUNTIME).value,
    )
    for member in chain:
        try:
            runtime = _admit(member, flow, config, rollouts=rollouts)
        except ProctorError as error:
            yield RefusedRuntime(runtime_id=member.runtime_id, error=error)
        else:
            check(runtime)
            yield _locate_program(runtime, flow, config, examine, proofs)


def _admit(member: ChainMember, flow: ResolvedFlow, config: Config, *, rollouts: Sequence[Rollout]) -> Runtime:
    runtime_id = member.runtime_id
    if runtime_id == AUTO:
        reasons = [f"{rollout.runtime_id} {_why_not_auto(rollout, config)}" for rollout in rollouts]
        what = f"`auto` finds no runtime for {_format_model(flow.model)}: {'; '.join(reasons)}"
        raise InputError("runtime.no-default", what)
    runtime = runtime_by_id(runtime_id, config)
    rollout_of(runtime_id, config).admit()
    if not member.is_fallback and not serves(runtime, flow.model):
        raise InputError("runtime.not-served", f"{runtime_id} does not serve {_format_model(flow.model)}")
    for capability, why in needs(flow).items():
        if not getattr(runtime.capabilities, capability):
            what = f"{runtime_id} cannot {WORDS[capability]}, which {why} needs"
            suggestion = "Write `isolation: process`." if capability == "parallel_sessions" else None
            raise InputError("runtime.capability", what, suggestion=suggestion)
    return runtime


def _why_not_auto(rollout: Rollout, config: Config) -> str:
    """Return why `auto` cannot choose a runtime for a model that no default runtime declares."""
    if not rollout.is_open_to_auto:
        return f"is {rollout.description}"
    state = f"is default ({rollout.state.source})"
    try:
        runtime_by_id(rollout.runtime_id, config)
    except ProctorError as error:
        return f"{state}, but cannot be loaded: {error.what} ({error.code})"
    other = config.default_runtime(default=DEFAULT_RUNTIME)
    return f"{state}, but does not declare this model, and `default_runtime` is {other.value} ({other.source})"


def _locate_program(
    runtime: Runtime, flow: ResolvedFlow, config: Config, examine: ExamineProgram, read_proofs: ReadProofs
) -> Link:
    options, rollout = flow.options.get(runtime.id, {}), rollout_of(runtime.id, config)
    transport = str(options.get("transport", runtime.transports[0]))
    proofs: ProofSet | None = None
    try:
        program = examine(runtime, runtime.locate(options))
        # Without options, a runtime that runs the flow's own command locates no program, and its code is proven.
        is_programs_own = program is not None and runtime.locate({}) is not None
        subject = subject_of(runtime, program if is_programs_own else None)
        try:
            proofs = proofs_of(runtime, transport, subject, read_proofs())
        except MachineError:
            if rollout.requires.value is RolloutRequirement.PROVEN:
                raise
        else:
            rollout.require_proof(proofs, runtime, transport=transport)
    except ProctorError as error:
        return RefusedRuntime(runtime_id=runtime.id, error=error)
    except Exception as error:  # a plugin may do anything
        broken = MachineError("runtime.broken", f"{runtime.id}: {type(error).__name__}: {error}")
        return RefusedRuntime(runtime_id=runtime.id, error=broken)
    return Candidate(rollout=rollout, runtime=runtime, executable=program, proofs=proofs)


def needs(flow: ResolvedFlow) -> dict[str, str]:
    """Return the capabilities that a flow needs, each with the key that needs it."""
    needed = {
        "parallel_sessions": ("`isolation: shared` (the default)", flow.isolation is Isolation.SHARED),
        "approvals": ("`approvals: ask`", flow.approvals is Approvals.ASK),
        "thread_resume": ("`persistence: persistent`", flow.persistence is Persistence.PERSISTENT),
    }
    return {capability: key for capability, (key, is_needed) in needed.items() if is_needed}


def serves(runtime: Runtime, model: ResolvedModel) -> bool:
    """Return whether the runtime takes the model: all take the scripted model, and without `serves` any model."""
    return model.is_scripted or runtime.serves is None or _matches_serves(runtime, model)


def _declares_model(runtime_id: RuntimeId, model: ResolvedModel, config: Config) -> bool:
    try:
        return _matches_serves(runtime_by_id(runtime_id, config), model)
    except ProctorError:  # reported when the chain reaches this runtime
        return False


def _matches_serves(runtime: Runtime, model: ResolvedModel) -> bool:
    patterns = (runtime.serves or {}).get(model.provider)
    return patterns is not None and any(fnmatchcase(model.name or "", each) for each in patterns)


def _format_model(model: ResolvedModel) -> str:
    return "/".join(part for part in (model.provider, model.name) if part)


def prefer_healthy(
    chain: Sequence[Link], *, health: Mapping[ProgramKey, ProgramHealth], now_ms: int
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Return the chain with its degraded candidates refused, and no warnings.

    If all candidates are degraded, return the chain unchanged, and a warning for each of them.
    """
    known = [
        _with_health(link, health.get(link.key), now_ms) if isinstance(link, Candidate) else link for link in chain
    ]
    candidates = [link for link in known if isinstance(link, Candidate)]
    if all(each.is_degraded for each in candidates):
        return tuple(known), tuple(map(_describe_degraded, candidates))
    return tuple(
        RefusedRuntime(runtime_id=link.runtime_id, error=MachineError("runtime.degraded", _describe_degraded(link)))
        if isinstance(link, Candidate) and link.is_degraded
        else link
        for link in known
    ), ()


def _with_health(candidate: Candidate, health: ProgramHealth | None, now_ms: int) -> Candidate:
    return replace(candidate, health=health, is_degraded=health is not None and health.is_degraded(now_ms=now_ms))


def _describe_degraded(candidate: Candidate) -> str:
    code = None if candidate.health is None else candidate.health.last_code
    return f"{candidate.runtime_id} failed to start several times in a row, last with {code}"


def none_left(flow: ResolvedFlow, chain: Sequence[Link]) -> ProctorError | None:
    """Return the error if the chain has no candidate: its only refusal, or all of them in one. Otherwise None."""
    refused = [link for link in chain if isinstance(link, RefusedRuntime)]
    if len(refused) < len(chain):
        return None
    if len(refused) == 1:
        return refused[0].error
    reasons = "; ".join(f"{each.runtime_id}: {each.error.what} ({each.error.code}: {each.todo})" for each in refused)
    kind = InputError if all(each.error.exit is Exit.USAGE for each in refused) else MachineError
    return kind("runtime.none", f"none of the {len(refused)} runtimes of flow `{flow.id}` can be used: {reasons}")
