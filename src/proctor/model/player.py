"""Play a script: choose the step that answers a request. Requests in, answers out, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from proctor.canonical import digest_bytes
from proctor.ids import Digest
from proctor.model.dialects import DialectError, Dialects, answer, express
from proctor.model.script import Call, Fault, Patch, Run, Script, Step, ToolIntent, Usage
from proctor.model.wire import (
    Failure,
    Part,
    Pause,
    Reasoning,
    Reply,
    ReplyRequest,
    Text,
    Tokens,
    ToolCall,
    format_tools,
)

_BYTES_PER_TOKEN: Final = 4
_SIDE_TEXT: Final = "Noted."


class RequestKind(StrEnum):
    """How a request relates to the script."""

    MAIN = "main"
    """Answered with the next step."""
    RETRY = "retry"
    """A repetition of the previous request; answered with the same step."""
    SIDE = "side"
    """Not part of the agent's main loop, such as a request for a title; uses no step."""
    FAULT = "fault"
    """Answered with a scripted fault."""
    EXHAUSTED = "exhausted"
    """Came after the last step."""
    REFUSED = "refused"
    """Could not be answered: not a valid request, or it does not offer the tool that the step needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An HTTP error as the answer."""

    status: int
    code: str
    message: str
    body: bytes | None = None
    """The body to send unchanged; None renders `code` and `message` in the provider's format."""
    retry_after_s: int | None = None
    delay_s: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """No answer until the client disconnects."""


Answer = Reply | Refusal | Hang


@dataclass(slots=True, kw_only=True)
class ServedReply:
    """The answer to one request."""

    kind: RequestKind
    answer: Answer
    digest: Digest
    """The digest of all conversation items of the request."""
    item_count: int
    """The number of conversation items of the request."""
    step: int | None = None
    """The index of the step, counted from 0; None if no step was used."""
    try_number: int = 0
    """How often this step was requested before."""
    is_complete: bool = False
    """Whether the whole reply was delivered. Set by the caller after delivery."""


class Player:
    """A script and the current position in it. Reply ids are derived from `key`, so that players share none."""

    def __init__(self, key: str, script: Script, *, dialects: Dialects) -> None:
        self._dialects = dialects
        self._tag = digest_bytes(key.encode())[7:15]
        self._steps = script.steps
        self._reply_count = 0
        self._step = -1
        self._try = 0
        self._last: ServedReply | None = None

    def serve(self, request: ReplyRequest) -> ServedReply:
        """Return the answer to a request. A side request does not advance the script."""
        digest = request.digest_of(len(request.items))
        # An agent's main loop offers tools. Requests for titles, summaries and compactions mostly do not.
        if not request.tools or request.is_side:
            reply = self._reply(request, parts=(Text(text=_SIDE_TEXT),))
            return ServedReply(kind=RequestKind.SIDE, answer=reply, digest=digest, item_count=len(request.items))
        if self._last is not None and (self.misfit is not None or _is_retry(request, digest, self._last)):
            # An agent whose request was refused may send another one, with other tools. The step is not skipped.
            self._try += 1
        else:
            self._step, self._try = min(self._step + 1, len(self._steps)), 0
        kind, answer = self._answer(request)
        step = None if kind is RequestKind.EXHAUSTED else self._step
        self._last = ServedReply(
            kind=kind, answer=answer, digest=digest, item_count=len(request.items), step=step, try_number=self._try
        )
        return self._last

    @property
    def misfit(self) -> str | None:
        """Why the current step could not be played with the tools that were offered; None if it could."""
        if self._last is None or self._last.kind is not RequestKind.REFUSED:
            return None
        return self._last.answer.message if isinstance(self._last.answer, Refusal) else None

    def _answer(self, request: ReplyRequest) -> tuple[RequestKind, Answer]:
        if self._step == len(self._steps):
            message = f"the script is exhausted: all steps ({self._step}) were used and the agent made another request"
            return RequestKind.EXHAUSTED, Refusal(status=400, code="script_exhausted", message=message)
        step = self._steps[self._step].for_try(self._try)
        if step.replaces_reply:
            return RequestKind.FAULT, _fault(step)
        parts: list[Part] = []
        for intent in step.intents():
            if isinstance(intent, Text):
                parts += answer(intent, request.tools) or (intent,)
            elif not isinstance(intent, ToolIntent):
                parts.append(intent)
            else:
                calls = self._express(intent, request)
                if isinstance(calls, Refusal):
                    return RequestKind.REFUSED, calls
                parts += calls
        if isinstance(step.fault, Fault):
            return RequestKind.FAULT, self._reply(request, parts=parts, usage=step.usage, fault=step.fault)
        return (RequestKind.RETRY if self._try else RequestKind.MAIN), self._reply(
            request, parts=parts, usage=step.usage
        )

    def _express(self, intent: ToolIntent, request: ReplyRequest) -> tuple[ToolCall, ...] | Refusal:
        needs = f"step {self._step} needs {_name(intent)}, but"
        try:
            calls = express(intent, request.tools, dialects=self._dialects)
        except DialectError as error:
            return Refusal(status=400, code="dialect_failed", message=f"{needs} {error}")
        if not calls:
            message = f"{needs} no offered tool can do that (offered: {format_tools(request.tools)})"
            return Refusal(status=400, code="tool_not_offered", message=message)
        return calls

    def _reply(
        self, request: ReplyRequest, *, parts: Sequence[Part], usage: Usage | None = None, fault: Fault | None = None
    ) -> Reply:
        self._reply_count += 1
        failed = None if fault is None else fault.failed
        return Reply(
            serial=f"{self._tag}_{self._reply_count}",
            model=request.model,
            parts=tuple(parts),
            tokens=_tokens(request, parts, usage or Usage()),
            break_off=None if fault is None else fault.break_off,
            failure=None if failed is None else Failure(code=failed.code, message=failed.message),
        )


def _is_retry(request: ReplyRequest, digest: Digest, last: ServedReply) -> bool:
    if digest == last.digest:
        return True
    # A repeated request contains the finished parts of the reply that broke off. A new message of the user in it makes
    # it another request.
    return (
        not last.is_complete
        and request.digest_of(last.item_count) == last.digest
        and not any(item.is_users for item in request.items[last.item_count :])
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


def _tokens(request: ReplyRequest, parts: Sequence[Part], usage: Usage) -> Tokens:
    """Return the token counts that the script sets, with deterministic estimates from sizes for the others."""
    reasoning_bytes = sum(len(part.text.encode()) for part in parts if isinstance(part, Reasoning))
    text_bytes = sum(len(part.text.encode()) * part.repeat for part in parts if isinstance(part, Text))
    call_bytes = sum(len(part.payload.encode()) for part in parts if isinstance(part, ToolCall))
    return Tokens(
        input=_count_or_estimate(usage.input, request.input_bytes),
        cached=usage.cached or 0,
        output=_count_or_estimate(usage.output, reasoning_bytes + text_bytes + call_bytes),
        reasoning=_count_or_estimate(usage.reasoning, reasoning_bytes),
    )


def _count_or_estimate(count: int | None, size_bytes: int) -> int:
    return -(-size_bytes // _BYTES_PER_TOKEN) if count is None else count
