"""What of a spec looks like a secret that is written out, and what is said of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from proctor.spec.load import load_built, load_spec
from tests.spec.good import GOOD, write

Told: TypeAlias = Callable[[Callable[[], object]], list[Any]]


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("prompt: Fix it.", "prompt: Use sk-proj-4f9a8b7c6d5e4f3a2b1c to fix it.", 5, "missions[0].prompt"),
        ("LANG: C", "LANG: ghp_0123456789abcdefghijABCDEFGHIJ", 15, "flows[0].env.LANG"),
        ("LANG: C", "MY_TOKEN: abcdefghijklmnop", 15, "flows[0].env.MY_TOKEN"),
        ("LANG: C", "db_password: correct-horse", 15, "flows[0].env.db_password"),
        ("LANG: C", "DB_PASS: Zq81-env-value-xx77-kk", 15, "flows[0].env.DB_PASS"),
        ("LANG: C", "NPM_AUTH: Zq81-env-value-xx77-kk", 15, "flows[0].env.NPM_AUTH"),
        ("LANG: C", "GH_CREDENTIALS: Zq81-env-value-xx77-kk", 15, "flows[0].env.GH_CREDENTIALS"),
        ("LANG: C", "PASSPHRASE: Zq81-env-value-xx77-kk", 15, "flows[0].env.PASSPHRASE"),
        ("LANG: C", "DB_PASSWD: Zq81-env-value-xx77-kk", 15, "flows[0].env.DB_PASSWD"),
        ("LANG: C", "dbpassword: Zq81-env", 15, "flows[0].env.dbpassword"),
        ("LANG: C", "API_TOKEN: Zq81xx77", 15, "flows[0].env.API_TOKEN"),
        ("LANG: C", "my_token: Zq81xx77", 15, "flows[0].env.my_token"),
        ("id: native", "id: native\n    login: sk-proj-4f9a8b7c6d5e4f3a2b1c", 13, "flows[0].login"),
        ("id: native", "id: native\n    approvals: sk-proj-4f9a8b7c6d5e4f3a2b1c", 13, "flows[0].approvals"),
        ("id: native", "id: native\n    sandbox: sk-proj-4f9a8b7c6d5e4f3a2b1c", 13, "flows[0].sandbox"),
        ("id: native", "id: native\n    isolation: sk-proj-4f9a8b7c6d5e4f3a2b1c", 13, "flows[0].isolation"),
        ("id: native", "id: native\n    profile: sk-proj-4f9a8b7c6d5e4f3a2b1c", 13, "flows[0].profile"),
        ("max_turns: 3", "headers: [{api_key: 0a1b2c3d4e5f6a7b}]", 14, "flows[0].options.two.headers[0].api_key"),
        ("secrets: [OPENAI_API_KEY]", "secrets: [sk-ant-api03-0123456789abcdef]", 17, "secrets[0]"),
        (
            "secrets: [OPENAI_API_KEY]",
            "model: {base_url: 'https://me:hunter22@proxy.example/v1'}",
            17,
            "model.base_url",
        ),
    ],
)
def test_a_secret_written_out_is_refused_and_not_repeated(
    folder: Path, told: Told, old: str, new: str, line: int, key: str
) -> None:
    path = write(folder, GOOD.replace(old, new))
    [(code, *place, what, suggestion)] = told(lambda: load_spec(path))
    assert (code, place, what) == ("spec.secret-literal", [line, key], "the value looks like a secret")
    if ".env." in key:
        assert suggestion == (
            "Remove it, set the variable in Proctor's environment, and list its name under the flow's `forward:`."
        )
    else:
        assert suggestion == "Put the value in an environment variable and list the variable's name under `secrets:`."


@pytest.mark.parametrize(
    "entry",
    [
        "DB_PASS: $MINE",
        "DB_PASS: MINE_PASS",
        "DB_PASS: ./here/pass.txt",
        "AUTH: required",
        "AUTH: 'true'",
        "SORT_KEY: created_at",
        "AUTH_URL: https://login.example.com/authorize",
        "AUTH_METHOD: client-secret-post",
        "AUTHOR: Zq81-env-value-xx77-kk",
        "MIN_TOKENS: '100000000'",
    ],
)
def test_what_only_sounds_like_a_secret_may_be_written_out(folder: Path, entry: str) -> None:
    name, _, value = entry.partition(": ")
    env = load_spec(write(folder, GOOD.replace("LANG: C", entry))).spec.flows[0].env
    assert env[name] == value.strip("'")


def test_a_secret_written_out_in_python_is_refused_like_one_in_a_file(folder: Path, told: Told) -> None:
    built = yaml.safe_load(GOOD.replace("verified: no, ", "").replace("LANG: C", "DB_PASS: Zq81-env-value-xx77-kk"))
    [(code, _, key, what, _)] = told(lambda: load_built(built, name="session", folder=folder))
    assert (code, key, what) == (
        *("spec.secret-literal", "flows[0].env.DB_PASS"),
        "the value looks like a secret",
    )


@pytest.mark.parametrize(("name", "model"), [("OPENAI_API_KEY", ""), ("MY_HOST_API_KEY", "my-host")])
def test_the_key_of_a_model_belongs_to_the_login_and_is_not_forwarded(
    folder: Path, told: Told, name: str, model: str
) -> None:
    text = GOOD.replace("LANG: C", f"{name}: sk-proj-4f9a8b7c6d5e4f3a2b1c")
    if model:
        text += f"model: {{provider: {model}, name: m}}\nlogin: api-key\n"
    [(code, _, key, _, suggestion)] = told(lambda: load_spec(write(folder, text)))
    assert (code, key) == ("spec.secret-literal", f"flows[0].env.{name}")
    assert suggestion == f"Remove it, set {name} in Proctor's environment, and write `login: api-key` to pass it on."


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("campaign: night", "campaign: KEY"),
        ("id: native", "id: KEY"),
        ("id: native", "id: native\n    KEY: 1"),
        ("LANG: C", "KEY: C"),
        ("[python3, a.py]", "KEY: 1"),
        ("headless_run", "KEY"),
        ("[one, two]", "KEY"),
        ("{copy: tree}", "{copy: KEY}"),
        ("say.yaml", "KEY"),
        ("500ms", "KEY"),
        ("version: 1", "version: KEY"),
        ("{two:", "{KEY:"),
    ],
)
def test_no_message_repeats_a_key_wherever_it_was_written(folder: Path, told: Told, old: str, new: str) -> None:
    path = write(folder, GOOD.replace(old, new.replace("KEY", "sk-proj-4f9a8b7c6d5e4f3a2b1c")))
    assert "4f9a8b7c" not in repr(told(lambda: load_spec(path)))
