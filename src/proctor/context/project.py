"""Projection: what one turn gives to an agent, from the messages that an engine assembled. Pure.

What is given is exactly what was assembled and the agent's thread does not hold, in order. It takes one of two forms:
messages, which the runtime converts to the agent's items; or text in the prompt, for an agent that takes no items. If
an agent refused items, the same messages can be projected again as text, with those that it accepted in `held`.
References are quoted in the prompt, except those that the agent takes beside it.

If not everything fits, whole references and messages are left out, in this order: references, the last first and quoted
ones before the others; messages before the newest user turn, the oldest first; the rest of that turn; its user message.
A tool call and its result are left out together. The request is never cut.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Literal

import msgspec

from proctor import canonical
from proctor.context.budget import ASSUMED_RATIO, MESSAGE_BYTES, TokenRatio, message_bytes, most_bytes
from proctor.context.history import History
from proctor.context.payload import Payload, json_text, reduce_payload, utf8_bytes
from proctor.context.reference import Reference, SeparateReference, place_references, quote_reference
from proctor.context.text import CLOSING, OPENING, join_blocks, quote_message, render_quote
from proctor.event.message import CallPart, Message, ResultPart, SummaryPart, UserPart
from proctor.ids import Digest, EntryId

Form = Literal["items", "text"]
"""Whether messages are given as the agent's own items or as text in the prompt."""

DropReason = Literal["is-prompt", "repeated", "text-limit", "token-limit"]
"""Why a message was left out: it is the prompt of this turn, or a second copy; or the prompt text would be too long, or
the turn would add too many tokens to the thread."""


class ProjectionMode(StrEnum):
    """When an agent's thread is given the context."""

    PER_TURN = "per_turn"
    """Each turn gives what the thread lacks."""
    THREAD_BOOTSTRAP = "thread_bootstrap"
    """The context is given once per epoch. A new epoch starts a new thread."""


class ContextProjection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How assembled messages reach the agent's thread."""

    mode: ProjectionMode = ProjectionMode.PER_TURN
    """When the thread is given the context."""
    epoch: str | None = None
    """Identifier of the stable part of the context. It is required in the mode `thread_bootstrap`."""
    fingerprint: str | None = None
    """Digest of the engine's settings that shape the context. Another one starts a new thread, as a new epoch does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The request of this turn."""

    id: EntryId
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionLimits:
    """The most that one turn may give. `text_chars` and `text_bytes` limit the text of the prompt.

    `tokens` limits everything that the turn adds to the thread: system addition, context and request. Tokens are
    estimated with `ratio`. None is no limit.
    """

    text_chars: int | None = None
    text_bytes: int | None = None
    tokens: int | None = None
    ratio: TokenRatio = ASSUMED_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the prompt text, in characters: `prompt_text[start:end]`. `id` is that of the message, reference or
    request that it contains."""

    kind: Literal["message", "reference", "request"]
    id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A message or reference that was left out."""

    kind: Literal["message", "reference"]
    id: str
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What one turn gives to an agent.

    `developer_addition` is for the developer or system role, and None if there is nothing to add. `prompt_text` is the
    prompt of the turn; `spans` cover all of it except the frame of the quoted block. `items` are the messages to give
    as items, empty if they are in the text. `separate` are references to give beside the prompt, and `references` all
    that are given. `assembled_messages` are the engine's, unchanged. `pre_prompt_message_count` is the number of
    messages in the history before the prompt. `sha256` is the digest of everything that the agent is given: the
    addition, the text, the separate references, and ids and content of the items.
    """

    developer_addition: str | None
    prompt_text: str
    items: tuple[Message, ...]
    assembled_messages: tuple[Message, ...]
    pre_prompt_message_count: int
    spans: tuple[Span, ...]
    dropped: tuple[Dropped, ...]
    sha256: Digest
    separate: tuple[SeparateReference, ...] = ()
    references: tuple[Reference, ...] = ()

    @property
    def given(self) -> tuple[EntryId, ...]:
        """Ids of the messages that the agent is given, in order, as items or text."""
        quoted = (EntryId(span.id) for span in self.spans if span.kind == "message")
        return (*(message.id for message in self.items), *quoted)


_Source = Message | Reference | SeparateReference


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A message or reference that can be given. `block` is its text in the prompt, empty if it is not there."""

    source: _Source
    block: str

    @property
    def size_bytes(self) -> int:
        match self.source:
            case SeparateReference(key=key, value=value):
                # The key is in the tag at the beginning and in the one at the end.
                return MESSAGE_BYTES + 2 * utf8_bytes(key) + utf8_bytes(value)
            case Message() as message if not self.block:
                return message_bytes(message)
            case _:
                return utf8_bytes(self.block)


def project(
    assembled_messages: Sequence[Message],
    *,
    original_history: History | Sequence[Message],
    prompt: Prompt,
    system_addition: str | None,
    held: AbstractSet[EntryId],
    limits: ProjectionLimits,
    form: Form,
    payload: Payload | None = None,
    references: Sequence[Reference] = (),
    most_separate_bytes: int | None = None,
) -> Projection:
    """Return what the turn gives to the agent.

    `held` are the entries that the agent's thread contains. `payload` is how much of tool calls is given; the default
    is all of it as items, and its shape as text. `references` are quoted in the prompt, except those of at most
    `most_separate_bytes`, which the agent takes beside it; None if it takes none there.

    >>> message = Message(id=EntryId("r/a#1"), at_ms=0, part=UserPart(text="Hello."))
    >>> projection = project(
    ...     [message],
    ...     original_history=[message],
    ...     prompt=Prompt(id=EntryId("r/a#9"), text="Goodbye."),
    ...     system_addition=None,
    ...     held={EntryId("r/a#1")},
    ...     limits=ProjectionLimits(),
    ...     form="text",
    ... )
    >>> projection.prompt_text, projection.given
    ('Goodbye.', ())
    """
    lacking, left_out = _select(assembled_messages, prompt=prompt, held=held)
    placed = place_references(references, most_separate_bytes=most_separate_bytes)
    beside_messages: tuple[_Source, ...] = (*placed.separate, *placed.quoted)
    sources: tuple[_Source, ...] = (*beside_messages, *lacking)
    to_piece = _ToPiece(lacking, form=form, payload=payload)
    addition = system_addition if system_addition and not system_addition.isspace() else None
    kept, reason = _fill(
        chain(
            ([len(beside_messages) + at for at in group] for group in _keep_order(lacking)),
            ([at] for at in range(len(beside_messages))),
        ),
        lambda at: to_piece(sources[at]),
        room=_Room(limits, prompt=prompt.text, addition=addition or ""),
    )
    if reason is not None:
        left_out += (_dropped(source, reason) for at, source in enumerate(sources) if at not in kept)
    given = [kept[at] for at in sorted(kept)]
    items = tuple(each.source for each in given if isinstance(each.source, Message) and not each.block)
    referred = {each.source.id for each in given if not isinstance(each.source, Message)}
    separate = tuple(each.source for each in given if isinstance(each.source, SeparateReference))
    prompt_text = join_blocks((each.block for each in given), request=prompt.text)
    ends_with_prompt = bool(original_history) and original_history[-1].id == prompt.id
    return Projection(
        developer_addition=addition,
        prompt_text=prompt_text,
        items=items,
        assembled_messages=tuple(assembled_messages),
        pre_prompt_message_count=len(original_history) - ends_with_prompt,
        spans=tuple(_spans(given, prompt=prompt, text_chars=len(prompt_text))),
        dropped=tuple(left_out),
        sha256=digest_given(addition, prompt_text, items, separate),
        separate=separate,
        references=tuple(each for each in references if each.id in referred),
    )


def is_held(message: Message, held: AbstractSet[EntryId]) -> bool:
    """Return whether a thread that contains the entries in `held` contains this message.

    >>> summary = Message(id=EntryId("s1"), at_ms=0, part=SummaryPart(text="", sources=(EntryId("r/a#1"),)))
    >>> is_held(summary, {EntryId("r/a#1")}), is_held(summary, {EntryId("r/a#2")})
    (True, False)
    """
    if message.id in held:
        return True
    match message.part:
        case SummaryPart(sources=sources):
            return bool(sources) and all(source in held for source in sources)
        case _:
            return False


def _select(
    assembled: Sequence[Message], *, prompt: Prompt, held: AbstractSet[EntryId]
) -> tuple[list[Message], list[Dropped]]:
    """Return the messages that the thread lacks, once each, and those that must not be given at all."""
    lacking: dict[EntryId, Message] = {}
    dropped: list[Dropped] = []
    for message in assembled:
        if message.id == prompt.id:
            dropped.append(_dropped(message, "is-prompt"))
        elif message.id in lacking:
            dropped.append(_dropped(message, "repeated"))
        elif not is_held(message, held):
            lacking[message.id] = message
    return list(lacking.values()), dropped


class _ToPiece:
    """Convert messages and references to what is given. In text, calls are numbered, so that a result names its call
    without an id, which differs between runs."""

    def __init__(self, messages: Sequence[Message], *, form: Form, payload: Payload | None) -> None:
        self._is_text = form == "text"
        self._payload = payload or (Payload.SHAPE if self._is_text else Payload.WHOLE)
        calls = (message.id for message in messages if isinstance(message.part, CallPart))
        self._numbers = {id_: number for number, id_ in enumerate(calls, 1)}

    def __call__(self, source: _Source) -> _Piece:
        if isinstance(source, SeparateReference):
            return _Piece(source=source, block="")
        if isinstance(source, Reference):
            return _Piece(source=source, block=render_quote(quote_reference(source)))
        if not self._is_text:
            return _Piece(source=reduce_payload(source, self._payload), block="")
        number = self._numbers.get(source.part.call if isinstance(source.part, ResultPart) else source.id)
        return _Piece(
            source=source, block=render_quote(quote_message(source, payload=self._payload, call_number=number))
        )


def _keep_order(messages: Sequence[Message]) -> Iterator[list[int]]:
    """Yield the positions of the messages, a call with its result, so that what is left out first is last."""
    groups: dict[EntryId, list[int]] = {}
    newest_user: EntryId | None = None
    calls = {message.id for message in messages if isinstance(message.part, CallPart)}
    for at, message in enumerate(messages):
        key = message.id
        match message.part:
            case ResultPart(call=call) if call in calls:
                key = call
            case UserPart():
                newest_user = key
            case _:
                pass
        groups.setdefault(key, []).append(at)
    if newest_user is not None:
        yield groups.pop(newest_user)
    yield from sorted(groups.values(), key=min, reverse=True)


class _Room:
    """What still fits. None is no limit."""

    def __init__(self, limits: ProjectionLimits, *, prompt: str, addition: str) -> None:
        fixed_bytes = utf8_bytes(prompt) + utf8_bytes(addition)
        # An argument of a command has an escape of six bytes for a lone surrogate.
        prompt_bytes = len(prompt.encode(errors="backslashreplace"))
        self._chars = None if limits.text_chars is None else limits.text_chars - len(prompt)
        self._text_bytes = None if limits.text_bytes is None else limits.text_bytes - prompt_bytes
        self._bytes = None if limits.tokens is None else most_bytes(limits.tokens, ratio=limits.ratio) - fixed_bytes
        # It is ASCII.
        self._frame_chars = len(OPENING) + len(CLOSING)

    def take(self, pieces: Collection[_Piece]) -> DropReason | None:
        """Use room for all the pieces; if they do not fit, use none and return the limit that they exceed."""
        chars = sum(len(piece.block) for piece in pieces)
        frame_chars = self._frame_chars if chars else 0
        text_bytes = 0 if self._text_bytes is None else sum(utf8_bytes(piece.block) for piece in pieces)
        if chars and self._chars is not None and chars + frame_chars > self._chars:
            return "text-limit"
        if text_bytes and self._text_bytes is not None and text_bytes + frame_chars > self._text_bytes:
            return "text-limit"
        if self._bytes is not None:
            size_bytes = frame_chars + sum(piece.size_bytes for piece in pieces)
            if size_bytes > self._bytes:
                return "token-limit"
            self._bytes -= size_bytes
        if self._chars is not None:
            self._chars -= chars + frame_chars
        if self._text_bytes is not None:
            self._text_bytes -= text_bytes + frame_chars
        self._frame_chars -= frame_chars
        return None


def _fill(
    groups: Iterable[list[int]], to_piece: Callable[[int], _Piece], *, room: _Room
) -> tuple[dict[int, _Piece], DropReason | None]:
    """Return the pieces of the groups before the first that does not fit, by position, and the limit it exceeds."""
    kept: dict[int, _Piece] = {}
    for group in groups:
        pieces = {at: to_piece(at) for at in group}
        if (reason := room.take(pieces.values())) is not None:
            return kept, reason
        kept.update(pieces)
    return kept, None


def _spans(given: Sequence[_Piece], *, prompt: Prompt, text_chars: int) -> Iterator[Span]:
    at = len(OPENING)
    for piece in given:
        if piece.block:
            end = at + len(piece.block)
            yield Span(kind=_kind(piece.source), id=piece.source.id, start=at, end=end)
            at = end
    yield Span(kind="request", id=prompt.id, start=text_chars - len(prompt.text), end=text_chars)


def _dropped(source: _Source, reason: DropReason) -> Dropped:
    return Dropped(kind=_kind(source), id=source.id, reason=reason)


def _kind(source: _Source) -> Literal["message", "reference"]:
    return "message" if isinstance(source, Message) else "reference"


def digest_given(
    addition: str | None, prompt_text: str, items: Sequence[Message], separate: Sequence[SeparateReference] = ()
) -> Digest:
    """Return the digest of what the agent is given. The times of the messages are not part of it."""
    text = canonical.digest_bytes(prompt_text.encode("utf-8", "surrogatepass"))
    beside = [[each.key, each.value] for each in separate]
    given = json_text(
        [addition, text, [[message.id, message.part] for message in items], *([beside] if beside else [])]
    )
    return canonical.digest_bytes(given.encode("utf-8", "surrogatepass"))
