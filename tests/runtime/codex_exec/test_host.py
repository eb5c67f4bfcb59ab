"""What is found out of the program before a turn is asked of it, and how a turn is asked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.errors import MachineError, PeerError
from proctor.fact import Authority, Fact
from proctor.ids import ThreadId
from proctor.runtime.base import ModelChoice
from proctor.runtime.capability import LEAST
from proctor.runtime.codex.program import locate
from proctor.runtime.codex_exec import RUNTIME
from proctor.runtime.codex_exec.command import Opening, written_arguments
from proctor.runtime.executable import identify
from proctor.spec.choices import Login
from proctor.testing.agent_under_test import EventTap, host_asked
from tests.runtime.codex_exec.real import real_exec
from tests.runtime.twin import run, session_ask

MINE = ModelChoice(provider="openai", name="gpt-5.5", login=Login.INHERIT)
THREAD = ThreadId("01a1e25f-d177-7d92-b886-5d5369682cdf")


def test_it_claims_what_its_profile_needs_and_nothing_interactive() -> None:
    claimed = {name for name, is_claimed in msgspec.to_builtins(RUNTIME.capabilities).items() if is_claimed}
    assert claimed == {
        *("threadStart", "threadResume", "interrupt", "eventStream", "parallelSessions", "structuredOutput"),
        "takesInstructions",
    }
    assert all(getattr(RUNTIME.capabilities, name) for name in LEAST[RUNTIME.profile])


def test_a_turn_is_a_command_line_without_the_prompt(tmp_path: Path) -> None:
    program = locate()
    ask = session_ask(options={"stream_max_retries": 2})
    resumed = replace(ask, is_persistent=True)
    files: dict[str, tuple[int, str]] = {}

    real = replace(ask, model=replace(ask.model, provider="openai"))

    async def test() -> tuple[Sequence[str], ...]:
        async with host_asked(tmp_path, name="p", program=program) as host:
            host.home.mkdir()
            with (
                written_arguments(host, ask, Opening(), schema=tmp_path / "s.json") as new,
                written_arguments(host, resumed, Opening(how="resume", of=THREAD), schema=None) as again,
                written_arguments(host, real, Opening(), schema=None) as open_url,
            ):
                files.update(
                    {file.name: (file.stat().st_mode & 0o777, file.read_text()) for file in host.home.iterdir()}
                )
            assert list(host.home.iterdir()) == []
            return new, again, open_url

    new, again, open_url = run(test)
    settings = [
        'shell_environment_policy.set={"PROCTOR_ATTEMPT"="a.codex.r1.1","TMPDIR"="/somewhere/tmp"}',
        "sandbox_workspace_write.exclude_slash_tmp=true",
        "sandbox_workspace_write.exclude_tmpdir_env_var=true",
        'sandbox_workspace_write.writable_roots=["/somewhere/tmp"]',
        "model_providers.proctor.stream_max_retries=2",
        'model_provider="proctor"',
    ]
    where = ["--sandbox", "workspace-write", "--cd", "/somewhere/workspace", "--model", "scripted"]
    given = [word for setting in settings for word in ("-c", setting)]
    head = [program.real_path, "exec", "--json", "--skip-git-repo-check"]
    profiles = [words[words.index("--profile") + 1] for words in (new, again)]
    first, second = (["--profile", profile] for profile in profiles)
    schema = ["--output-schema", str(tmp_path / "s.json")]
    assert new == [*head, "--ephemeral", *where, *first, *given, *schema, "-"]
    assert again == [*head, *where, *second, *given, "resume", THREAD, "-"]
    # Every user can read a command line, and the URL of a scripted model holds a token.
    url = 'model_providers.proctor.base_url = "http://127.0.0.1:1/v1"\n'
    assert files == {f"{profile}.config.toml": (0o600, url) for profile in profiles}
    assert 'model_providers.proctor.base_url="http://127.0.0.1:1/v1"' in open_url


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.identity")
def test_the_locked_program_says_its_version_and_one_that_is_older_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "codex"
    old.write_text("#!/bin/sh\necho codex-cli 0.162.9\n")
    old.chmod(0o755)

    async def facts() -> dict[str, Fact]:
        async with real_exec(tmp_path / "real") as agent:
            return dict(agent.host.facts)

    async def too_old() -> None:
        program = identify(old, source="env-override", install="")
        async with (
            host_asked(tmp_path / "old", name="old", program=program) as ask,
            RUNTIME.open_host(ask, EventTap(RUNTIME.normalizer())),
        ):
            pass

    found = run(facts)
    assert found["version"] == Fact(value="0.163.0", authority=Authority.REPORTED, source="--version")
    assert (found["identity"].value["version"], found["identity"].authority) == ("0.163.0", Authority.VERIFIED)
    with pytest.raises(MachineError) as refused:
        run(too_old)
    assert refused.value.code == "machine.binary-too-old"


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.credential")
def test_a_login_is_reported_without_a_letter_of_it_and_none_is_refused(tmp_path: Path) -> None:
    async def source(**ask: Any) -> Fact:
        async with real_exec(tmp_path / "own", model=MINE, user_home=tmp_path, **ask) as agent:
            return agent.host.facts["credentialSource"]

    with pytest.raises(PeerError, match="run `codex login`") as refused:
        run(source)
    assert refused.value.code == "peer.login"
    (tmp_path / "auth.json").write_text('{"OPENAI_API_KEY": "sk-own-0123456789"}')
    (tmp_path / "own" / "home" / "auth.json").unlink()
    assert run(source) == Fact(value="apikey", authority=Authority.REPORTED, source="codex login status")
