"""How the threads of a runtime take what was said elsewhere: as items, as text in a prompt, or not at all. Pure."""

from dataclasses import dataclass
from typing import Literal

from proctor.runtime.capability import Capabilities

INTAKE_CAPABILITIES = ("takes_history", "takes_instructions", "takes_turn_instructions")
"""A runtime that declares none of these is given nothing: what is said there is only recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadIntake:
    """How a runtime takes the messages that a context engine assembled."""

    form: Literal["items", "text"] | None
    """As the agent's own items, as text in the prompt, or not at all."""
    why_text: str | None = None
    """Why they are text, although the runtime declares that it takes items. None otherwise."""
    is_forgetful: bool = False
    """Whether a turn knows nothing but its prompt, so that every prompt has all of them."""
    reference_bytes: int | None = None
    """The longest document that the agent takes beside a prompt, in bytes. None if it takes none there."""
    prompt_bytes: int | None = None
    """The longest prompt that the agent takes, in bytes. None if no limit is known."""


def intake_of(
    capabilities: Capabilities,
    *,
    refuted: str | None = None,
    is_forgetful: bool = False,
    reference_bytes: int | None = None,
    prompt_bytes: int | None = None,
) -> ThreadIntake:
    """Return how a runtime with these capabilities takes messages.

    `refuted` is why its agent is known not to take items, although the runtime declares that it does.

    >>> intake_of(Capabilities(takes_history=True)).form, intake_of(Capabilities(takes_instructions=True)).form
    ('items', 'text')
    >>> intake_of(Capabilities(thread_start=True)).form, intake_of(Capabilities(), is_forgetful=True).form
    (None, 'text')
    """
    form: Literal["items", "text"] | None = None
    if capabilities.takes_history and refuted is None:
        form = "items"
    elif is_forgetful or any(getattr(capabilities, name) for name in INTAKE_CAPABILITIES):
        form = "text"
    return ThreadIntake(
        form=form,
        why_text=refuted if capabilities.takes_history else None,
        is_forgetful=is_forgetful,
        reference_bytes=reference_bytes,
        prompt_bytes=prompt_bytes,
    )
