"""How a session comes by its thread: a new one, one that is taken up again, or one with the history of another."""

from typing import Any

from proctor.errors import InputError
from proctor.runtime.base import SessionAsk
from proctor.runtime.codex.home import PROVIDER, thread_settings
from proctor.runtime.codex_app_server.tools import offered


def opening(ask: SessionAsk) -> tuple[str, dict[str, Any]]:
    """The request and its parameters."""
    params = thread_params(ask)
    taken_up = {
        # Turns are paged by requests of their own; without this the reply holds all of them.
        "excludeTurns": True,
        # Else the temporary folder of the session before stays writable (seen with 0.163).
        "runtimeWorkspaceRoots": [str(ask.workspace), str(ask.tmp)],
    }
    if ask.tools and (ask.resume or ask.fork) is not None:
        # It would take them without a word and not offer them.
        raise InputError("spec.unsupported", "Codex takes tools for a new thread only, not for one with a history")
    if ask.resume is not None:
        del params["ephemeral"]
        return "thread/resume", {**params, **taken_up, "threadId": ask.resume}
    if ask.fork is not None:
        return "thread/fork", {**params, **taken_up, "threadId": ask.fork}
    if ask.tools:
        params["dynamicTools"] = offered(ask.tools)
    return "thread/start", params


def thread_params(ask: SessionAsk) -> dict[str, Any]:
    """thread/start."""
    return {
        "cwd": str(ask.workspace),
        "ephemeral": not ask.is_persistent,
        "model": ask.model.name,
        "modelProvider": PROVIDER,
        "sandbox": ask.sandbox.value,
        # The agent is told to ask, and the policy answers, so that a denial is evidence.
        "approvalPolicy": "on-request",
        "config": thread_settings(ask),
    }
