"""`proctor session`: conversations that continue in another process."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypedDict, Unpack

from msgspec.structs import replace

from proctor.clock import SYSTEM_CLOCK
from proctor.errors import Exit, InputError
from proctor.evidence.layout import RootPaths
from proctor.ids import runtime_id_of
from proctor.report.format_values import legible
from proctor.surface.cli.command import JSON, ROOT, Command, DeclinedError, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proctor.surface.cli.interrupts import Interrupts
    from proctor.surface.session_turn import AskedTurn, SessionOptions

# What opens or renders a session is imported where it is used: a list as JSON needs none of it.

_SHOWN_TURNS = 10
_MOST_FOUND = 20


class _Opening(TypedDict):
    """Arguments of the commands that open a session."""

    runtime: str | None
    workspace: Path | None
    model: str | None
    login: str | None
    sandbox: str | None
    approvals: str | None
    script: Path | None
    engine: str | None
    policy: str | None
    window: int | None


def new(*, id_: str, root: Path | None, as_json: bool, **opening: Unpack[_Opening]) -> int:
    """Create a session, and store how it is opened. No agent is started.

    The session needs a model with a login, or a script for the scripted model. Without --workspace the agent works in
    a folder that is kept with the session.
    """
    from proctor.context.change_session import create_session
    from proctor.surface.session_turn import choose_settings

    output, paths = Output(is_json=as_json), RootPaths(evidence_root(root))
    settings = choose_settings(None, _options({**opening, "runtime": opening["runtime"] or runtime_id_of("codex")}))
    create_session(paths, id_, settings=settings, clock=SYSTEM_CLOCK)
    if as_json:
        output.json({"id": id_, "settings": settings})
    else:
        output.text(f"{id_}: created\n")
        output.text(f"Ask with: {CommandFormatter.of(root).command('session', 'say', id_, 'PROMPT')}\n")
    return 0


def say(*, id_: str, prompt: str, root: Path | None, as_json: bool, **opening: Unpack[_Opening]) -> int:
    """Ask one turn in a session, and print the answer.

    The session is opened as it was the last time, apart from the options given, which also apply to
    the next time. If it does not exist, it is created; then --on and one of --model and --script are
    required. Ctrl-C ends the turn as cancelled.
    Prints the answer on stdout and one line about the turn on stderr. A script is played from its
    first step by each command. Exits 0 if the turn completed, 1 if the agent failed, 3 for infrastructure
    reasons or if another process has the session open, 130 if it was interrupted.
    """
    from proctor.surface.session_turn import TurnMeter, open_session, settings_for

    paths, text = RootPaths(evidence_root(root)), _read_prompt(prompt)
    settings = settings_for(paths, id_, _options(opening))

    async def ask(interrupts: "Interrupts") -> "AskedTurn":
        async with open_session(paths, id_, settings) as live:
            meter = TurnMeter(live)
            with interrupts.in_turn(live):
                async for event in live.say(text):
                    meter.feed(event)
            return meter.report(is_interrupted=interrupts.is_turn_interrupted)

    return _run_turn(ask, as_json=as_json)


def compact(*, id_: str, focus: str | None, root: Path | None, as_json: bool) -> int:
    """Shorten the context of a session.

    A context engine that owns compaction shortens its own context, with attention to the words after
    --focus, and then the agent shortens its thread. Otherwise only the agent does, in a separate turn.
    The mirror keeps everything. Exits 0 if nothing failed, also if nothing became shorter, 1 if the
    agent failed, 3 for infrastructure reasons, 130 if it was interrupted.
    """
    from proctor.surface.cli.interrupts import run_interruptible
    from proctor.surface.cli.session_text import render_compaction
    from proctor.surface.session_turn import (
        CompactedSession,
        SessionOptions,
        open_session,
        report_compaction,
        settings_for,
    )

    output, paths = Output(is_json=as_json), RootPaths(evidence_root(root))
    settings = settings_for(paths, id_, SessionOptions())

    async def ask(interrupts: "Interrupts") -> CompactedSession:
        async with open_session(paths, id_, settings) as live:
            with interrupts.in_turn(live):
                compaction = await live.compact(focus=focus)
            return report_compaction(live, compaction, is_interrupted=interrupts.is_turn_interrupted)

    compacted = run_interruptible(ask)
    if as_json:
        output.json(compacted)
    else:
        output.show(render_compaction(compacted.compaction), is_wrapped=False)
    return compacted.exit


def talk(*, id_: str, root: Path | None, as_json: bool, **opening: Unpack[_Opening]) -> int:
    """Talk in a session: each line is a prompt.

    At a terminal the answer is printed as it arrives. A line typed during a turn is sent into it, or
    asked after it if the agent does not accept it. Ctrl-C interrupts the turn; Ctrl-C between turns
    or Ctrl-D ends. Otherwise the prompts are read from stdin up to its end, one per line, and the
    answers are printed. With --json, one line for each turn. Options are those of `session say`.
    Exits with the code of the first turn that failed.
    """
    from proctor.surface.cli.session_talk import hold_conversation

    paths, stdin = RootPaths(evidence_root(root)), _stdin()
    return hold_conversation(
        paths, id_, _options(opening), stdin=stdin, calling=CommandFormatter.of(root), as_json=as_json
    )


def _run_turn(ask: "Callable[[Interrupts], Awaitable[AskedTurn]]", *, as_json: bool) -> int:
    from proctor.surface.cli.interrupts import run_interruptible
    from proctor.surface.cli.session_text import turn_line

    output = Output(is_json=as_json)
    asked = run_interruptible(ask)
    if as_json:
        output.json(asked)
    else:
        if asked.answer is not None:
            output.text(f"{legible(asked.answer)}\n")
        output.note(turn_line(asked))
    return asked.exit


def _options(opening: _Opening) -> "SessionOptions":
    from proctor.surface.session_turn import SessionOptions

    return SessionOptions(**opening)


def _read_prompt(prompt: str) -> str:
    # Arguments that are not UTF-8 have lone surrogates, which no agent accepts.
    data = _stdin().buffer.read() if prompt == "-" else prompt.encode(errors="replace")
    text = data.decode(errors="replace")
    if not text.strip():
        raise InputError("usage", "the prompt is empty")
    return text


def _stdin() -> TextIO:
    if sys.stdin is None:
        raise InputError("usage", "there is no stdin to read prompts from")
    return sys.stdin


def list_sessions(*, root: Path | None, as_json: bool) -> int:
    """List the sessions in the evidence root, the one that was asked last first."""
    from proctor.context.report import list_sessions as find_sessions

    output, folder = Output(is_json=as_json), evidence_root(root)
    found = find_sessions(RootPaths(folder))
    if as_json:
        output.json({"sessions": found})
    elif not found:
        output.text(f"No sessions in {legible(str(folder))}.\n")
        command = "proctor session new ID --on codex --model PROVIDER/NAME --login api-key"
        output.text(f"To create one: {CommandFormatter.of(root).spell(command)}\n")
    else:
        from proctor.surface.cli.session_text import render_list

        output.show(render_list(found))
    return 0


def show(*, id_: str, most_turns: int | None, root: Path | None, as_json: bool) -> int:
    """Show a session: how it is opened, its thread, its sittings and its turns.

    Also names the folder with the agents' homes, which is not evidence and not redacted. Exits 4 if
    the context engine did not apply to a turn or does not have it, or if the end of a turn is not
    known and no process has the session open; the next opening settles it from the record.
    """
    from proctor.context.report import report_session

    output, paths = Output(is_json=as_json), RootPaths(evidence_root(root))
    report = report_session(paths, id_)
    if as_json:
        turns = report.turns if most_turns is None else report.turns[max(len(report.turns) - most_turns, 0) :]
        output.json(replace(report, turns=turns))
    else:
        from proctor.surface.cli.session_text import next_steps, render_report

        most = _SHOWN_TURNS if most_turns is None else most_turns
        output.show(render_report(report, root=paths, most_turns=most), is_wrapped=False)
        for each in next_steps(report, calling=CommandFormatter.of(root)):
            output.note(each)
    return Exit.OK if report.summary.is_sound else Exit.UNVERIFIED


def search(*, id_: str, words: list[str], most: int, root: Path | None, as_json: bool) -> int:
    """Find entries of a session that contain all of some words, newest first.

    Searches prompts, answers, tool calls and their results, also those from before a reset.
    """
    from proctor.context.report import search_session

    output = Output(is_json=as_json)
    found = search_session(RootPaths(evidence_root(root)), id_, " ".join(words), most=most)
    if as_json:
        output.json({"id": id_, "entries": found})
    elif not found:
        output.text("No entry has all of these words.\n")
    else:
        from proctor.surface.cli.session_text import render_found

        output.show(render_found(found), is_wrapped=False)
    return 0


def reset(*, id_: str, root: Path | None, as_json: bool) -> int:
    """Begin a new history in a session.

    The agent and the context engine know nothing of earlier turns, which stay in the mirror. Files in
    the workspace stay. Exits 3 if an engine did not forget what it keeps outside of the session.
    """
    from proctor.campaign.session_engine import forget_engines
    from proctor.context.change_session import reset_session

    output, forget = Output(is_json=as_json), partial(forget_engines, reason="reset")
    left = reset_session(RootPaths(evidence_root(root)), id_, clock=SYSTEM_CLOCK, forget=forget)
    if as_json:
        output.json({"id": id_, "isReset": True, "left": left})
    else:
        output.text(f"{id_}: reset; the next prompt begins a new history\n")
        for each in left:
            output.note(f"left: {each}")
    return Exit.INFRASTRUCTURE if left else Exit.OK


def fork(*, id_: str, new_id: str, root: Path | None, as_json: bool) -> int:
    """Copy a session under another id.

    Copies the mirror, the agents' homes and the workspace that is kept with the session. Each session
    then continues without the other. The evidence of the turns so far stays with the first one.
    """
    from proctor.context.change_session import fork_session

    output = Output(is_json=as_json)
    fork_session(RootPaths(evidence_root(root)), id_, new_id, clock=SYSTEM_CLOCK)
    if as_json:
        output.json({"id": new_id, "forkedFrom": id_})
    else:
        output.text(f"{new_id}: forked from {id_}\n")
    return 0


def delete(*, id_: str, has_evidence: bool, is_agreed: bool, root: Path | None, as_json: bool) -> int:
    """Delete a session: its mirror, the agents' homes and threads, and its workspace.

    A workspace given with --workspace stays. The evidence of its turns stays too, unless --evidence
    is given; what a fork of it needs always stays. Prints what was removed and what is left. Asks at a
    terminal; otherwise --yes is required. Exits 3 if something could not be removed.
    """
    from proctor.campaign.session_engine import forget_engines
    from proctor.context.change_session import delete_session
    from proctor.context.kept_session import find_session

    output, paths = Output(is_json=as_json), RootPaths(evidence_root(root))
    find_session(paths, id_)
    if not is_agreed:
        _confirm(f"Delete the session {id_}{' and its evidence' if has_evidence else ''}?", output)
    removal = delete_session(paths, id_, has_evidence=has_evidence, forget=partial(forget_engines, reason="delete"))
    if as_json:
        output.json(removal)
    else:
        from proctor.surface.cli.session_text import render_removal

        output.show(render_removal(removal), is_wrapped=False)
    return Exit.INFRASTRUCTURE if removal.failed else Exit.OK


def _confirm(question: str, output: Output) -> None:
    from proctor.surface.cli.terminal_approvals import is_interactive

    if not is_interactive():
        raise InputError("usage", "nothing is deleted without --yes, because there is no terminal to ask at")
    output.note(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DeclinedError("Nothing was deleted.")


def verify(*, id_: str, is_rebuilt: bool, root: Path | None, as_json: bool) -> int:
    """Compare a session with the evidence of its turns.

    Derives every turn and entry again from the record, and checks what its context engines keep.
    --rebuild rebuilds session.db from the record if they differ, or if a command would refuse it;
    the old file is kept as session.db.old. Settings that neither the old file nor the record shows
    are named, and the next opening must name them. It sets aside a damaged or newer state of an engine, in engines.old;
    the next turn then gives the engine the whole history. Exits 0 if they agree, 4 if evidence was
    deleted, 5 if an entry differs or the state of an engine cannot be used.
    """
    from proctor.campaign.session_engine import check_engine
    from proctor.context.verify import repair_session, verify_session

    output, paths = Output(is_json=as_json), RootPaths(evidence_root(root))
    check = repair_session if is_rebuilt else verify_session
    found = check(paths, id_, check_engine=check_engine)
    if as_json:
        output.json(found)
    else:
        from proctor.surface.cli.session_text import render_verification

        if found.is_rebuilt:
            kept = "" if found.kept_as is None else f"; the old one is kept as {legible(found.kept_as)}"
            output.text(f"session.db was rebuilt from the record{kept}.\n")
        if found.lost:
            lost = ", ".join(found.lost)
            output.note(f"LOST: how the session is opened ({lost}). The next `session say` must name it.")
        output.show(render_verification(found), is_wrapped=False)
    return found.exit


def _count(word: str, *, least: int = 0) -> int:
    if not word.isascii() or not word.isdigit() or int(word) < least:
        raise argparse.ArgumentTypeError(f"not a number of at least {least}: {word!r}")
    return int(word)


_ID = argument("id_", metavar="ID", help="Id of the session.")

_OPENING = (
    argument(
        "--on",
        dest="runtime",
        metavar="RUNTIME",
        type=runtime_id_of,
        default=None,
        help="Runtime, or name of its agent, such as `codex` or `claude`.",
    ),
    argument("--workspace", metavar="DIR", type=Path, default=None, help="Folder that the agent works in."),
    argument("--model", metavar="PROVIDER/NAME", default=None, help="The model, such as `openai/gpt-5.5`."),
    argument("--login", metavar="LOGIN", default=None, help="How the agent logs in (see docs/howto/logins.md)."),
    argument(
        "--sandbox",
        metavar="MODE",
        choices=["read-only", "workspace-write", "danger-full-access"],
        default=None,
        help="The agent's own sandbox: `read-only`, `workspace-write` (default) or `danger-full-access`.",
    ),
    argument(
        "--approvals",
        metavar="POLICY",
        choices=["deny", "accept", "workspace"],
        default=None,
        help="How the agent's requests for approval are answered: `deny` (default), `accept` or `workspace`.",
    ),
    argument("--script", metavar="FILE", type=Path, default=None, help="Script for the scripted model."),
    argument(
        "--engine",
        metavar="ID",
        default=None,
        help="Context engine, such as `lossless`, `window` or `none` (`proctor engines list`).",
    ),
    argument(
        "--policy",
        metavar="POLICY",
        choices=["degrade", "strict"],
        default=None,
        help="If the engine fails: `degrade` (default) runs the turn without it, `strict` refuses the turn.",
    ),
    argument(
        "--window",
        metavar="TOKENS",
        type=partial(_count, least=1),
        default=None,
        help="Size of the model's context window, where the agent does not report it.",
    ),
)

COMMANDS = {
    "session new": Command(
        call=new,
        example="proctor session new shop --on codex --workspace shop --model openai/gpt-5.5 --login api-key",
        arguments=(_ID, *_OPENING, ROOT, JSON),
    ),
    "session say": Command(
        call=say,
        example='proctor session say shop "Why does the test fail?"',
        arguments=(
            _ID,
            argument("prompt", metavar="PROMPT", help="The prompt; `-` reads it from stdin."),
            *_OPENING,
            ROOT,
            JSON,
        ),
    ),
    "session talk": Command(call=talk, example="proctor session talk shop", arguments=(_ID, *_OPENING, ROOT, JSON)),
    "session show": Command(
        call=show,
        example="proctor session show shop --turns 3",
        arguments=(
            _ID,
            argument(
                "--turns",
                dest="most_turns",
                metavar="N",
                type=_count,
                default=None,
                help=f"Show only the last N turns (default: {_SHOWN_TURNS}; with --json all).",
            ),
            ROOT,
            JSON,
        ),
    ),
    "session list": Command(call=list_sessions, example="proctor session list --json", arguments=(ROOT, JSON)),
    "session search": Command(
        call=search,
        example="proctor session search shop failing test",
        arguments=(
            _ID,
            argument("words", metavar="WORD", nargs="+", help="Words that an entry must contain."),
            argument(
                "--most",
                metavar="N",
                type=_count,
                default=_MOST_FOUND,
                help=f"At most N entries (default: {_MOST_FOUND}).",
            ),
            ROOT,
            JSON,
        ),
    ),
    "session compact": Command(
        call=compact,
        example="proctor session compact shop --focus 'the failing test'",
        arguments=(
            _ID,
            argument("--focus", metavar="WORDS", default=None, help="What the engine's summaries should keep."),
            ROOT,
            JSON,
        ),
    ),
    "session reset": Command(call=reset, example="proctor session reset shop", arguments=(_ID, ROOT, JSON)),
    "session fork": Command(
        call=fork,
        example="proctor session fork shop shop-2",
        arguments=(_ID, argument("new_id", metavar="NEW", help="Id of the copy."), ROOT, JSON),
    ),
    "session delete": Command(
        call=delete,
        example="proctor session delete shop --evidence --yes",
        arguments=(
            _ID,
            argument("--evidence", dest="has_evidence", action="store_true", help="Also delete the evidence."),
            argument("--yes", dest="is_agreed", action="store_true", help="Do not ask before deleting."),
            ROOT,
            JSON,
        ),
    ),
    "session verify": Command(
        call=verify,
        example="proctor session verify shop",
        arguments=(
            _ID,
            argument(
                "--rebuild",
                dest="is_rebuilt",
                action="store_true",
                help="Rebuild session.db from the record if it differs or is damaged, and set aside what an engine"
                " cannot use.",
            ),
            ROOT,
            JSON,
        ),
    ),
}
