"""The fences around the real Claude Code, which has no sandbox of its own, and what it is not handed."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.contain.ladder import Variant, choose, survey
from proctor.errors import MachineError
from proctor.event.model import ToolEnded
from proctor.runtime.base import ModelChoice
from proctor.runtime.environment import agent_environment
from proctor.spec.choices import Login, Sandbox
from proctor.spec.fence import Contain
from tests.runtime.claude_code.real import claude, provider, run

pytestmark = [pytest.mark.real_agent, pytest.mark.agent("claude_code")]


def outputs(events: list[ToolEnded]) -> list[str]:
    return [event.output or "" for event in events]


def test_it_writes_to_its_workspace_alone_and_sees_nothing_of_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other = tmp_path / "user", tmp_path / "other"
    for folder in (home, other):
        folder.mkdir()
        (folder / "kept").write_text("mine")
    monkeypatch.setenv("HOME", str(home))
    look = f"cat {home}/kept; echo b > {other}/kept; echo t > $TMPDIR/t && echo tmp ok; touch w && echo w ok; true"

    async def main() -> None:
        async with claude(tmp_path / "run") as real:
            for sandbox, may_write in ((Sandbox.WORKSPACE_WRITE, True), (Sandbox.READ_ONLY, False)):
                steps = ({"run": look}, {"say": "Done."})
                async with real.talk(*steps, name=sandbox.value, sandbox=sandbox, hidden=(other,)) as talk:
                    (talk.workspace / "seen").touch()
                    await talk.session.turn("Go on.")
                    (output,) = outputs(talk.of(ToolEnded))
                    assert ("mine" in output, "tmp ok" in output) == (False, True)
                    assert ("w ok" in output) is may_write
                    assert (talk.workspace / "w").exists() is may_write
            assert (other / "kept").read_text() == "mine"

    run(main)


def test_full_access_and_no_containment_lift_the_fences(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real:
            steps = ({"run": f"echo out > {tmp_path}/out"}, {"say": "Done."})
            async with real.talk(*steps, sandbox=Sandbox.DANGER_FULL_ACCESS) as talk:
                await talk.session.turn("Go on.")
                assert (talk.answers, talk.deeds) == ([("accept", "sandbox")], [("Bash", "completed")])
                assert talk.session.facts["fences"].value is None
        assert (tmp_path / "out").read_text() == "out\n"

    run(main)


def test_where_no_fence_can_be_raised_it_does_not_run_unless_the_flow_says_so(tmp_path: Path) -> None:
    warden = choose(finding for finding in survey() if finding.variant is Variant.WARDEN)

    async def main() -> None:
        async with claude(tmp_path, containment=warden) as real:
            with pytest.raises(MachineError) as caught:
                async with real.talk({"say": "a"}, name="fenced"):
                    pytest.fail("it runs")
            assert caught.value.code == "machine.no-fences"
            async with real.talk({"say": "a"}, name="free", contain=Contain.NONE) as talk:
                await talk.session.turn("Go on.")
                assert talk.ends == [("completed", None)]

    run(main)


def test_its_commands_are_not_handed_the_key(tmp_path: Path) -> None:
    key = "sk-ant-0123456789-of-nobody"
    environment = agent_environment({"PATH": "/usr/bin:/bin"}, env={}, credential={"ANTHROPIC_API_KEY": key})

    keyed: dict[str, Any] = {"key_variable": "ANTHROPIC_API_KEY", "login": Login.API_KEY}
    model = ModelChoice(provider="anthropic", name="claude-sonnet-4-5", **keyed)
    steps = ({"run": "env; echo 'a  \"b\"'"}, {"say": "Done."})

    async def main() -> None:
        async with (
            claude(tmp_path, env=environment.values, model=model) as real,
            real.talk(*steps, name="keyed", model=provider(**keyed)) as talk,
        ):
            await talk.session.turn("Go on.")
            (output,) = outputs(talk.of(ToolEnded))
            assert (key in output, 'a  "b"' in output, talk.said) == (False, True, ["Done."])
            assert f"PROCTOR_ATTEMPT={talk.name}" in output

    run(main)


def test_an_inherited_login_is_used_where_the_users_home_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "sk-ant-oat01-of-nobody-0123456789"
    expires_ms = 32_503_680_000_000
    oauth = {"accessToken": token, "refreshToken": token, "expiresAt": expires_ms, "scopes": ["user:inference"]}
    own = tmp_path / "user" / ".claude"
    own.mkdir(parents=True)
    (own / ".credentials.json").write_text(json.dumps({"claudeAiOauth": oauth}))
    (own / "settings.json").write_text("{}")
    monkeypatch.setenv("HOME", str(own.parent))
    model = ModelChoice(provider="anthropic", name="claude-sonnet-4-5", login=Login.INHERIT)
    look = {"run": f"ls -A {own}; env"}

    async def main() -> None:
        async with (
            claude(tmp_path / "run", model=model, user_home=own) as real,
            real.talk(look, {"say": "Done."}, name="mine", model=provider(login=Login.INHERIT)) as talk,
        ):
            await talk.session.turn("Go on.")
            (output,) = outputs(talk.of(ToolEnded))
            assert (talk.said, output.splitlines()[0], token in output) == (["Done."], ".credentials.json", False)

    run(main)


@pytest.mark.requirement("attempt.contain")
def test_what_one_session_leaves_in_its_home_no_other_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with claude(tmp_path) as real:
            plant = "for rc in .bashrc .profile .bash_profile; do echo 'touch pwned' >> ~/$rc; done"
            async with real.talk({"run": plant}, {"say": "Left."}, name="first") as first:
                await first.session.turn("Go on.")
                assert [status for _, status in first.deeds] == ["completed"]
            async with real.talk({"run": "ls -a ~"}, {"say": "Seen."}, name="second") as second:
                await second.session.turn("Go on.")
            (seen,) = [event.output for event in second.of(ToolEnded)]
            assert ".bashrc" not in (seen or "")
            assert not (second.workspace / "pwned").exists()

    run(main)
