"""What the agent's process starts from: its program, its home, its settings, its environment."""

import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from proctor import places
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment, Variant
from proctor.errors import InputError, MachineError
from proctor.ids import ProcessId
from proctor.runtime.base import Executable, HostRequest, ModelChoice
from proctor.runtime.codex.home import as_arguments, mcp_servers, overrides, own_variables, return_login, write_home
from proctor.runtime.codex.program import OVERRIDE, locate
from proctor.runtime.codex_app_server.open_thread import thread_params
from proctor.runtime.executable import AGENTS_VARIABLE, agents_dir, recheck
from proctor.spec.choices import Login, Profile
from proctor.testing.clock import FakeClock
from tests.runtime.twin import session_ask

SCRIPTED = ModelChoice(provider="scripted", name="a-model", base_url="http://127.0.0.1:1/v1")
REAL = ModelChoice(provider="openai", name='an "odd"\nname', key_variable="OPENAI_API_KEY")


@pytest.fixture
def ask(tmp_path: Path) -> HostRequest:
    return HostRequest(
        process=ProcessId("p"),
        executable=Executable(path="/c", real_path="/c", sha256="0", size_bytes=1, source="override"),
        home=tmp_path / "p" / "home",
        tmp=tmp_path / "p" / "tmp",
        env={},
        containment=Containment(variant=Variant.BWRAP, tools=("bwrap",), catches=(), misses=()),
        intents=IntentLog(tmp_path),
        clock=FakeClock(),
        model=SCRIPTED,
    )


# ── home ──


def test_a_home_holds_our_settings_and_calls_nobody(ask: HostRequest) -> None:
    write_home(ask)
    config = tomllib.loads((ask.home / "config.toml").read_text())
    models = Path(config.pop("model_catalog_json"))
    assert config == {
        "model": "a-model",
        "model_provider": "proctor",
        "check_for_update_on_startup": False,
        "web_search": "disabled",
        "allow_login_shell": False,
        "model_providers": {
            "proctor": {"name": "scripted", "base_url": "http://127.0.0.1:1/v1", "wire_api": "responses"}
        },
        "features": {"plugins": False, "apps": False, "shell_snapshot": False, "unbounded_connection_retries": False},
        "skills": {"bundled": {"enabled": False}},
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
    }
    assert msgspec.json.decode(models.read_bytes())["models"][0]["slug"] == "a-model"
    assert [folder.stat().st_mode & 0o777 for folder in (ask.home, ask.tmp)] == [0o700, 0o700]


def test_a_real_model_needs_no_catalog_and_names_its_key_without_its_value(ask: HostRequest) -> None:
    write_home(replace(ask, model=REAL, env={"OPENAI_API_KEY": "sk-live-0123"}))
    text = (ask.home / "config.toml").read_text()
    config = tomllib.loads(text)
    assert (config["model"], "model_catalog_json" in config) == ('an "odd"\nname', False)
    assert config["model_providers"]["proctor"] == {
        "name": "openai",
        "wire_api": "responses",
        "env_key": "OPENAI_API_KEY",
    }
    assert "sk-live" not in text


def test_an_inherited_login_is_a_link_to_the_users_own_and_names_no_variable(ask: HostRequest, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "auth.json").write_text("{}")
    write_home(replace(ask, model=replace(REAL, key_variable=None, login=Login.INHERIT), user_home=mine))
    assert (ask.home / "auth.json").readlink() == mine / "auth.json"
    provider = tomllib.loads((ask.home / "config.toml").read_text())["model_providers"]["proctor"]
    assert provider == {"name": "openai", "wire_api": "responses", "requires_openai_auth": True}


OLD = '{"tokens": {"refresh_token": "old-0123456789"}}'
NEW = '{"tokens": {"refresh_token": "new-0123456789"}}'


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize(
    ("put", "kept"),
    [(None, OLD), (NEW, NEW), ("{}", OLD), ('{"tokens": null}', OLD), (NEW[:-1], OLD), ("", OLD), ('"sk"', OLD)],
)
def test_a_login_that_is_renewed_in_place_of_the_link_goes_back_to_its_user_if_it_is_one(
    ask: HostRequest, tmp_path: Path, put: str | None, kept: str, is_linked: bool
) -> None:
    mine, dotfiles = tmp_path / "mine", tmp_path / "dotfiles"
    mine.mkdir()
    dotfiles.mkdir()
    if is_linked:
        (mine / "auth.json").symlink_to("../dotfiles/codex.json")
    (mine / "auth.json").write_text(OLD)
    inherited = replace(ask, model=replace(REAL, key_variable=None, login=Login.INHERIT), user_home=mine)
    write_home(inherited)
    if put is not None:
        (ask.home / "auth.json").unlink()
        (ask.home / "auth.json").write_text(put)
        (ask.home / "auth.json").chmod(0o600)
    return_login(inherited)
    assert [each.name for each in mine.iterdir()] == ["auth.json"]
    assert [each.name for each in dotfiles.iterdir()] == (["codex.json"] if is_linked else [])
    assert ((mine / "auth.json").is_symlink(), (mine / "auth.json").read_text()) == (is_linked, kept)
    assert kept == OLD or (mine / "auth.json").stat().st_mode & 0o777 == 0o600


def test_the_users_own_profile_is_left_as_it_is_and_our_model_is_laid_over_it(ask: HostRequest, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    asked = replace(ask, model=REAL, profile=Profile.MINE, user_home=mine, env={"HOME": "/home/ada"})
    write_home(asked)
    assert (list(mine.iterdir()), list(ask.home.iterdir())) == ([], [])
    assert own_variables(asked) == {"CODEX_HOME": str(mine), "HOME": "/home/ada", "TMPDIR": str(ask.tmp)}
    assert as_arguments(overrides(asked))[1::2] == [
        'model="an \\"odd\\"\\nname"',
        'model_provider="proctor"',
        'model_providers.proctor.name="openai"',
        'model_providers.proctor.wire_api="responses"',
        'model_providers.proctor.env_key="OPENAI_API_KEY"',
    ]
    assert overrides(ask) == {}


@pytest.mark.parametrize("place", ["p", "p/home", "."])
def test_a_temporary_folder_above_the_home_is_refused(ask: HostRequest, tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError) as refused:
        write_home(replace(ask, env={"TMPDIR": str(tmp_path / place)}))
    assert refused.value.code == "policy.tmpdir-above-home"
    assert not ask.home.exists()


def test_a_home_that_cannot_be_made_is_a_machine_error(ask: HostRequest, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("in the way")
    with pytest.raises(MachineError) as refused:
        write_home(ask)
    assert (refused.value.code, refused.value.file) == ("machine.unwritable", str(ask.home))


def test_a_thread_has_its_own_model_address_marker_and_temporary_folder() -> None:
    assert thread_params(session_ask("m.f.r1.1"))["config"] == {
        "shell_environment_policy.set": {"PROCTOR_ATTEMPT": "m.f.r1.1", "TMPDIR": "/somewhere/tmp"},
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "sandbox_workspace_write.exclude_tmpdir_env_var": True,
        "sandbox_workspace_write.writable_roots": ["/somewhere/tmp"],
        "model_providers.proctor.base_url": "http://127.0.0.1:1/v1",
    }


def test_a_flow_sets_how_patient_the_agent_is_with_its_provider() -> None:
    options = {"stream_max_retries": 2, "unbounded_connection_retries": True}
    assert thread_params(replace(session_ask(), options=options))["config"] == {
        **thread_params(session_ask())["config"],
        "model_providers.proctor.stream_max_retries": 2,
        "features.unbounded_connection_retries": True,
    }


def test_the_key_of_a_real_model_is_kept_from_the_agents_shell() -> None:
    params = thread_params(replace(session_ask(), model=REAL))
    assert params["config"]["shell_environment_policy.exclude"] == ["OPENAI_API_KEY"]
    assert params["ephemeral"] is True


def test_the_users_own_settings_are_not_told_to_trust_a_workspace_for_good() -> None:
    mine = replace(session_ask(), profile=Profile.MINE)
    assert thread_params(mine)["config"]["projects"] == {str(mine.workspace): {"trust_level": "trusted"}}


# ── program ──


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "codex"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(OVERRIDE, str(program))
    return program


@pytest.mark.requirement("runtime.identity")
def test_a_program_is_known_by_its_bytes_and_a_change_is_seen(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(program)
    monkeypatch.setenv(OVERRIDE, str(link))
    found = locate()
    assert (found.path, found.real_path, found.source) == (str(link), str(program), "env-override")
    assert (found.sha256, found.shims) == (hashlib.sha256(b"#!/bin/sh\n").hexdigest(), (str(program),))
    program.write_bytes(b"#!/bin/ed\n")
    assert locate().sha256 == hashlib.sha256(b"#!/bin/ed\n").hexdigest()


@pytest.mark.requirement("runtime.identity")
def test_a_program_is_looked_at_again_and_a_change_to_it_is_told(program: Path) -> None:
    found = locate()
    assert recheck(found).value == "same"
    program.touch()
    assert recheck(found).value == "same"
    program.write_bytes(b"#!/bin/ed\n")
    assert recheck(found).value == f"changed: {hashlib.sha256(b'#!/bin/ed' + bytes([10])).hexdigest()}"
    program.unlink()
    assert recheck(found).value.startswith("changed: unreadable: ")


def test_a_broken_cache_of_hashes_only_costs_time(program: Path) -> None:
    book = places.cache_dir() / "identities.json"
    book.write_bytes(b"{torn")
    assert locate().sha256 == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert msgspec.json.decode(book.read_bytes(), type=dict[str, str])


@pytest.mark.parametrize("kind", ["absent", "a folder", "not executable"])
def test_a_program_that_cannot_be_run_is_missing_and_the_error_says_what_to_install(program: Path, kind: str) -> None:
    program.unlink()
    if kind == "a folder":
        program.mkdir()
    elif kind == "not executable":
        program.write_bytes(b"")
    with pytest.raises(MachineError, match="install openai-codex-cli-bin") as refused:
        locate()
    assert refused.value.code == "machine.binary-missing"


@pytest.mark.requirement("runtime.identity")
def test_the_bundled_program_is_the_one_its_wheel_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OVERRIDE, raising=False)
    found = locate()
    size_bytes = Path(found.real_path).stat().st_size
    assert (found.source, found.is_locked, found.size_bytes) == ("bundled-package", True, size_bytes)


def test_agents_are_looked_for_where_they_are_named_else_where_they_were_installed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(AGENTS_VARIABLE, raising=False)
    assert agents_dir() is None
    installed = tmp_path / "cache" / "proctor" / "agents"
    (installed / "0123").mkdir(parents=True)
    (installed / "current").symlink_to("0123")
    assert agents_dir() == installed / "0123"
    monkeypatch.setenv(AGENTS_VARIABLE, str(tmp_path / "gone"))
    assert agents_dir() is None
    monkeypatch.setenv(AGENTS_VARIABLE, str(tmp_path))
    assert agents_dir() == tmp_path


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ('[mcp_servers.kit]\ncommand = "kit"\n[mcp_servers.off]\nenabled = false\n', {"kit"}),
        ('mcp_servers = "kit"', set()),
        ("[mcp_servers]\nkit = 1", set()),
        ("not toml", set()),
        (None, set()),
    ],
)
def test_mcp_servers_of_the_settings_are_those_that_are_enabled(
    ask: HostRequest, settings: str | None, names: set[str]
) -> None:
    ask.home.mkdir(parents=True)
    if settings is not None:
        (ask.home / "config.toml").write_text(settings)
    assert mcp_servers(ask) == names
