"""Which step of a script a request gets: requests in, answers out, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from proctor.canonical import digest_bytes
from proctor.ids import Digest
from proctor.model.dialects import answer, express
from proctor.model.script import Call, Fault, Patch, Run, Script, Step, ToolIntent, Usage
from proctor.model.wire import Ask, Failure, Part, Pause, Reply, Text, Thought, Tokens, ToolCall, offered

_BYTES_PER_TOKEN: Final = 4
_SIDE_WORDS: Final = "Noted."


class Kind(StrEnum):
    """What a request was to the script."""

    MAIN = "main"  # took the next step
    RETRY = "retry"  # came again for the step it had already been given
    SIDE = "side"  # not of the main loop; takes no step
    FAULT = "fault"  # got a scripted fault
    EXHAUSTED = "exhausted"  # came after the last step
    REFUSED = "refused"  # cannot be answered: not of the wire, or without the tool its step needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An HTTP error. `body` is sent as it is; where there is none the wire words the message."""

    status: int
    code: str
    message: str
    body: bytes | None = None
    retry_after_s: int | None = None
    delay_s: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """No answer until the client goes."""


Answer = Reply | Refusal | Hang


@dataclass(slots=True, kw_only=True)
class Served:
    """What one request got. `is_complete` is set by whoever delivers it, when all of a reply is delivered."""

    kind: Kind
    answer: Answer
    digest: Digest
    item_count: int
    step: int | None = None
    try_number: int = 0
    is_complete: bool = False


class Player:
    """A script and how far it has been played. `key` marks the ids of its replies, so that no two players share one."""

    def __init__(self, key: str, script: Script) -> None:
        self._tag = digest_bytes(key.encode())[7:15]
        self._steps = script.steps
        self._reply_count = 0
        self._step = -1
        self._try = 0
        self._last: Served | None = None

    def serve(self, ask: Ask) -> Served:
        """The answer to a request. A side request leaves the script where it is."""
        digest = ask.digest_of(len(ask.items))
        # The main loop of an agent offers tools; titles, summaries and compactions are mostly asked for without.
        if not ask.tools or ask.is_side:
            reply = self._reply(ask, parts=(Text(text=_SIDE_WORDS),))
            return Served(kind=Kind.SIDE, answer=reply, digest=digest, item_count=len(ask.items))
        if self._last is not None and _is_retry(ask, digest, self._last):
            self._try += 1
        else:
            self._step, self._try = min(self._step + 1, len(self._steps)), 0
        kind, answer = self._answer(ask)
        step = None if kind is Kind.EXHAUSTED else self._step
        self._last = Served(
            kind=kind, answer=answer, digest=digest, item_count=len(ask.items), step=step, try_number=self._try
        )
        return self._last

    def _answer(self, ask: Ask) -> tuple[Kind, Answer]:
        if self._step == len(self._steps):
            message = f"the script is exhausted: all of its steps ({self._step}) were played and one more was asked for"
            return Kind.EXHAUSTED, Refusal(status=400, code="script_exhausted", message=message)
        step = self._steps[self._step].of_try(self._try)
        if step.replaces_reply:
            return Kind.FAULT, _fault(step)
        parts: list[Part] = []
        for intent in step.intents():
            if isinstance(intent, Text):
                parts += answer(intent, ask.tools) or (intent,)
            elif not isinstance(intent, ToolIntent):
                parts.append(intent)
            elif calls := express(intent, ask.tools):
                parts += calls
            else:
                message = f"step {self._step} wants {_name(intent)}, which no tool offered does: {offered(ask.tools)}"
                return Kind.REFUSED, Refusal(status=400, code="tool_not_offered", message=message)
        if isinstance(step.fault, Fault):
            return Kind.FAULT, self._reply(ask, parts=parts, usage=step.usage, fault=step.fault)
        return (Kind.RETRY if self._try else Kind.MAIN), self._reply(ask, parts=parts, usage=step.usage)

    def _reply(
        self, ask: Ask, *, parts: Sequence[Part], usage: Usage | None = None, fault: Fault | None = None
    ) -> Reply:
        self._reply_count += 1
        failed = None if fault is None else fault.failed
        return Reply(
            serial=f"{self._tag}_{self._reply_count}",
            model=ask.model,
            parts=tuple(parts),
            tokens=_tokens(ask, parts, usage or Usage()),
            break_off=None if fault is None else fault.break_off,
            failure=None if failed is None else Failure(code=failed.code, message=failed.message),
        )


def _is_retry(ask: Ask, digest: Digest, last: Served) -> bool:
    if digest == last.digest:
        return True
    # What a broken-off reply had finished is in the conversation when it is asked for again;
    # new words of the user's in it make another request.
    return (
        not last.is_complete
        and ask.digest_of(last.item_count) == last.digest
        and not any(item.is_users for item in ask.items[last.item_count :])
    )


def _fault(step: Step) -> Refusal | Hang:
    if not isinstance(step.fault, Fault) or step.fault.status is None:
        return Hang()
    fault = step.fault
    match fault.body:
        case None:
            body = None
        case str(text):
            body = text.encode()
        case fields:
            body = msgspec.json.encode(fields)
    return Refusal(
        status=step.fault.status,
        code="scripted_fault",
        message=f"a scripted fault: HTTP {fault.status}",
        body=body,
        retry_after_s=fault.retry_after,
        delay_s=sum(intent.delay_s for intent in step.intents() if isinstance(intent, Pause)),
    )


def _name(intent: ToolIntent) -> str:
    match intent:
        case Run():
            return "`run`"
        case Patch():
            return "`patch`"
        case Call(tool=tool):
            return f"`call` of {tool}"


def _tokens(ask: Ask, parts: Sequence[Part], usage: Usage) -> Tokens:
    """What the script claims, and for the rest a guess by size that is the same each time."""
    thought = sum(len(part.text.encode()) for part in parts if isinstance(part, Thought))
    said = sum(len(part.text.encode()) * part.repeat for part in parts if isinstance(part, Text))
    called = sum(len(part.payload.encode()) for part in parts if isinstance(part, ToolCall))
    return Tokens(
        input=_either(usage.input, ask.input_bytes),
        cached=usage.cached or 0,
        output=_either(usage.output, thought + said + called),
        reasoning=_either(usage.reasoning, thought),
    )


def _either(claimed: int | None, size_bytes: int) -> int:
    return -(-size_bytes // _BYTES_PER_TOKEN) if claimed is None else claimed
