"""Hooks of the caller that see the prompt as the agent will get it."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.errors import EngineError
from proctor.event.message import Message
from proctor.event.row import FailurePolicy
from proctor.runtime import callbacks

HOOK_S: Final = 30.0
"""How long a hook may take, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptDraft:
    """What the agent is about to be given. A hook may return another `prompt` and other `instructions`."""

    prompt: str
    """The text of the prompt, with what is quoted in it."""
    instructions: str | None
    """Instructions for the developer or system role. None for none."""
    messages: tuple[Message, ...]
    """Messages that the thread is given before the prompt."""


PromptHook = Callable[[PromptDraft], Awaitable[PromptDraft | None]]
"""Sees what the agent is about to be given, and returns it changed, or None to leave it as it is."""


async def build_prompt(
    draft: PromptDraft, *, hooks: Sequence[PromptHook], policy: FailurePolicy
) -> tuple[PromptDraft, EngineError | None]:
    """Call the hooks in order. A hook that raises or hangs changes nothing.

    Returns the draft, and why a hook failed. Raises EngineError for that under the policy `strict`.
    """
    problem: EngineError | None = None
    for hook in hooks:
        failure = f"`before_prompt_build` did not answer within {HOOK_S:g} s"
        changed: PromptDraft | None = None
        try:
            answer = await callbacks.call(
                lambda hook=hook, draft=draft: hook(draft),  # type: ignore[misc]
                read=lambda value, draft=draft: (_read(value, draft),),  # type: ignore[misc]
                deadline_s=HOOK_S,
                on_given_up=lambda: None,
            )
            if answer is not None:
                [changed] = answer
        except callbacks.CallbackError as error:
            failure = f"`before_prompt_build` raised {error}"
        if changed is not None:
            draft = changed
            continue
        problem = EngineError("engine.hook", failure)
        if policy == "strict":
            raise problem
    return draft, problem


def _read(value: object, draft: PromptDraft) -> PromptDraft:
    if value is None:
        return draft
    if not isinstance(value, PromptDraft):
        raise TypeError(f"it returned a {type(value).__name__}: return a PromptDraft or None")
    texts: tuple[object, object] = (value.prompt, value.instructions)
    if not isinstance(texts[0], str) or not isinstance(texts[1], str | None):
        raise TypeError("`prompt` is not a text, or `instructions` is neither a text nor None")
    return dataclasses.replace(draft, prompt=value.prompt, instructions=value.instructions)
