"""The conformance cases as data, and functions that run them against a runtime."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import anyio

from proctor.clock import SYSTEM_CLOCK
from proctor.errors import InputError, ProctorError, unwrap_single
from proctor.spec.choices import Isolation
from proctor.testing.conformance import endings, frames, giving, questions, record, turns
from proctor.testing.conformance.case import Case, CaseVerdict, NotApplicableError, Result, UnprovenError
from proctor.testing.conformance.refusals import refused
from proctor.testing.conformance.subject import Subject

CASE_S: Final = 60.0

_LINES: Final = "`HostRequest.wrap_channel` applied to the channel of the program"

_CASES: Final = (
    Case(
        id="one-turn",
        sentence="A prompt reaches the model, the answer arrives as events, and the turn ends.",
        run=turns.one_turn,
        supply="a session, a normalizer, and a model wire format that the scripted model supports",
    ),
    Case(
        id="event-stream",
        sentence="The agent's text arrives as events while the turn is still running.",
        run=turns.event_stream,
        needs=("thread_start",),
        supply="`TextStreamed` or `TextSaid` events as soon as their frames arrive",
    ),
    Case(
        id="tool-call",
        sentence="A command that the agent runs appears in the trace exactly once, with its output.",
        run=turns.tool_call,
        needs=("thread_start",),
        supply="`ToolBegan` and `ToolEnded` events; a dialect of the scripted model for the program's tools",
    ),
    Case(
        id="approval-accepted",
        sentence="The agent asks for approval, it is granted, and the action happens.",
        run=questions.approval_accepted,
        needs=("thread_start",),
        supply="the agent's approval requests as `Question`, answered by `SessionRequest.decide`",
    ),
    Case(
        id="approval-denied",
        sentence="The agent asks for approval, it is denied, and the action does not happen.",
        run=questions.approval_denied,
        needs=("thread_start",),
        supply="the same; a `self` row that records who answered, before the answer is sent",
    ),
    Case(
        id="unknown-request",
        sentence="An unknown request from the agent is answered exactly once and blocks nothing.",
        run=questions.unknown_request,
        needs=("thread_start",),
        supply=f"`samples.unknown_request`; `samples.is_delta` or `is_turn_end` to recognize a turn; {_LINES}",
    ),
    Case(
        id="steer",
        sentence="A message that is sent during a turn reaches the model in that turn.",
        run=turns.steer,
        needs=("thread_start",),
        supply="`Session.steer`",
    ),
    Case(
        id="interrupt",
        sentence="An interrupted turn ends, its commands end with it, and a turn in another session continues.",
        run=turns.interrupt,
        needs=("thread_start",),
        supply="`Session.interrupt` and `Session.settle`",
    ),
    Case(
        id="resume",
        sentence="In a resumed thread the model receives the earlier conversation.",
        run=turns.resume,
        needs=("thread_start",),
        supply="`SessionRequest.is_persistent` and `SessionRequest.resume`",
    ),
    Case(
        id="parallel-sessions",
        sentence="Two sessions in one process run at the same time, and neither receives the other's messages.",
        run=turns.parallel_sessions,
        needs=("thread_start",),
        supply="a host that runs several sessions at once",
    ),
    Case(
        id="dynamic-tools",
        sentence="The agent calls a tool that Proctor provides, and the model receives its result.",
        run=turns.dynamic_tools,
        needs=("thread_start",),
        supply="`SessionRequest.tools`",
    ),
    Case(
        id="compaction",
        sentence="After compaction the model receives a shorter history.",
        run=turns.compaction,
        needs=("thread_start",),
        supply="`Session.compact`",
    ),
    Case(
        id="structured-output",
        sentence="The JSON schema for an answer reaches the model.",
        run=turns.structured_output,
        needs=("thread_start",),
        supply="`output_schema` of `Session.turn`",
    ),
    Case(
        id="history",
        sentence="Messages that a thread is given reach the model once each and in order, and are not turns.",
        run=giving.history,
        needs=("thread_start",),
        supply="`Session.give`, with a `HistoryOffer` before and a `HistoryReceipt` after it",
    ),
    Case(
        id="history-resumed",
        sentence="In a resumed thread the model receives what the thread was given before and after.",
        run=giving.history_resumed,
        needs=("thread_start", "thread_resume"),
        supply="the same in a thread that was opened with `SessionRequest.resume`",
    ),
    Case(
        id="start-instructions",
        sentence="Instructions that a thread starts with reach the model in the developer or system role only.",
        run=giving.start_instructions,
        needs=("thread_start",),
        supply="`SessionRequest.instructions`",
    ),
    Case(
        id="turn-instructions",
        sentence="Instructions given between turns reach the model in the developer or system role only, and once.",
        run=giving.turn_instructions,
        needs=("thread_start",),
        supply="`instructions` of `Session.give`",
    ),
    Case(
        id="context-use",
        sentence="The tokens in the context window are reported as the model counts them.",
        run=turns.context_use,
        needs=("thread_start",),
        supply="`Session.read_context`; not applicable if the agent does not report them",
    ),
    Case(
        id="flood",
        sentence=f"An answer in {frames.PIECES:,} pieces is recorded completely and in order.",
        run=frames.flood,
        needs=("thread_start",),
        supply="each line staged and committed to the record before it is interpreted",
    ),
    Case(
        id="slow-consumer",
        sentence="A slow reader loses no event and receives the end of the turn.",
        run=frames.slow_consumer,
        needs=("thread_start",),
        supply=f"queues that drop nothing; {_LINES}",
    ),
    Case(
        id="duplicate-frames",
        sentence="If every line arrives twice, nothing is counted twice.",
        run=frames.duplicate_frames,
        needs=("thread_start",),
        supply=f"a normalizer that recognizes repeated messages; {_LINES}",
    ),
    Case(
        id="reordered-frames",
        sentence="Pieces of text that arrive in another order are all recorded, and the complete text is correct.",
        run=frames.reordered_frames,
        needs=("thread_start",),
        supply=f"`samples.is_delta`; {_LINES}",
    ),
    Case(
        id="malformed-frames",
        sentence="Lines that are not valid messages are recorded and have no other effect.",
        run=frames.malformed_frames,
        needs=("thread_start",),
        supply=f"`Unrecognized` events for them; {_LINES}",
    ),
    Case(
        id="unknown-frames",
        sentence="A message of an unknown kind is recorded and has no other effect.",
        run=frames.unknown_frames,
        needs=("thread_start",),
        supply=f"`samples.unknown_frame`; an `Unrecognized` event for it; {_LINES}",
    ),
    Case(
        id="long-line",
        sentence=f"A line of {frames.BALLAST_BYTES // 1_000_000} MB is read, recorded and interpreted.",
        run=frames.long_line,
        needs=("thread_start",),
        supply=f"`samples.is_turn_end`; {_LINES}",
    ),
    Case(
        id="disconnect",
        sentence="If the connection breaks during a turn, the outcome is typed and the agent is stopped.",
        run=endings.disconnect,
        needs=("thread_start",),
        supply=f"a `ChannelClosed` row; `HangupError` from the turn; `samples.is_delta` or `is_turn_end`; {_LINES}",
    ),
    Case(
        id="crash",
        sentence="If the agent is killed, the outcome is typed and the agent's commands are stopped.",
        run=endings.crash,
        needs=("thread_start",),
        supply="a `ChildExited` row; `open_process` or `open_line_process`, whose spawn intents identify the agent",
    ),
    Case(
        id="hang",
        sentence="An agent that stops responding is stopped by the stall limit, and its evidence is complete.",
        run=endings.hang,
        needs=("thread_start",),
        supply="`Session.last_heard_s`",
    ),
    Case(
        id="teardown",
        sentence="If the agent is closed during a turn, no process, file or spawn intent is left behind.",
        run=endings.teardown,
        needs=("thread_start",),
        supply="`open_process` or `open_line_process`, which contain the processes they start",
    ),
    Case(
        id="tripwire",
        sentence="A secret in the prompt, in a command's output and in the answer is not in any evidence file.",
        run=record.tripwire,
        needs=("thread_start",),
        supply="the text stream of each line that contains a piece of text",
    ),
    Case(
        id="rederive",
        sentence="Deriving trace and transcript from the frames again gives the same bytes.",
        run=record.rederived,
        needs=("thread_start",),
        supply="a normalizer without clock, randomness or state from other attempts",
    ),
)


def cases() -> tuple[Case, ...]:
    return _CASES


def case_by_id(name: str) -> Case:
    """Return the case with this id. Raises InputError if there is no such case."""
    for case in _CASES:
        if case.id == name:
            return case
    raise InputError("usage", f"unknown case {name!r}; known cases: {', '.join(case.id for case in _CASES)}")


async def run_case(case: Case, subject: Subject) -> CaseVerdict:
    """Run one case, for at most 60 seconds, and return its verdict. Errors of the runtime become a failed verdict."""
    began_s = SYSTEM_CLOCK.steady_s()
    result, what = Result.PASSED, None
    undeclared = [
        capability for capability in case.capabilities if not getattr(subject.runtime.capabilities, capability)
    ]
    try:
        with anyio.fail_after(CASE_S):
            if undeclared:
                result, what = Result.REFUSED, await refused(subject, undeclared[0])
            else:
                await case.run(subject)
    except TimeoutError:
        result, what = Result.FAILED, f"no end within {CASE_S:g} s"
    except Exception as error:  # a plugin may do anything
        only = unwrap_single(error) if isinstance(error, BaseExceptionGroup) else error
        has_message = isinstance(only, ProctorError | UnprovenError | NotApplicableError)
        result = Result.NOT_APPLICABLE if isinstance(only, NotApplicableError) else Result.FAILED
        what = str(only) if has_message else f"{type(only).__name__}: {only}"
    duration_ms = round((SYSTEM_CLOCK.steady_s() - began_s) * 1000)
    return CaseVerdict(case=case.id, result=result, what=what, proves=case.proves, duration_ms=duration_ms)


async def run_suite(
    subject: Subject,
    *,
    only: tuple[Case, ...] = _CASES,
    ended: Callable[[CaseVerdict], None] | None = None,
) -> tuple[CaseVerdict, ...]:
    """Run the cases in order and return their verdicts. `ended` is called after each case.

    If sessions share one process, it is started first. Raises ProctorError if that fails.
    """
    verdicts = []
    async with AsyncExitStack() as stack:
        if subject.isolation is Isolation.SHARED and subject.runtime.capabilities.thread_start:
            subject.running = await stack.enter_async_context(subject.agent())
        for case in only:
            verdicts.append(await run_case(case, subject))
            if ended is not None:
                ended(verdicts[-1])
    return tuple(verdicts)
