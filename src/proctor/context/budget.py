"""How many tokens of context fit, and estimates of them without a tokenizer. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from proctor.context.payload import json_text, utf8_bytes
from proctor.event.message import CallPart, Message, ResultPart
from proctor.event.row import RatioSource

DEFAULT_WINDOW_TOKENS: Final = 128_000
"""The window where neither the agent nor the configuration states one."""

RESERVE_TOKENS: Final = 20_000
"""Tokens kept free for the request, the answer and tool calls."""

MOST_BYTES_PER_TOKEN: Final = 6.0
FEWEST_BYTES_PER_TOKEN: Final = 1.5
ASSUMED_BYTES_PER_TOKEN: Final = 3.0

ASSUMED_SAMPLE_BYTES: Final = 30_000
"""How much the assumed ratio weighs: as much as a measurement of this size."""

MESSAGE_BYTES: Final = 12
"""What a message adds to its text: an agent names the role of each."""


class WindowSource(StrEnum):
    """Where the size of a context window comes from."""

    AGENT = "agent"
    """The agent reported it."""

    CONFIG = "config"
    """The configuration of the session states it."""

    DEFAULT = "default"
    """It is unknown, and a default is used."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How many tokens of context fit into one turn."""

    window: int
    """Size of the context window, in tokens."""

    reserve: int
    """Tokens of the window that context must leave free, with the agent's fixed prompt where that was measured."""

    history: int
    """Tokens that an engine may fill: the window without the reserve, never less than 0."""

    source: WindowSource
    """Where the size of the window comes from."""


def budget_for(
    *, reported_window: int | None, configured_window: int | None, fixed_prompt_tokens: int | None
) -> Budget:
    """Return the budget of a turn. A window of 0 or less counts as not stated.

    `fixed_prompt_tokens` is the measured size of the agent's own prompt and tools; None if unknown.

    >>> budget_for(reported_window=None, configured_window=60_000, fixed_prompt_tokens=9_000)
    Budget(window=60000, reserve=29000, history=31000, source=<WindowSource.CONFIG: 'config'>)
    """
    window, source = DEFAULT_WINDOW_TOKENS, WindowSource.DEFAULT
    if configured_window is not None and configured_window > 0:
        window, source = configured_window, WindowSource.CONFIG
    if reported_window is not None and reported_window > 0:
        window, source = reported_window, WindowSource.AGENT
    reserve = RESERVE_TOKENS + max(0, fixed_prompt_tokens or 0)
    return Budget(window=window, reserve=reserve, history=max(0, window - reserve), source=source)


class TokenRatio(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How many bytes of UTF-8 are one token, and the measurements behind it."""

    sample_bytes: int = 0
    """Bytes of all measurements."""

    sample_tokens: float = 0.0
    """Tokens of all measurements. Of a measurement beyond 1.5 to 6 bytes per token, as many as that range allows."""

    @property
    def bytes_per_token(self) -> float:
        """The ratio, from 1.5 to 6. Without measurements it is 3; then it approaches what was measured."""
        tokens = ASSUMED_SAMPLE_BYTES / ASSUMED_BYTES_PER_TOKEN + self.sample_tokens
        ratio = (ASSUMED_SAMPLE_BYTES + self.sample_bytes) / tokens
        return min(MOST_BYTES_PER_TOKEN, max(FEWEST_BYTES_PER_TOKEN, ratio))

    @property
    def source(self) -> RatioSource:
        """Whether it was measured."""
        return "measured" if self.sample_bytes else "assumed"


ASSUMED_RATIO: Final = TokenRatio()
"""The ratio before anything was measured."""


def calibrate(ratio: TokenRatio, *, added_bytes: int, added_tokens: int) -> TokenRatio:
    """Return the ratio after a measurement: a thread grew by `added_bytes`, and its next request by `added_tokens`.

    Take the difference of two requests of one thread, so that the agent's own prompt is in neither number. If either
    did not grow, nothing was measured.

    >>> ratio = calibrate(ASSUMED_RATIO, added_bytes=90_000, added_tokens=20_000)
    >>> ratio.bytes_per_token, ratio.source
    (4.0, 'measured')
    >>> calibrate(ratio, added_bytes=100, added_tokens=0) == ratio
    True
    """
    if added_bytes <= 0 or added_tokens <= 0:
        return ratio
    tokens = min(max(added_tokens, added_bytes / MOST_BYTES_PER_TOKEN), added_bytes / FEWEST_BYTES_PER_TOKEN)
    return TokenRatio(sample_bytes=ratio.sample_bytes + added_bytes, sample_tokens=ratio.sample_tokens + tokens)


class TokenEstimate(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An estimated number of tokens."""

    tokens: int
    """The number, rounded up."""

    bytes_per_token: float
    """The ratio that it was estimated with."""

    source: RatioSource
    """Whether the ratio was measured."""


def estimate_tokens(size_bytes: int, *, ratio: TokenRatio) -> TokenEstimate:
    """Estimate the tokens of a text from its size in UTF-8.

    >>> estimate_tokens(10, ratio=ASSUMED_RATIO)
    TokenEstimate(tokens=4, bytes_per_token=3.0, source='assumed')
    """
    bytes_per_token = ratio.bytes_per_token
    return TokenEstimate(
        tokens=-int(-size_bytes // bytes_per_token), bytes_per_token=bytes_per_token, source=ratio.source
    )


def most_bytes(tokens: int, *, ratio: TokenRatio) -> int:
    """Return the largest size that is estimated as at most so many tokens.

    >>> most_bytes(4, ratio=ASSUMED_RATIO)
    12
    """
    return int(max(0, tokens) * ratio.bytes_per_token)


def message_bytes(message: Message) -> int:
    """Return how many bytes a message adds to a thread: its text, the tool's name, and its input as JSON.

    >>> from proctor.event.message import UserPart
    >>> from proctor.ids import EntryId
    >>> message_bytes(Message(id=EntryId("r/a#1"), at_ms=0, part=UserPart(text="é")))
    14
    """
    match message.part:
        case CallPart(name=name, input=input_):
            size = utf8_bytes(name) + (0 if input_ is None else utf8_bytes(json_text(input_)))
        case ResultPart(name=name, output=output):
            size = utf8_bytes(name) + utf8_bytes(output or "")
        case part:
            size = utf8_bytes(part.text)
    return MESSAGE_BYTES + size


def estimate_messages(messages: Iterable[Message], *, ratio: TokenRatio) -> TokenEstimate:
    """Estimate the tokens of messages. Only they count, so nothing of the agent's own prompt does."""
    return estimate_tokens(sum(map(message_bytes, messages)), ratio=ratio)
