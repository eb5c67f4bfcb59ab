"""What a new user is told about a login or a variable that cannot be had: what, where, and what to do."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.campaign.preflight import PreflightResult, preflight
from proctor.errors import InputError
from proctor.spec.load import load_spec
from tests.lab import Lab, say_done
from tests.provider import open_provider

SPEC = """\
version: 1
campaign: c
missions:
  - {id: m, prompt: Do it.}
flows:
  - id: f
    runtime: [codex_app_server]
    model: {provider: openai, name: some-model}
    login: api-key
"""
FOR_ALL = SPEC.replace("    model:", "model:").replace("    login:", "login:")
SECOND = (
    '  - {id: g, runtime: [codex_app_server], model: {provider: openai, name: x}, login: inherit, env: {MODE: "1"}}\n'
)


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "mine"))


def ready(tmp_path: Path, text: str) -> PreflightResult:
    spec = tmp_path / "spec.yaml"
    spec.write_text(text)
    return anyio.run(preflight, load_spec(spec))


def refused(tmp_path: Path, text: str) -> tuple[Any, ...]:
    with pytest.raises(InputError) as error:
        ready(tmp_path, text)
    told = error.value
    assert told.file == str(tmp_path / "spec.yaml")
    return told.code, told.line, told.key, told.what, told.suggestion


def log_in(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "auth.json").write_text('{"OPENAI_API_KEY": "sk-mine-0123456789"}')


@pytest.mark.requirement("runtime.login")
@pytest.mark.parametrize(("text", "line", "key"), [(SPEC, 9, "flows[0].login"), (FOR_ALL, 9, "login")])
def test_a_key_that_is_not_set_is_blamed_on_the_login(tmp_path: Path, text: str, line: int, key: str) -> None:
    what = "the variable OPENAI_API_KEY, which should hold the key, is not set"
    assert refused(tmp_path, text) == (
        *("policy.login", line, key, what),
        "Set it in the environment of Proctor: `export OPENAI_API_KEY=…`.",
    )


@pytest.mark.requirement("runtime.login")
def test_a_real_model_without_login_or_name_is_told_both_at_once(tmp_path: Path) -> None:
    text = SPEC.replace(", name: some-model", "").replace("    login: api-key\n", "")
    with pytest.raises(InputError) as error:
        ready(tmp_path, text)
    assert [(each.code, each.line, each.key, each.what) for each in getattr(error.value, "errors", ())] == [
        ("policy.login", 6, "flows[0].login", "the provider `openai` needs a login, and this is `login: none`"),
        ("spec.missing-key", 8, "flows[0].model.name", "the provider `openai` needs `model.name`"),
    ]


@pytest.mark.requirement("runtime.login")
def test_a_login_of_ones_own_that_is_absent_names_the_command_that_makes_it(tmp_path: Path) -> None:
    assert refused(tmp_path, SPEC.replace("api-key", "inherit")) == (
        *("policy.login", 9, "flows[0].login", f"the user is not logged in: {tmp_path}/mine/auth.json does not exist"),
        "Run `codex login`, then try again. A login kept in a keyring needs `profile: mine`.",
    )


@pytest.mark.requirement("runtime.login")
@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "token: sk-proj-0123456789abcdef01",
            (
                *("spec.secret-literal", 10, "flows[0].token", "the value looks like a secret"),
                "Put the value in an environment variable and write the variable's name here.",
            ),
        ),
        (
            "token: $MINE",
            (
                *("spec.type", 10, "flows[0].token", "this is not the name of an environment variable"),
                "Write the variable's name alone, without `$`.",
            ),
        ),
        (
            "token: MINE_TOKEN",
            (
                *("policy.login", 10, "flows[0].token"),
                "the variable MINE_TOKEN, which should hold the token, is not set",
                "Set it in the environment of Proctor: `export MINE_TOKEN=…`.",
            ),
        ),
        (
            "sandbox: read-only",
            (
                *("spec.missing-key", 6, "flows[0].token", "`login: token` needs the key `token`"),
                "Add `token:` with the name of the variable that contains the token, or `token: {file: …}`.",
            ),
        ),
    ],
)
def test_a_token_is_named_and_never_written_out(tmp_path: Path, written: str, told: tuple[Any, ...]) -> None:
    assert refused(tmp_path, SPEC.replace("api-key", "token") + f"    {written}\n") == told


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "    token: MINE\n",
            ("spec.unsupported", 10, "flows[0].token", "`token` has no effect with `login: api-key`"),
        ),
        (
            "    env: {CI: '1'}\n    forward: [CI]\n",
            ("spec.duplicate-key", 11, "flows[0].forward[0]", "`CI` is also set in `env`"),
        ),
        ("token: my token\n", ("spec.type", 10, "token", "this is not the name of an environment variable")),
        ("token: {file: absent}\n", ("spec.missing-file", 10, "token.file", "`absent` does not exist")),
        ("    profile: mine\n", ("policy.login", 10, "flows[0].profile", "there is no {mine}")),
    ],
)
def test_what_does_not_go_together_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, told: tuple[Any, ...]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    *place, what = told
    assert refused(tmp_path, SPEC + written)[:4] == (*place, what.format(mine=tmp_path / "mine"))


@pytest.mark.requirement("runtime.env-policy")
@pytest.mark.parametrize(
    ("written", "code", "key", "what"),
    [
        (
            "env: {LD_PRELOAD: /x.so}",
            "policy.blocked-variable",
            "flows[0].env.LD_PRELOAD",
            "LD_PRELOAD is never passed to an agent: it makes programs load or run other code",
        ),
        (
            "forward: [AWS_PROFILE]",
            "policy.blocked-variable",
            "flows[0].forward[0]",
            "AWS_PROFILE is never passed to an agent: it is a credential of a cloud provider or of the user's session",
        ),
        ("forward: [HOME]", "policy.reserved-variable", "flows[0].forward[0]", "codex_app_server sets HOME itself"),
        (
            "forward: [ABSENT]",
            "policy.variable-unset",
            "flows[0].forward[0]",
            "ABSENT is not set, so it cannot be forwarded",
        ),
        ("forward: [$CI]", "spec.type", "flows[0].forward[0]", "this is not the name of an environment variable"),
    ],
)
def test_a_variable_that_is_not_handed_on_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, code: str, key: str, what: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert refused(tmp_path, f"{SPEC}    {written}\n")[:4] == (code, 10, key, what)


@pytest.mark.requirement("runtime.login")
def test_flows_that_share_a_login_must_be_able_to_share_a_process(tmp_path: Path) -> None:
    log_in(tmp_path)
    alike = SPEC.replace("api-key", "inherit")
    assert refused(tmp_path, alike + SECOND) == (
        *("policy.login", 10, "flows[1].env"),
        "this flow and `f` share your own login, and so one process, but differ in `env`",
        "Use the same value in both, use another login in one of them, or run them in two campaigns.",
    )
    assert refused(tmp_path, f"{alike}    isolation: process\n")[:3] == ("spec.unsupported", 10, "flows[0].isolation")
    shared = ready(tmp_path, alike + SECOND.replace(', env: {MODE: "1"}', "")).identities
    assert [each.process for each in shared.values()] == [("f", "codex_app_server")] * 2


def test_values_of_the_users_login_file_and_of_a_named_token_are_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(tmp_path)
    monkeypatch.setenv("GATEWAY", "some-value-0123")
    token = "  - {id: g, runtime: [codex_app_server], model: {provider: p, name: x}, login: token, token: GATEWAY}\n"
    found = ready(tmp_path, SPEC.replace("api-key", "inherit") + token).secrets
    assert {"auth.json:OPENAI_API_KEY", "GATEWAY"} <= {secret.name for secret in found}


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.credential")
def test_a_key_that_the_provider_refuses_is_told_with_its_variable_and_line(lab: Lab) -> None:
    with open_provider(say_done(), bearer="the-right-one") as provider:
        spec = lab.folder / "spec.yaml"
        model = f"model: {{provider: p, name: x, base_url: '{provider.base_url}'}}"
        spec.write_text(SPEC.replace("model: {provider: openai, name: some-model}", model))
        said = lab.proctor("run", str(spec), P_API_KEY="the-wrong-one")
    assert said.returncode == 3
    assert said.stderr.endswith(
        "error  p refused the credential from variable P_API_KEY\n"
        f"  where  {spec}:9: flows[0].login\n"
        "  to do  Check that variable P_API_KEY holds a complete credential for p that has not expired.\n"
        "  code   policy.login-refused\n"
    )
    assert "the-wrong-one" not in said.stdout + said.stderr


@pytest.mark.requirement("runtime.login")
@pytest.mark.parametrize("text", ["{}", '{"tokens": {"access_token": "x"}}'])
def test_a_login_file_without_a_credential_is_blamed_on_the_login(tmp_path: Path, text: str) -> None:
    log_in(tmp_path)
    (tmp_path / "mine" / "auth.json").write_text(text)
    assert refused(tmp_path, SPEC.replace("api-key", "inherit")) == (
        *("policy.login", 9, "flows[0].login"),
        f"the user is not logged in: {tmp_path}/mine/auth.json holds no credential",
        "Run `codex login`, then try again. A login kept in a keyring needs `profile: mine`.",
    )


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.credential")
def test_a_login_of_ones_own_that_the_provider_refuses_is_told_with_its_command(lab: Lab, tmp_path: Path) -> None:
    log_in(tmp_path)
    with open_provider(say_done(), bearer="the-right-one") as provider:
        spec = lab.folder / "spec.yaml"
        model = f"model: {{provider: openai, name: x, base_url: '{provider.base_url}'}}"
        text = SPEC.replace("model: {provider: openai, name: some-model}", model).replace("api-key", "inherit")
        # Whatever else it would ask OpenAI is refused here, and at once.
        spec.write_text(f"{text}    env: {{HTTPS_PROXY: '{provider.url}'}}\n")
        said = lab.proctor("run", str(spec), CODEX_HOME=str(tmp_path / "mine"))
    assert said.stderr.endswith(
        "error  openai refused the credential from file $CODEX_HOME/auth.json\n"
        f"  where  {spec}:9: flows[0].login\n"
        "  to do  Run `codex login`, then try again.\n"
        "  code   policy.login-refused\n"
    )
