"""The real Codex logs in at a provider on loopback by key, by token and by its user's own login; no value is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.evidence.layout import RootPaths
from proctor.fact import Authority
from tests.lab import Lab, jsonl, mission, report_of, runner_ref_of, say_done
from tests.provider import Provider, jwt, open_provider
from tests.workspace.repositories import commit, init

pytestmark = pytest.mark.real_agent

KEY = "pk-loopback-51f0c2aa97"
TOKEN = "at-loopback-0c88d1e2b7"
ENV = {"run": "env; cat /proc/self/environ | tr '\\0' '\\n'"}
RENEWAL = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"
CLAIMS = {"email": "ada@example.com", "https://api.openai.com/auth": {"chatgpt_account_id": "acc-1"}}

either = pytest.mark.parametrize("runtime", ["codex_app_server", "codex_exec"])


def write(lab: Lab, provider: Provider, *missions: dict[str, Any], name: str = "loopback", **flow: Any) -> Path:
    model = {"provider": name, "name": "gpt-5.5", "base_url": provider.base_url}
    return lab.write_spec(missions or [mission("look")], flow={"model": model, **flow})


def facts_of(lab: Lab) -> dict[str, Any]:
    [paths] = lab.attempts().values()
    facts = runner_ref_of(paths).facts
    return {
        "input": facts["credentialInput"].value,
        "source": (facts["credentialSource"].value, facts["credentialSource"].authority),
        "state": (facts["credentialState"].value, facts["credentialState"].authority),
    }


def shell_output(lab: Lab) -> str:
    [paths] = lab.attempts().values()
    [call] = jsonl(paths.tool_calls)
    assert "PROCTOR_ATTEMPT=" in call["output"]
    return str(call["output"])


def files_holding(lab: Lab, text: str) -> list[str]:
    return [str(file) for file in lab.root.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own home of Codex, with settings, a server and instructions that must stay out."""
    home = tmp_path / "user" / ".codex"
    home.mkdir(parents=True)
    started = tmp_path / "server-was-started"
    (home / "config.toml").write_text(
        f'model_reasoning_effort = "low"\n[mcp_servers.mine]\ncommand = "touch"\nargs = ["{started}"]\n'
    )
    (home / "AGENTS.md").write_text("Begin every answer with MOO.\n")
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return home


@pytest.mark.requirement("runtime.login")
@pytest.mark.requirement("runtime.credential")
@pytest.mark.requirement("runtime.env-policy")
def test_a_key_reaches_the_provider_and_neither_the_shell_nor_the_evidence(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_API_KEY", KEY)
    with open_provider(ENV, say_done(), bearer=KEY) as provider:
        lab.run(write(lab, provider, login="api-key"))
    assert provider.model_asked() == {f"Bearer {KEY}"}
    assert facts_of(lab) == {
        "input": {"login": "api-key", "from": "variable LOOPBACK_API_KEY", "givenIn": "LOOPBACK_API_KEY"},
        "source": ("explicit-api-key", Authority.INFERRED),
        "state": ("accepted", Authority.INFERRED),
    }
    assert "LOOPBACK_API_KEY" not in shell_output(lab)
    assert files_holding(lab, KEY) == []
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("runtime.credential")
def test_a_wrong_key_is_on_record_as_rejected(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPBACK_API_KEY", "pk-mistyped-000000")
    with open_provider(say_done(), bearer=KEY) as provider:
        lab.run(write(lab, provider, login="api-key"))
    [paths] = lab.attempts().values()
    assert report_of(paths).outcome == "failed"
    assert facts_of(lab)["state"] == ("rejected", Authority.INFERRED)
    assert files_holding(lab, "pk-mistyped-000000") == []


@pytest.mark.requirement("runtime.login")
@pytest.mark.requirement("runtime.credential")
@pytest.mark.parametrize("is_file", [False, True])
def test_a_token_is_shown_to_the_provider_it_is_for(lab: Lab, monkeypatch: pytest.MonkeyPatch, is_file: bool) -> None:
    monkeypatch.setenv("MY_GATEWAY", TOKEN)
    (lab.folder / "token.txt").write_text(f"{TOKEN}\n")
    token = {"file": "../token.txt"} if is_file else "MY_GATEWAY"
    with open_provider(ENV, say_done(), bearer=TOKEN) as provider:
        lab.run(write(lab, provider, login="token", token=token))
    assert provider.model_asked() == {f"Bearer {TOKEN}"}
    given_in, source = ("LOOPBACK_API_KEY", "file token.txt") if is_file else ("MY_GATEWAY", "variable MY_GATEWAY")
    assert facts_of(lab) == {
        "input": {"login": "token", "from": source, "givenIn": given_in},
        "source": ("explicit-api-key", Authority.INFERRED),
        "state": ("accepted", Authority.INFERRED),
    }
    assert given_in not in shell_output(lab)
    assert files_holding(lab, TOKEN) == []


@pytest.mark.requirement("runtime.login")
@pytest.mark.requirement("runtime.credential")
@either
def test_codex_takes_an_access_token_of_openais_as_its_own_login(
    lab: Lab, user: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("WORK_ACCESS", TOKEN)
    who = {"email": "ada@example.com", "chatgpt_user_id": "u", "chatgpt_account_id": "a", "chatgpt_plan_type": "plus"}
    accounts = {"/v1/user-auth-credential/whoami": {**who, "chatgpt_account_is_fedramp": False}}
    with open_provider(ENV, say_done(), bearer=TOKEN, accounts=accounts) as provider:
        # Else it would wait some seconds for OpenAI itself.
        (user / "config.toml").write_text(f'chatgpt_base_url = "{provider.url}"\n')
        flow = {"login": "token", "token": "WORK_ACCESS", "profile": "mine", "runtime": [runtime]}
        lab.run(write(lab, provider, name="openai", env={"CODEX_AUTHAPI_BASE_URL": provider.url}, **flow))
    assert provider.model_asked() == {f"Bearer {TOKEN}"}
    assert facts_of(lab) == {
        "input": {"login": "token", "from": "variable WORK_ACCESS", "givenIn": "CODEX_ACCESS_TOKEN"},
        "source": ("personalAccessToken", Authority.REPORTED),
        "state": ("accepted", Authority.INFERRED),
    }
    assert "CODEX_ACCESS_TOKEN" not in shell_output(lab)
    assert files_holding(lab, TOKEN) == []


@pytest.mark.requirement("runtime.login")
@either
def test_a_token_that_codex_does_not_take_refuses_the_session_before_the_model_is_asked(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("WORK_ACCESS", TOKEN)
    with open_provider(say_done(), bearer=TOKEN) as provider:
        env = {"CODEX_AUTHAPI_BASE_URL": f"{provider.url}/nowhere"}
        lab.run(write(lab, provider, name="openai", login="token", token="WORK_ACCESS", env=env, runtime=[runtime]))
    assert provider.model_asked() == set()
    [paths] = lab.attempts().values()
    report = report_of(paths)
    assert (report.outcome, report.code) == ("refused", "peer.login")
    assert report.detail == "Codex did not accept the token: create a new token"


@pytest.mark.requirement("runtime.login")
@pytest.mark.requirement("runtime.credential")
@either
def test_the_users_own_login_is_renewed_in_place_and_nothing_of_it_is_kept(
    lab: Lab, user: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    stale, fresh = jwt(exp=1000, **CLAIMS), jwt(n=2, **CLAIMS)
    tokens = {"id_token": jwt(**CLAIMS), "access_token": stale, "refresh_token": "rt-loopback-0001", "account_id": "a"}
    auth = user / "auth.json"
    auth.write_text(json.dumps({"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": "2020-01-01T00:00:00Z"}))
    before = auth.stat().st_ino
    renewed = {"id_token": jwt(**CLAIMS), "access_token": fresh, "refresh_token": "rt-loopback-0002"}
    with open_provider(
        {"run": f"cat {auth}"}, say_done(), bearer=fresh, accounts={"/oauth/token": renewed}
    ) as provider:
        monkeypatch.setenv(RENEWAL, f"{provider.url}/oauth/token")
        # Whatever else it would ask OpenAI is refused here, and at once.
        env = {"HTTPS_PROXY": provider.url}
        lab.run(write(lab, provider, name="openai", login="inherit", forward=[RENEWAL], env=env, runtime=[runtime]))
    assert provider.model_asked() == {f"Bearer {fresh}"}
    assert facts_of(lab) == {
        "input": {"login": "inherit", "from": "file .codex/auth.json", "givenIn": None},
        "source": ("chatgpt", Authority.REPORTED),
        "state": ("accepted", Authority.INFERRED),
    }
    # Written through the link: the user is still logged in, with what the provider gave last.
    assert json.loads(auth.read_text())["tokens"]["refresh_token"] == "rt-loopback-0002"
    assert auth.stat().st_ino == before
    kept = {text: files_holding(lab, text) for text in ("rt-loopback-0001", "rt-loopback-0002", stale, fresh)}
    assert [file for files in kept.values() for file in files] == []


@pytest.mark.requirement("runtime.login")
def test_one_process_alone_uses_the_users_own_login_whatever_number_of_flows_does(lab: Lab, user: Path) -> None:
    (user / "auth.json").write_text(json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": KEY}))
    with open_provider(say_done(), bearer=KEY) as provider:
        model = {"provider": "openai", "name": "gpt-5.5", "base_url": provider.base_url}
        flow = {"runtime": ["codex_app_server"], "model": model, "login": "inherit"}
        flows = [{"id": "one", **flow}, {"id": "two", **flow, "sandbox": "read-only"}]
        lab.run(lab.write_spec([mission("a"), mission("b")], flows=flows))
    assert [report_of(paths).outcome.value for paths in lab.attempts().values()] == ["completed"] * 4
    [run] = RootPaths(lab.root).runs()
    assert len(list(run.runtimes())) == 1
    assert sorted(each.name for each in user.iterdir()) == ["AGENTS.md", "auth.json", "config.toml"]
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("runtime.login")
@pytest.mark.parametrize("profile", ["fresh", "mine"])
def test_the_users_own_settings_and_servers_are_there_only_where_the_flow_says_so(
    lab: Lab, user: Path, tmp_path: Path, profile: str
) -> None:
    (user / "auth.json").write_text(json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": KEY}))
    settings = (user / "config.toml").read_text()
    # Of a repository Codex would write into the settings that it is trusted.
    commit(init(tmp_path / "repository"), {"a": ""}, "first")
    with open_provider(say_done(), bearer=KEY) as provider:
        look = mission("look", workspace={"git": "../repository", "ref": "main"})
        lab.run(write(lab, provider, look, name="openai", login="inherit", profile=profile))
    assert provider.model_asked() == {f"Bearer {KEY}"}
    assert facts_of(lab)["source"] == ("apikey", Authority.REPORTED)
    [paths] = lab.attempts().values()
    assert runner_ref_of(paths).facts["profile"].value == profile
    is_there = ((lab.folder / "server-was-started").exists(), "MOO" in provider.heard())
    assert is_there == ((True, True) if profile == "mine" else (False, False))
    assert (user / "config.toml").read_text() == settings
    assert files_holding(lab, KEY) == []
