"""Arguments of a wrong type raise an InputError at the call that names the parameter and what is expected."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proctor
from tests.api.talk import bounded, script

pytestmark = [pytest.mark.trust, pytest.mark.requirement("surface.api")]


def accept(_: proctor.Question) -> proctor.Decision:
    return proctor.Decision.ACCEPT


async def decide(_: proctor.Question) -> proctor.Decision:
    return proctor.Decision.ACCEPT


def shout(_: Any) -> str:
    return "HEY"


async def shout_async(_: Any) -> str:
    return "HEY"


def tool(**changes: Any) -> proctor.Tool:
    return proctor.Tool(**{"name": "t", "description": "d", "schema": {}, "call": shout_async, **changes})


# For each parameter: a value of a wrong type, the key in the error, and a part of what is expected.
SESSION: list[tuple[dict[str, Any], str, str]] = [
    ({"runtime": None}, "runtime", "a string"),
    ({"workspace": 5}, "workspace", "a path or None"),
    ({"model": {"provider": "openai"}}, "model", "a Model or provider/name"),
    ({"login": True}, "login", "a string or None"),
    ({"sandbox": "none"}, "sandbox", "read-only, workspace-write, danger-full-access"),
    ({"sandbox": None}, "sandbox", "read-only, workspace-write, danger-full-access"),
    ({"approvals": "maybe"}, "approvals", "deny, accept, workspace"),
    ({"approvals": accept}, "approvals", "not a synchronous function"),
    ({"approvals": True}, "approvals", "an async function that takes a Question"),
    ({"approval_deadline": None}, "approval_deadline", '"5m"'),
    ({"approval_deadline": "soon"}, "approval_deadline", "soon"),
    ({"tools": tool()}, "tools", "a list of proctor.Tool"),
    ({"tools": [shout]}, "tools[0]", "proctor.Tool"),
    ({"tools": [tool(name=5)]}, "tools[0].name", "a string"),
    ({"tools": [tool(description=None)]}, "tools[0].description", "a string"),
    ({"tools": [tool(schema="{}")]}, "tools[0].schema", "a mapping"),
    ({"tools": [tool(), tool(call=shout)]}, "tools[1].call", "not a synchronous function"),
    ({"tool_deadline": [5]}, "tool_deadline", '"5m"'),
    ({"limits": {"turn": "5m"}}, "limits", 'proctor.Limits, as in Limits(turn="5m")'),
    ({"limits": None}, "limits", "proctor.Limits"),
    ({"evidence": "tape"}, "evidence", "off, memory, disk"),
    ({"evidence": True}, "evidence", "off, memory, disk"),
    ({"root": 7}, "root", "a path or None"),
    ({"script": {"version": 1}}, "script", "a path or None"),
    ({"options": ["x"]}, "options", "a mapping"),
    ({"env": {"DEPTH": 5}}, "env", "a mapping of strings to strings"),
    ({"env": "A=b"}, "env", "a mapping of strings to strings"),
    ({"secrets": "TENANT"}, "secrets", "a list of names of variables"),
    ({"secrets": [5]}, "secrets[0]", "names of variables"),
    ({"secrets": {"TENANT": 12345678}}, "secrets", "a mapping of strings to strings"),
    ({"profile": "theirs"}, "profile", "fresh, mine"),
    ({"id": 5}, "id", "a string or None"),
    ({"thread": 5}, "thread", "a string or None"),
    ({"ephemeral": "yes"}, "ephemeral", "True or False"),
    ({"context": "window"}, "context", "proctor.Context"),
    ({"context": proctor.Context(mode="perturn")}, "context.mode", "one of per_turn, thread_bootstrap; not 'perturn'"),  # type: ignore[arg-type]
    ({"context": proctor.Context(policy="lax")}, "context.policy", "one of degrade, strict"),  # type: ignore[arg-type]
    ({"context": proctor.Context(tools="all")}, "context.tools", "one of elided, shape, whole"),  # type: ignore[arg-type]
    ({"context": proctor.Context(options=5)}, "context.options", "a mapping"),  # type: ignore[arg-type]
    ({"context": proctor.Context(complete=shout)}, "context.complete", "not a synchronous function"),  # type: ignore[arg-type]
    ({"before_prompt_build": [shout]}, "before_prompt_build[0]", "not a synchronous function"),
    ({"before_compaction": shout_async}, "before_compaction", "a list of async functions"),
    ({"after_compaction": [5]}, "after_compaction[0]", "an async function"),
]
RUN: list[tuple[dict[str, Any], str, str]] = [
    ({"spec": 5}, "spec", "a path, a Campaign or a mapping"),
    ({"on": "codex_exec"}, "on", "a list of ids of runtimes"),
    ({"select": ["quick"]}, "select", "proctor.Select"),
    ({"root": 5}, "root", "a path or None"),
    ({"decide": accept}, "decide", "not a synchronous function"),
    ({"approval_deadline": None}, "approval_deadline", '"5m"'),
    ({"resume": 5}, "resume", "a string or None"),
    ({"allow_unjudgeable": "yes"}, "allow_unjudgeable", "True or False"),
]


def assert_refused(call: Callable[[], Any], *, function: str, key: str, expected: str) -> None:
    with pytest.raises(proctor.InputError) as caught:
        call()
    assert (caught.value.code, caught.value.where) == ("spec.type", f"{function}: {key}")
    assert expected in caught.value.what


@pytest.mark.parametrize(("wrong", "key", "expected"), SESSION)
def test_wrong_argument_of_session_or_pool_is_refused_at_the_call(
    wrong: dict[str, Any], key: str, expected: str
) -> None:
    asked: dict[str, Any] = {"script": "script.yaml", **wrong}
    if wrong.get("approval_deadline") != "soon":  # a text is read when the session is opened
        assert_refused(lambda: proctor.session(**asked), function="session", key=key, expected=expected)
    if key in inspect.signature(proctor.pool).parameters and key != "script":
        assert_refused(lambda: proctor.pool(**wrong), function="pool", key=key, expected=expected)


@pytest.mark.parametrize(("wrong", "key", "expected"), RUN)
def test_wrong_argument_of_run_is_refused(wrong: dict[str, Any], key: str, expected: str) -> None:
    asked: dict[str, Any] = {"spec": "no-such-spec.yaml", **wrong}

    async def call() -> None:
        await proctor.run(**asked)

    assert_refused(lambda: bounded(call), function="run", key=key, expected=expected)


def test_wrong_arguments_are_tested_for_every_parameter() -> None:
    tested: dict[Callable[..., Any], set[str]] = {
        proctor.session: {key for wrong, _, _ in SESSION for key in wrong},
        proctor.run: {key for wrong, _, _ in RUN for key in wrong},
        proctor.Pool.session: {key for wrong, _, _ in SESSION for key in wrong},
        proctor.pool: {key for wrong, _, _ in SESSION for key in wrong},
    }
    for function, keys in tested.items():
        assert {*inspect.signature(function).parameters} - keys - {"self"} == set()


def test_session_without_model_or_script_explains_the_two_ways_to_get_one() -> None:
    with pytest.raises(proctor.InputError) as caught:
        proctor.session()
    assert (caught.value.code, caught.value.key) == ("spec.missing-key", "model")
    suggestion = caught.value.suggestion or ""
    assert 'model="openai/gpt-5.5"' in suggestion
    assert 'login="api-key"' in suggestion
    assert 'script="FILE"' in suggestion


def test_async_callbacks_of_every_kind_are_accepted() -> None:
    class Answering:
        async def __call__(self, question: proctor.Question) -> proctor.Decision:
            return await decide(question)

        async def method(self, question: proctor.Question) -> proctor.Decision:
            return await decide(question)

    for callback in (decide, functools.partial(decide), Answering(), Answering().method):
        proctor.session(script="script.yaml", approvals=callback)


@pytest.mark.real_agent
def test_wrong_arguments_of_an_open_session_are_refused_and_it_goes_on(tmp_path: Path) -> None:
    steps = script(tmp_path, {"say": "Hello."})

    wrong_arguments: list[tuple[dict[str, Any], str, str]] = [
        ({"id": 5}, "id", "a string or None"),
        ({"limits": {"turn": "5m"}}, "limits", "proctor.Limits"),
    ]

    async def talk() -> str | None:
        async with proctor.pool() as pool:
            for wrong, key, expected in wrong_arguments:
                asked: dict[str, Any] = {"script": steps, **wrong}
                ask = functools.partial(pool.session, **asked)
                assert_refused(ask, function="session", key=key, expected=expected)
            with pytest.raises(proctor.InputError, match="neither"):
                pool.session()
            async with pool.session(script=steps) as s:
                for call, function, key in [
                    (lambda: s.say(5), "say", "prompt"),  # type: ignore[arg-type]
                    (lambda: s.say("a\ud800"), "say", "prompt"),
                    (lambda: s.say("Hi", output_schema="{}"), "say", "output_schema"),  # type: ignore[arg-type]
                    (lambda: s.events(after="1"), "events", "after"),  # type: ignore[arg-type]
                ]:
                    assert_refused(call, function=function, key=key, expected="expected")
                with pytest.raises(proctor.InputError, match="expected a string"):
                    await s.steer(5)  # type: ignore[arg-type]
                await s.say("Hello?")
                return s.answer

    assert bounded(talk) == "Hello."


def test_a_session_that_was_opened_before_still_needs_a_model_and_says_so() -> None:
    with pytest.raises(proctor.InputError, match="an `id` does not bring back how the session was opened before"):
        proctor.session(id="shop")
