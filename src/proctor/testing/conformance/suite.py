"""The suite as data, and how a case of it is put to a runtime."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import anyio

from proctor.clock import SYSTEM_CLOCK
from proctor.errors import InputError, ProctorError, lone
from proctor.spec.model import Isolation
from proctor.testing.conformance import endings, frames, questions, record, turns
from proctor.testing.conformance.case import Case, NotApplicableError, Result, UnprovenError, Verdict
from proctor.testing.conformance.refusals import refused
from proctor.testing.conformance.subject import Subject

CASE_S: Final = 60.0

_LINES: Final = "`HostAsk.between` is put between the program's lines and you"

_CASES: Final = (
    Case(
        id="one-turn",
        sentence="A prompt reaches the model, the answer comes back as events, and the turn ends.",
        run=turns.one_turn,
        proves="thread_start",
        supply="a session, a normalizer, and a dialect of the model's wire that the program speaks",
    ),
    Case(
        id="event-stream",
        sentence="What the agent says is told while its turn still runs.",
        run=turns.event_stream,
        proves="event_stream",
        needs=("thread_start",),
        supply="`TextStreamed` or `TextSaid` from its frames, as they come",
    ),
    Case(
        id="tool-call",
        sentence="A command that the agent runs is in the trace once, with its output.",
        run=turns.tool_call,
        needs=("thread_start",),
        supply="`ToolBegan` and `ToolEnded` from its frames; what the program's tools are called, for the dialect",
    ),
    Case(
        id="approval-accepted",
        sentence="The agent asks, somebody says yes, and what it asked for happens.",
        run=questions.approval_accepted,
        proves="approvals",
        needs=("thread_start",),
        supply="questions of the agent's as `Question`, answered by `SessionAsk.decide`",
    ),
    Case(
        id="approval-denied",
        sentence="The agent asks, somebody says no, and what it asked for does not happen.",
        run=questions.approval_denied,
        proves="approvals",
        needs=("thread_start",),
        supply="the same; who answered is a `self` row before it is sent",
    ),
    Case(
        id="unknown-request",
        sentence="A request that nobody knows is answered, once, and nothing waits for it.",
        run=questions.unknown_request,
        needs=("thread_start",),
        supply=f"`samples.unknown_request`, and `is_delta` or `is_turn_end` to know a turn by; {_LINES}",
    ),
    Case(
        id="steer",
        sentence="What is said while a turn runs reaches the model in that turn.",
        run=turns.steer,
        proves="turn_steer",
        needs=("thread_start",),
        supply="`Session.steer`",
    ),
    Case(
        id="interrupt",
        sentence="An interrupted turn ends, with what it started, and a sibling's goes on.",
        run=turns.interrupt,
        proves="interrupt",
        needs=("thread_start",),
        supply="`Session.interrupt` and `Session.settle`",
    ),
    Case(
        id="resume",
        sentence="In a thread that is taken up again the model hears what was said before.",
        run=turns.resume,
        proves="thread_resume",
        needs=("thread_start",),
        supply="`SessionAsk.is_persistent` and `SessionAsk.resume`",
    ),
    Case(
        id="parallel-sessions",
        sentence="Two sessions of one process go on side by side, and neither hears the other.",
        run=turns.parallel_sessions,
        proves="parallel_sessions",
        needs=("thread_start",),
        supply="a host that carries several sessions",
    ),
    Case(
        id="dynamic-tools",
        sentence="The agent calls a tool of ours, and the model hears its answer.",
        run=turns.dynamic_tools,
        proves="dynamic_tools",
        needs=("thread_start",),
        supply="`SessionAsk.tools`",
    ),
    Case(
        id="compaction",
        sentence="After its history was shortened the model hears less of it.",
        run=turns.compaction,
        proves="compaction",
        needs=("thread_start",),
        supply="`Session.compact`",
    ),
    Case(
        id="structured-output",
        sentence="The schema of an answer reaches the model.",
        run=turns.structured_output,
        proves="structured_output",
        needs=("thread_start",),
        supply="`output_schema` of `Session.turn`",
    ),
    Case(
        id="flood",
        sentence=f"Of {frames.PIECES:,} pieces of an answer none is lost, and the whole is what was said.",
        run=frames.flood,
        needs=("thread_start",),
        supply="each line staged and committed before it is read",
    ),
    Case(
        id="slow-consumer",
        sentence="A reader that stalls loses nothing, and hears the end.",
        run=frames.slow_consumer,
        needs=("thread_start",),
        supply=f"no queue that drops; {_LINES}",
    ),
    Case(
        id="duplicate-frames",
        sentence="With every line said twice, nothing is counted twice.",
        run=frames.duplicate_frames,
        needs=("thread_start",),
        supply=f"a normalizer that knows what it was told; {_LINES}",
    ),
    Case(
        id="reordered-frames",
        sentence="Pieces that come in another order are all there, and the whole is what was said.",
        run=frames.reordered_frames,
        needs=("thread_start",),
        supply=f"`samples.is_delta`; {_LINES}",
    ),
    Case(
        id="malformed-frames",
        sentence="Lines that are no messages are on record and change nothing.",
        run=frames.malformed_frames,
        needs=("thread_start",),
        supply=f"`Unrecognized` for them; {_LINES}",
    ),
    Case(
        id="unknown-frames",
        sentence="A message that nobody knows is on record and changes nothing.",
        run=frames.unknown_frames,
        needs=("thread_start",),
        supply=f"`samples.unknown_frame`, `Unrecognized` for it; {_LINES}",
    ),
    Case(
        id="long-line",
        sentence=f"A line of {frames.BALLAST_BYTES // 1_000_000} MB is read, recorded and understood.",
        run=frames.long_line,
        needs=("thread_start",),
        supply=f"`samples.is_turn_end`; {_LINES}",
    ),
    Case(
        id="disconnect",
        sentence="A channel that breaks in the middle of a turn is a typed end, and the agent is gone.",
        run=endings.disconnect,
        needs=("thread_start",),
        supply=f"`ChannelClosed` on record, `HangupError` from the turn; `samples.is_delta` or `is_turn_end`; {_LINES}",
    ),
    Case(
        id="crash",
        sentence="An agent that is killed is a typed end, and what it had started is gone.",
        run=endings.crash,
        needs=("thread_start",),
        supply="`ChildExited` on record; `open_process` or `open_talk`, on whose books the agent is found",
    ),
    Case(
        id="hang",
        sentence="An agent that falls silent is stopped by the stall clock, and its record is whole.",
        run=endings.hang,
        needs=("thread_start",),
        supply="`Session.last_heard_s`",
    ),
    Case(
        id="teardown",
        sentence="When its process is closed in the middle of a turn, nothing of it is left.",
        run=endings.teardown,
        needs=("thread_start",),
        supply="`open_process` or `open_talk`, which contain what they start",
    ),
    Case(
        id="canary",
        sentence="A secret in the prompt, in a command's output and in the answer is in no file.",
        run=record.canary,
        needs=("thread_start",),
        supply="the text stream of each line that carries a piece of text",
    ),
    Case(
        id="rederive",
        sentence="Trace and transcript, derived from the frames again, are the same to the byte.",
        run=record.rederived,
        needs=("thread_start",),
        supply="a normalizer without a clock, chance or memory of another attempt",
    ),
)


def cases() -> tuple[Case, ...]:
    return _CASES


def case_by_id(name: str) -> Case:
    """InputError where there is none."""
    for case in _CASES:
        if case.id == name:
            return case
    raise InputError("usage", f"there is no case {name!r}; there are: {', '.join(case.id for case in _CASES)}")


async def run_case(case: Case, subject: Subject) -> Verdict:
    """Whatever the agent does, this ends and says what was seen."""
    began_s = SYSTEM_CLOCK.steady_s()
    result, what = Result.PASSED, None
    unclaimed = [claim for claim in case.claims if not getattr(subject.runtime.claims, claim)]
    try:
        with anyio.fail_after(CASE_S):
            if unclaimed:
                result, what = Result.REFUSED, await refused(subject, unclaimed[0])
            else:
                await case.run(subject)
    except TimeoutError:
        result, what = Result.FAILED, f"no end within {CASE_S:g} s"
    except Exception as error:  # a plugin may do anything
        only = lone(error) if isinstance(error, BaseExceptionGroup) else error
        is_told = isinstance(only, ProctorError | UnprovenError | NotApplicableError)
        result = Result.NOT_APPLICABLE if isinstance(only, NotApplicableError) else Result.FAILED
        what = str(only) if is_told else f"{type(only).__name__}: {only}"
    duration_ms = round((SYSTEM_CLOCK.steady_s() - began_s) * 1000)
    return Verdict(case=case.id, result=result, what=what, proves=case.proves, duration_ms=duration_ms)


async def run_suite(
    subject: Subject,
    *,
    only: tuple[Case, ...] = _CASES,
    ended: Callable[[Verdict], None] | None = None,
) -> tuple[Verdict, ...]:
    """Each case in turn. Where sessions are shared, their one process is started first: ProctorError if it is not."""
    verdicts = []
    async with AsyncExitStack() as stack:
        if subject.isolation is Isolation.SHARED and subject.runtime.claims.thread_start:
            subject.running = await stack.enter_async_context(subject.trial())
        for case in only:
            verdicts.append(await run_case(case, subject))
            if ended is not None:
                ended(verdicts[-1])
    return tuple(verdicts)
