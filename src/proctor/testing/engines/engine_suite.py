"""The cases of the engine suite, and the function that runs them."""

import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from proctor.clock import SYSTEM_CLOCK
from proctor.context.engine import CreateEngine, EngineInfo
from proctor.context.guard import Deadlines
from proctor.errors import EngineError, InputError, ProctorError, unwrap_single
from proctor.evidence.proofs import Result
from proctor.testing.engines import assembling, committing, upkeep
from proctor.testing.engines.engine_case import EngineCase, EngineReport, EngineVerdict
from proctor.testing.engines.engine_subject import SUITE_DEADLINES, EngineSubject
from proctor.testing.engines.inside import resolve
from proctor.testing.unproven import NotApplicableError, UnprovenError

CASE_S: Final = 180.0

_WRONG_CALLS: Final = ("engine.failed", "engine.bad-result")
_CORRECT_CALL: Final = "First correct this call, which other cases may make too. "
"""For a case that failed because a method raised an error or returned what it may not, whatever the case is about."""

_CASES: Final = (
    EngineCase(
        id="contract",
        number=None,
        sentence="The engine can be created, and has every member of `ContextEngine`.",
        todo="Add the member that is missing; `info` is an EngineInfo, equal for all objects of the engine.",
        run=assembling.contract,
    ),
    EngineCase(
        id="deadlines",
        number=15,
        sentence="Every method answers in time.",
        todo="Do long work in `maintain`, and make a method that blocks a plain function: it then runs in a thread.",
        run=assembling.deadlines,
    ),
    EngineCase(
        id="options",
        number=None,
        sentence="The option `citations` is accepted, and an unknown option is refused with InputError.",
        todo="Compare the names in `setup.options` with those that you know, and raise InputError for any other.",
        run=upkeep.options,
    ),
    EngineCase(
        id="empty-history",
        number=6,
        sentence="Nothing is assembled for a session in which nothing was said.",
        todo="Return no messages: the prompt then reaches the agent word for word. Instructions are `system_addition`.",
        run=assembling.empty_history,
    ),
    EngineCase(
        id="one-turn",
        number=15,
        sentence="What is assembled after one turn is valid.",
        todo="Return entries of the history unchanged, each once, and messages with ids that have no `#`.",
        run=assembling.one_turn,
    ),
    EngineCase(
        id="several-turns",
        number=15,
        sentence="What is assembled after several turns, one of them interrupted, is valid.",
        todo="Return entries of the history unchanged, each once. A call that was interrupted has no result.",
        run=assembling.several_turns,
    ),
    EngineCase(
        id="tool-pairs",
        number=3,
        sentence="A tool call and its result are assembled together or not at all, whatever the budget.",
        todo="Choose whole turns, or add a call when you add its result: `part.call` names it.",
        run=assembling.tool_pairs,
    ),
    EngineCase(
        id="tainted",
        number=29,
        sentence="A summary of entries that come from the web is marked as such.",
        todo="Set `is_tainted` of a message that you make if any of its sources has it.",
        run=assembling.tainted,
    ),
    EngineCase(
        id="odd-texts",
        number=2,
        sentence="Any text is taken in: empty, with lone surrogates, NUL, other line ends, or like a header.",
        todo='Encode texts with `.encode("utf-8", "surrogatepass")` before you store or hash them. Never parse them.',
        run=assembling.odd_texts,
    ),
    EngineCase(
        id="large-history",
        number=15,
        sentence="A long history is taken in and assembled within the budget and in time.",
        todo="Read the history from its end, or in slices, and leave out what does not fit.",
        run=assembling.large_history,
    ),
    EngineCase(
        id="budget",
        number=15,
        sentence="No more is assembled than the budget allows, even if it is 0.",
        todo="Return at most `ctx.budget.history` tokens: estimate them with `estimate_messages(…, ratio=ctx.ratio)`.",
        run=assembling.within_budget,
    ),
    EngineCase(
        id="same-bytes",
        number=1,
        sentence="Equal inputs give equal results, whatever the order of keys in an object.",
        todo="Use no time, no random number and no order of a set or dictionary; sort keys before you write JSON.",
        run=assembling.same_bytes,
    ),
    EngineCase(
        id="same-bytes-elsewhere",
        number=1,
        sentence="Another process with another PYTHONHASHSEED assembles the same result.",
        todo="Use neither `hash()` nor the order of a set; use hashlib, and sort.",
        run=assembling.same_bytes_in_another_process,
    ),
    EngineCase(
        id="epoch",
        number=18,
        sentence="In the mode `thread_bootstrap`, one more turn does not change the epoch.",
        todo="Derive the epoch from the stable part of the context only, such as the ids of the summaries.",
        run=assembling.stable_epoch,
    ),
    EngineCase(
        id="no-doubling",
        number=12,
        sentence="A turn that arrives by `bootstrap` and by `commit_turn` is assembled once.",
        todo="Recognize entries by their ids, which never change, when you take them in.",
        run=assembling.no_doubling,
    ),
    EngineCase(
        id="duplicate",
        number=14,
        sentence="A key that was committed before is a `duplicate`, even with another model, budget or usage.",
        todo="Store each key with a digest of its messages, in the transaction that stores the messages.",
        run=committing.duplicate,
    ),
    EngineCase(
        id="other-payload",
        number=14,
        sentence="A key that was committed before is refused with other messages.",
        todo="Compare a digest of all messages with the stored one, and raise an error if they differ.",
        run=committing.other_payload,
    ),
    EngineCase(
        id="queued-commit",
        number=11,
        sentence="A turn of an earlier sitting is committed before the bootstrap.",
        todo="Do not expect `bootstrap` before `commit_turn`: what an earlier process left is committed first.",
        run=committing.queued_before_bootstrap,
    ),
    EngineCase(
        id="odd-commits",
        number=2,
        sentence="A turn with any text is committed, and known after reopening.",
        todo='Encode texts with `.encode("utf-8", "surrogatepass")` before you store or hash them.',
        run=committing.odd_turns,
    ),
    EngineCase(
        id="durable",
        number=12,
        sentence="A new object in the same folder knows every turn, and assembles the same result.",
        todo="Keep everything that you need in `setup.folder`, and write it before `commit_turn` returns.",
        run=committing.durable,
    ),
    EngineCase(
        id="killed",
        number=12,
        sentence="`kill -9` after `commit_turn` has returned loses nothing.",
        todo="Write to disk before `commit_turn` returns, not in `close`: a transaction, or a file that is synced.",
        run=committing.killed,
    ),
    EngineCase(
        id="after-reset",
        number=24,
        sentence="After `forget`, the history begins again.",
        todo="Remove messages, summaries and keys in `forget`, from memory too.",
        run=assembling.after_reset,
    ),
    EngineCase(
        id="forget",
        number=24,
        sentence="After `forget`, no file of the engine has a word of what was said.",
        todo="Delete the files. SQLite keeps deleted rows in free pages and in its log: delete the file, or VACUUM.",
        run=upkeep.forget,
    ),
    EngineCase(
        id="separate-sessions",
        number=24,
        sentence="Two sessions in one process know nothing of each other.",
        todo="Keep state in the object and in `setup.folder`, never in a global variable or a shared file.",
        run=assembling.separate_sessions,
    ),
    EngineCase(
        id="maintenance",
        number=27,
        sentence="Maintenance ends in time, for every reason and also if there is nothing to do.",
        todo="Bound the work of one call, and continue in the next one.",
        run=upkeep.maintenance,
    ),
    EngineCase(
        id="background",
        number=27,
        sentence="Maintenance in the background disturbs no other call.",
        todo="Guard shared state with a lock, and open a separate connection for the maintenance.",
        run=upkeep.background,
    ),
    EngineCase(
        id="compaction",
        number=26,
        sentence="Compaction saves tokens in each pass, and ends with `not_needed` or `no_progress`.",
        todo="Return `no_progress` if a pass saves nothing. Count only tokens of messages, and None if unknown.",
        run=upkeep.compaction,
    ),
    EngineCase(
        id="compact-nothing",
        number=26,
        sentence="Compaction of a session in which nothing was said is `not_needed` or `no_progress`.",
        todo="Return `not_needed` if there is nothing to shorten.",
        run=upkeep.compact_nothing,
    ),
    EngineCase(
        id="tools",
        number=18,
        sentence="The tools are valid, and stay the same for the life of the session.",
        todo="Return the same names, descriptions and schemas every time: others start a new thread of the agent.",
        run=upkeep.tools,
    ),
    EngineCase(
        id="cancel",
        number=16,
        sentence="A call that is cancelled ends soon, and leaves nothing wrong behind.",
        todo="Look at `ctx.cancel.is_set` in loops of a plain function, and change state in one transaction.",
        run=upkeep.cancel,
    ),
    EngineCase(
        id="reopen",
        number=27,
        sentence="The engine can be closed and opened again, also while it is maintained.",
        todo="Release files and connections in `close`, and wait there for your own threads.",
        run=upkeep.close_and_reopen,
    ),
)


def engine_cases() -> tuple[EngineCase, ...]:
    return _CASES


def check_engine(
    create: CreateEngine,
    *,
    engine_id: str | None = None,
    options: Mapping[str, Any] | None = None,
    entry_point: str | None = None,
    only: Collection[str] = (),
    ended: Callable[[EngineVerdict], None] | None = None,
    deadlines: Deadlines = SUITE_DEADLINES,
) -> EngineReport:
    """Run the suite on an engine and return its verdicts. Call it from the main thread, without an event loop.

    `create` is what the entry point of the engine names, and `options` are a session's. `engine_id` is the id that the
    engine should have. Two cases run in another process, which imports the function as `entry_point`, a text
    `module:name`; without it, by its own name. `only` are the ids of the cases to run; all without it. `ended` is
    called after each case.

    Raises InputError if there is no such case.
    """
    chosen = _choose(only)

    async def run() -> EngineReport:
        with tempfile.TemporaryDirectory(prefix="proctor-engine-") as folder:
            subject = EngineSubject(
                create=create,
                options=options or {},
                folder=Path(folder),
                entry_point=entry_point or find_entry_point(create),
                engine_id=engine_id,
                deadlines=deadlines,
            )
            return await _run_cases(subject, chosen, ended=ended)

    return anyio.run(run)


def find_entry_point(create: Any) -> str | None:
    """Return `module:name` if another process can import the function by its own name; None if it cannot.

    >>> find_entry_point(find_entry_point), find_entry_point(lambda setup: None)
    ('proctor.testing.engines.engine_suite:find_entry_point', None)
    """
    module, name = getattr(create, "__module__", None), getattr(create, "__qualname__", "<unknown>")
    if module is None or module == "__main__" or "<" in name:
        return None
    try:
        found = resolve(f"{module}:{name}")
    except (ImportError, AttributeError):
        return None
    return f"{module}:{name}" if found is create else None


def _choose(only: Collection[str]) -> tuple[EngineCase, ...]:
    known = {case.id: case for case in _CASES}
    for name in only:
        if name not in known:
            raise InputError("usage", f"unknown case {name!r}; known cases: {', '.join(known)}")
    return tuple(case for case in _CASES if not only or case.id in only)


async def _run_cases(
    subject: EngineSubject, cases: tuple[EngineCase, ...], *, ended: Callable[[EngineVerdict], None] | None
) -> EngineReport:
    problem = None
    info: EngineInfo | None = None
    try:
        info = subject.create_in(subject.new_folder()).info
    except ProctorError as error:
        problem = str(error)
    # The first case says why.
    is_explained = any(case.id == "contract" for case in cases)
    verdicts = []
    for case in cases:
        if problem is not None and case.id != "contract":
            why = "" if is_explained else f": {problem}"
            verdict = _verdict(case, Result.NOT_APPLICABLE, what=f"the engine cannot be created{why}")
        else:
            verdict = await _run_case(case, subject)
        verdicts.append(verdict)
        if ended is not None:
            ended(verdict)
    return EngineReport(engine=info, verdicts=tuple(verdicts))


async def _run_case(case: EngineCase, subject: EngineSubject) -> EngineVerdict:
    began_s = SYSTEM_CLOCK.steady_s()
    result, what, is_wrong_call = Result.PASSED, None, False
    subject.case = case.id
    try:
        with anyio.fail_after(CASE_S):
            await case.run(subject)
    except TimeoutError:
        result, what = Result.FAILED, f"no end within {CASE_S:g} s"
    except Exception as error:  # an engine may do anything
        only = unwrap_single(error) if isinstance(error, BaseExceptionGroup) else error
        has_message = isinstance(only, ProctorError | UnprovenError | NotApplicableError)
        result = Result.NOT_APPLICABLE if isinstance(only, NotApplicableError) else Result.FAILED
        what = str(only) if has_message else f"{type(only).__name__}: {only}"
        is_wrong_call = isinstance(only, EngineError) and only.code in _WRONG_CALLS
    duration_ms = round((SYSTEM_CLOCK.steady_s() - began_s) * 1000)
    return _verdict(case, result, what=what, first_todo=_CORRECT_CALL if is_wrong_call else "", duration_ms=duration_ms)


def _verdict(
    case: EngineCase, result: Result, *, what: str | None, first_todo: str = "", duration_ms: int = 0
) -> EngineVerdict:
    return EngineVerdict(
        case=case.id,
        number=case.number,
        sentence=case.sentence,
        result=result,
        what=what,
        todo=first_todo + case.todo if result is Result.FAILED else None,
        duration_ms=duration_ms,
    )
