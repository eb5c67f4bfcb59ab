"""Hooks of the caller: they see the prompt as the agent will get it, and every compaction."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionNotice:
    """A compaction that is about to begin or has ended."""

    backend: str
    """Id of the engine, or of the runtime for the agent's own compaction."""
    owns_compaction: bool
    """Whether an engine owns the compaction of the session."""
    trigger: str
    """`manual` if it was requested, `auto` if the agent began it, `unknown` if the agent does not say."""
    ok: bool | None = None
    """Whether it succeeded. None before its end, or if it is unknown."""
    tokens_before: int | None = None
    """Tokens of the context before. None if they are unknown."""
    tokens_after: int | None = None
    """Tokens of the context after. None before its end, or if they are unknown."""


CompactionHook = Callable[[CompactionNotice], Awaitable[None]]
"""Observes a compaction. It changes nothing."""


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


async def observe_compaction(
    name: str, hooks: Sequence[CompactionHook], notice: CompactionNotice
) -> EngineError | None:
    """Call the hooks in order. Returns why one of them failed; None if none did. `name` is the parameter's."""
    problem: EngineError | None = None
    for hook in hooks:
        try:
            answer = await callbacks.call(
                lambda hook=hook: hook(notice),  # type: ignore[misc]
                read=lambda _: True,
                deadline_s=HOOK_S,
                on_given_up=lambda: None,
            )
        except callbacks.CallbackError as error:
            problem = EngineError("engine.hook", f"`{name}` raised {error}")
        else:
            if answer is None:
                problem = EngineError("engine.hook", f"`{name}` did not answer within {HOOK_S:g} s")
    return problem


def _read(value: object, draft: PromptDraft) -> PromptDraft:
    if value is None:
        return draft
    if not isinstance(value, PromptDraft):
        raise TypeError(f"it returned a {type(value).__name__}: return a PromptDraft or None")
    texts: tuple[object, object] = (value.prompt, value.instructions)
    if not isinstance(texts[0], str) or not isinstance(texts[1], str | None):
        raise TypeError("`prompt` is not a text, or `instructions` is neither a text nor None")
    return dataclasses.replace(draft, prompt=value.prompt, instructions=value.instructions)
