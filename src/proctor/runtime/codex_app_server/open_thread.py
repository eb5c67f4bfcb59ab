"""The request that opens a session's thread: start, resume or fork."""

from typing import Any

from proctor.runtime.base import SessionRequest
from proctor.runtime.codex.home import PROVIDER, thread_settings
from proctor.runtime.codex_app_server.tools import tool_definitions
from proctor.runtime.conversion import clean


def opening_request(request: SessionRequest) -> tuple[str, dict[str, Any]]:
    """Return the method and its parameters.

    An existing thread keeps the tools that it was started with, and Codex ignores others. So they are not sent again:
    the caller resumes or forks a thread with the same tools only.
    """
    params = thread_params(request)
    existing_thread = {
        # Otherwise the reply contains all turns. They are read page by page instead.
        "excludeTurns": True,
        # Otherwise the temporary folder of the previous session stays writable (seen with 0.163).
        "runtimeWorkspaceRoots": [str(request.workspace), str(request.tmp)],
    }
    if request.resume is not None:
        del params["ephemeral"]
        return "thread/resume", {**params, **existing_thread, "threadId": request.resume}
    if request.fork is not None:
        through = {} if request.fork_through is None else {"lastTurnId": request.fork_through}
        return "thread/fork", {**params, **existing_thread, "threadId": request.fork, **through}
    if request.tools:
        params["dynamicTools"] = tool_definitions(request.tools)
    return "thread/start", params


def thread_params(request: SessionRequest) -> dict[str, Any]:
    """Return the parameters of thread/start."""
    instructions = {} if request.instructions is None else {"developerInstructions": clean(request.instructions)}
    return {
        "cwd": str(request.workspace),
        "ephemeral": not request.is_persistent,
        "model": request.model.name,
        "modelProvider": PROVIDER,
        "sandbox": request.sandbox.value,
        # Codex always asks, and Proctor answers by policy, so that each denial is recorded.
        "approvalPolicy": "on-request",
        "config": thread_settings(request),
        **instructions,
    }
