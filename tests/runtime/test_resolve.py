"""From a chain of runtimes to one that may be tried: each refusal is typed, kept, and told with what to do."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.config.load import load_config
from proctor.config.model import RolloutRequirement, RolloutState, Setting
from proctor.errors import InputError, MachineError, ProctorError
from proctor.evidence.health import ProgramHealth, ProgramKey
from proctor.ids import FlowId, MissionId, RuntimeId
from proctor.plan.expand import resolve_flow
from proctor.plan.model import ResolvedFlow
from proctor.runtime.base import Runtime
from proctor.runtime.capability import Capabilities
from proctor.runtime.codex.program import OVERRIDE
from proctor.runtime.registry import runtime_by_id
from proctor.runtime.resolve import (
    Candidate,
    Link,
    RefusedRuntime,
    RuntimeChain,
    links,
    needs,
    none_left,
    prefer_healthy,
)
from proctor.runtime.rollout import Rollout
from proctor.spec.choices import Approvals, Isolation, Login, Persistence
from proctor.spec.model import CampaignSpec, FlowSpec, MissionSpec, ModelSpec
from tests.plugins import LIKE_CODEX, install

CODEX, NONSENSE = RuntimeId("codex_app_server"), RuntimeId("nonsense")
HOUR_MS = 60 * 60 * 1000


def flow(*chain: str, **more: Any) -> ResolvedFlow:
    written = FlowSpec(id=FlowId("f"), runtime=[RuntimeId(id_) for id_ in chain], **more)
    spec = CampaignSpec(version=1, campaign="c", missions=[MissionSpec(id=MissionId("m"), prompt="p")], flows=[written])
    return resolve_flow(written, spec=spec)


def told(chain: list[Link]) -> list[tuple[str, str | None]]:
    """Each with the code of its refusal, if it was refused."""
    return [(each.runtime_id, each.error.code if isinstance(each, RefusedRuntime) else None) for each in chain]


def candidate(name: str = "a") -> Candidate:
    rollout = Rollout(
        runtime_id=RuntimeId(name),
        is_enabled=Setting(value=True, source="built in"),
        state=Setting(value=RolloutState.SELECTABLE, source="built in"),
        requires=Setting(value=RolloutRequirement.DECLARED, source="built in"),
    )
    return Candidate(rollout=rollout, runtime=runtime_by_id(CODEX), executable=None)


def health(name: str, *, failing_since_ms: int | None) -> ProgramHealth:
    return ProgramHealth(
        runtime_id=RuntimeId(name),
        sha256="",
        starts=9,
        failed_starts=3,
        crashes=0,
        last_code="peer.hangup",
        last_at_ms=5,
        failing_since_ms=failing_since_ms,
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three plugins, one of which is not named; the current folder is the project."""
    folder = tmp_path / "site"
    limited = (
        LIKE_CODEX.format(id="limited")
        + "from proctor.runtime.capability import Capabilities\nLike.capabilities = Capabilities()\n"
    )
    install(folder, "limited", points={"limited": "limited_like:RUNTIME"}, modules={"limited_like": limited})
    moody = LIKE_CODEX.format(id="moody") + "Like.locate = lambda self, options: 1 / 0\n"
    install(folder, "moody", points={"moody": "moody_like:RUNTIME"}, modules={"moody_like": moody})
    install(folder, "uninvited", points={"uninvited": "uninvited_like:RUNTIME"}, modules={})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    Path("proctor.toml").write_text('plugins = ["limited", "moody"]\n')
    return folder


@pytest.mark.requirement("runtime.strategy.fallback")
def test_each_reason_before_a_start_falls_to_the_next_and_is_kept(site: Path) -> None:
    chain = list(links(flow("nonsense", "uninvited", "limited", "moody", "codex_app_server"), config=load_config(site)))
    assert told(chain) == [
        (NONSENSE, "spec.unknown-runtime"),
        ("uninvited", "runtime.not-allowed"),
        ("limited", "runtime.capability"),
        ("moody", "runtime.broken"),
        (CODEX, None),
    ]
    assert none_left(flow("nonsense"), chain) is None
    fact = RuntimeChain(chain).fact()
    assert fact.value["chosen"] == CODEX
    assert [(each["runtime"], each["code"]) for each in fact.value["refused"]] == told(chain)[:-1]
    assert fact.value["refused"][1]["todo"].startswith("Change line 1 of ")
    assert (
        fact.value["refused"][2]["what"]
        == "limited cannot carry several sessions at once, which `isolation: shared` (the default) needs"
    )


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
@pytest.mark.parametrize(
    ("setting", "code", "says"),
    [
        ("enabled = false", "runtime.disabled", "is switched off by proctor.toml:2"),
        ('state = "locked"', "runtime.locked", "is locked by proctor.toml:2"),
    ],
)
def test_a_runtime_that_is_closed_is_refused_by_its_setting_though_it_could_run(
    tmp_path: Path, setting: str, code: str, says: str
) -> None:
    (tmp_path / "proctor.toml").write_text(f"[rollout.codex_app_server]\n{setting}\n")
    [refused] = links(flow("codex_app_server"), config=load_config(tmp_path))
    assert isinstance(refused, RefusedRuntime)
    assert (refused.error.code, refused.error.what) == (code, f"codex_app_server {says}")
    [none] = links(flow("auto"), config=load_config(tmp_path))
    assert isinstance(none, RefusedRuntime)
    assert (none.runtime_id, none.error.code) == ("auto", "runtime.no-default")
    closed = "switched off by proctor.toml:2" if code == "runtime.disabled" else "locked (proctor.toml:2)"
    assert f"codex_app_server is {closed}; " in f"{none.error.what}; "


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
def test_auto_names_why_each_default_runtime_cannot_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "torn", points={"torn": "torn_module:RUNTIME"}, modules={"torn_module": "1 / 0\n"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "proctor.toml").write_text(
        'plugins = ["torn"]\n[rollout]\ntorn.state = "default"\nclaude_code.state = "default"\n'
        'codex_app_server.state = "locked"\n'
    )
    asked = flow("auto", model=ModelSpec(provider="openai", name="gpt-5"), login=Login.API_KEY)
    [none] = links(asked, config=load_config(tmp_path))
    assert isinstance(none, RefusedRuntime)
    what = none.error.what
    assert "codex_app_server is locked (proctor.toml:5)" in what
    assert (
        "claude_code is default (proctor.toml:4), but does not declare this model, "
        "and `default_runtime` is codex_app_server (built in)"
    ) in what
    assert "torn is default (proctor.toml:3), but cannot be loaded: torn (torn_module:RUNTIME, from torn): " in what
    assert "(runtime.broken)" in what


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
def test_who_claims_a_model_is_asked_first_and_what_nobody_claims_goes_to_the_named_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = LIKE_CODEX.format(id="claiming") + "Like.serves = {'anthropic': ('claude-*', 'opus')}\n"
    install(tmp_path / "site", "claiming", points={"claiming": "claims_it:RUNTIME"}, modules={"claims_it": claims})
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "proctor.toml").write_text('plugins = ["claiming"]\nrollout.claiming.state = "default"\n')
    config = load_config(tmp_path)

    def chain(member: str, provider: str, name: str | None) -> list[tuple[str, str | None]]:
        model = ModelSpec(provider=provider, name=name)
        return told(list(links(flow(member, model=model, login=Login.API_KEY), config=config)))

    for name in ("claude-4", "opus"):
        assert chain("auto", "anthropic", name) == [("claiming", None), (CODEX, None)]
        assert chain("claiming", "anthropic", name) == [("claiming", None)]
    for provider, name in (("anthropic", "gpt-5"), ("openai", "claude-4")):
        assert chain("auto", provider, name) == [(CODEX, None)]
        assert chain("claiming", provider, name) == [("claiming", "runtime.not-served")]
    assert chain("claiming", "scripted", None) == [("claiming", None)]
    (tmp_path / "proctor.toml").write_text('default_runtime = "claiming"\n' + (tmp_path / "proctor.toml").read_text())
    config = load_config(tmp_path)
    assert chain("auto", "openai", "gpt-5") == [("claiming", None)], "it is named for what nobody claims"


@pytest.mark.requirement("runtime.strategy.auto-is-honest")
def test_auto_comes_to_the_default_runtime_with_flag_program_and_rollout_reported(tmp_path: Path) -> None:
    [found] = links(flow("auto"), config=load_config(tmp_path))
    assert isinstance(found, Candidate)
    assert found.executable is not None
    facts = found.facts()
    assert {name: (fact.value, fact.source) for name, fact in facts.items()} == {
        "runtimeState": ("ready", "the runtime's last starts before the run"),
        "runtimeFlag": (True, "built in"),
        "runtimeBinary": (found.executable.sha256, "sha256 of the program file"),
        "runtimeHealth": (None, "not reported"),
        "rollout": ({"state": "default", "autoResolves": True, "requires": "declared"}, "built in"),
        "capabilityProfile": ("full-app-server", "the runtime"),
        "provenCapabilities": (
            {field.encode_name: "declared" for field in msgspec.structs.fields(Capabilities)},
            "proofs.db at the start of the run, for this program and transport",
        ),
        "schemaDigest": (None, "not reported"),
    }


@pytest.mark.requirement("runtime.strategy.fallback")
def test_a_program_that_is_missing_falls_to_the_next_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(OVERRIDE, "/nowhere/codex")
    chain = list(links(flow("codex_app_server", "nonsense"), config=load_config(tmp_path)))
    assert told(chain) == [(CODEX, "machine.binary-missing"), (NONSENSE, "spec.unknown-runtime")]
    error = none_left(flow("a"), chain)
    assert isinstance(error, MachineError)
    assert error.code == "runtime.none"
    assert "codex_app_server: /nowhere/codex: No such file or directory; install openai-codex-cli-bin" in error.what
    assert "nonsense: unknown runtime 'nonsense'" in error.what


def test_one_refusal_alone_is_raised_as_it_is_and_faults_of_the_spec_alone_are_input_errors() -> None:
    only = InputError("runtime.locked", "a is locked by proctor.toml:2")
    assert none_left(flow("a"), [RefusedRuntime(runtime_id=RuntimeId("a"), error=only)]) is only
    both = none_left(flow("a"), [RefusedRuntime(runtime_id=RuntimeId(name), error=only) for name in "ab"])
    assert isinstance(both, InputError)
    assert both.what == (
        "none of the 2 runtimes of flow `f` can be used: "
        "a: a is locked by proctor.toml:2 "
        "(runtime.locked: Choose another runtime, or change the setting that the message names.); "
        "b: a is locked by proctor.toml:2 "
        "(runtime.locked: Choose another runtime, or change the setting that the message names.)"
    )


@pytest.mark.requirement("runtime.capability.contract")
def test_what_a_flow_asks_for_needs_a_capability() -> None:
    assert needs(flow("a")) == {"parallel_sessions": "`isolation: shared` (the default)"}
    assert needs(flow("a", isolation=Isolation.PROCESS, persistence=Persistence.PERSISTENT)) == {
        "thread_resume": "`persistence: persistent`"
    }
    assert needs(flow("a", isolation=Isolation.PROCESS, approvals=Approvals.ASK)) == {"approvals": "`approvals: ask`"}


@pytest.mark.requirement("runtime.strategy.fallback")
def test_a_start_that_fails_is_kept_in_its_place_of_the_chain() -> None:
    refused: ProctorError = InputError("spec.unknown-runtime", "no runtime is called 'x'")
    links: list[Link] = [candidate("a"), RefusedRuntime(runtime_id=RuntimeId("x"), error=refused), candidate("b")]
    chain = RuntimeChain(links)
    assert (chain.current.runtime_id, chain.has_more, chain.fact().value["refused"]) == ("a", True, [])
    chain.refuse(MachineError("machine.spawn-failed", "exit 3"))
    assert (chain.current.runtime_id, chain.has_more) == ("b", False)
    assert [(each["runtime"], each["code"]) for each in chain.fact().value["refused"]] == [
        ("a", "machine.spawn-failed"),
        ("x", "spec.unknown-runtime"),
    ]


@pytest.mark.requirement("runtime.strategy.fallback")
@pytest.mark.requirement("runtime.status")
def test_a_degraded_runtime_falls_to_the_next_and_alone_is_tried_with_a_warning() -> None:
    now_ms = 10 * HOUR_MS
    sick = {ProgramKey(RuntimeId("a"), ""): health("a", failing_since_ms=now_ms - HOUR_MS + 1)}
    chain, warnings = prefer_healthy([candidate("a"), candidate("b")], health=sick, now_ms=now_ms)
    assert told(list(chain)) == [("a", "runtime.degraded"), ("b", None)]
    assert warnings == ()
    alone, warnings = prefer_healthy([candidate("a")], health=sick, now_ms=now_ms)
    assert told(list(alone)) == [("a", None)]
    assert [each.facts()["runtimeState"].value for each in alone if isinstance(each, Candidate)] == ["degraded"]
    assert warnings == ("a failed to start several times in a row, last with peer.hangup",)
    later, warnings = prefer_healthy([candidate("a"), candidate("b")], health=sick, now_ms=now_ms + 1)
    assert (told(list(later)), warnings) == ([("a", None), ("b", None)], ())
    [first, _] = later
    assert isinstance(first, Candidate)
    assert first.facts()["runtimeHealth"].value == {
        "starts": 9,
        "failedStarts": 3,
        "crashes": 0,
        "lastCode": "peer.hangup",
    }


def test_a_fault_of_the_spec_is_told_before_a_program_is_looked_for_and_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(OVERRIDE, "/nowhere/codex")
    fault = InputError("spec.unknown-key", "codex_app_server has no option 'colour'")
    asked: list[str] = []

    def check(runtime: Runtime) -> None:
        asked.append(runtime.id)
        raise fault

    with pytest.raises(InputError) as raised:
        list(links(flow("nonsense", "codex_app_server"), config=load_config(tmp_path), check=check))
    assert (raised.value, asked) == (fault, [CODEX])
