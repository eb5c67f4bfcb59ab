"""Secrets that a caller passes to a session or a pool reach neither its events nor its evidence."""

from pathlib import Path

import pytest

import proctor
from tests.api.talk import bounded, script

VALUE = "tenant-7-correct-horse"


def files_with(folder: Path, text: str) -> list[str]:
    return [str(file) for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


@pytest.mark.real_agent
@pytest.mark.requirement("evidence.redaction")
@pytest.mark.requirement("surface.api")
@pytest.mark.parametrize("kind", ["value", "variable", "file"])
def test_secrets_of_a_session_are_masked_in_events_and_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    steps = script(tmp_path, {"say": {"text": f"The tenant has {VALUE}.", "chunk_chars": 4}})
    (tmp_path / "keys").write_text(VALUE)
    monkeypatch.setenv("TENANT", VALUE)
    choices: dict[str, list[str | Path] | dict[str, str]] = {
        "value": {"TENANT": VALUE},
        "variable": ["TENANT"],
        "file": [tmp_path / "keys"],
    }
    name = "keys" if kind == "file" else "TENANT"
    root = tmp_path / "root"

    async def talk() -> str | None:
        async with proctor.session(script=steps, evidence="disk", root=root, secrets=choices[kind]) as s:
            events = [event async for event in s.say(f"What does the tenant with {VALUE} have?")]
            assert VALUE not in repr(events)
            return s.answer

    assert bounded(talk) == f"The tenant has [redacted:{name}]."
    assert files_with(root, VALUE) == []
    assert files_with(root, f"[redacted:{name}]") != []


@pytest.mark.real_agent
@pytest.mark.requirement("evidence.redaction")
def test_secrets_of_a_pool_are_masked_in_its_sessions(tmp_path: Path) -> None:
    steps = script(tmp_path, {"say": f"The tenant has {VALUE}."})

    async def talk() -> str | None:
        async with (
            proctor.pool(evidence="disk", root=tmp_path / "root", secrets={"TENANT": VALUE}) as pool,
            pool.session(script=steps) as s,
        ):
            await s.say("What does the tenant have?")
            return s.answer

    assert bounded(talk) == "The tenant has [redacted:TENANT]."
    assert files_with(tmp_path / "root", VALUE) == []


@pytest.mark.real_agent
@pytest.mark.requirement("evidence.redaction")
def test_secret_of_a_caller_leaves_a_variable_of_the_same_name_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_TOKEN", "production-battery-staple")
    steps = script(tmp_path, {"say": f"One has {VALUE}, one has production-battery-staple."})

    async def talk() -> str | None:
        async with proctor.session(
            script=steps, evidence="disk", root=tmp_path / "root", secrets={"DB_TOKEN": VALUE}
        ) as s:
            await s.say("What do they have?")
            return s.answer

    answer = bounded(talk) or ""
    assert VALUE not in answer
    assert "battery" not in answer


@pytest.mark.parametrize("secrets", [["NO_SUCH_VARIABLE"], {"TENANT": "short"}, ["not a name, but a value"]])
def test_secret_that_cannot_be_masked_is_refused_without_its_value(
    tmp_path: Path, secrets: list[str] | dict[str, str]
) -> None:
    async def talk() -> None:
        async with proctor.session(script=script(tmp_path, {"say": "Hello."}), secrets=secrets):
            pass

    with pytest.raises(proctor.InputError) as caught:
        bounded(talk)
    assert (caught.value.key or "").startswith("secrets")
    assert "short" not in str(caught.value).replace("too short", "")
    assert "but a value" not in str(caught.value)
