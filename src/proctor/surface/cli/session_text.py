"""Render sessions for a terminal. Prompts and answers are text of users and agents, so everything is escaped."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proctor import decoding
from proctor.context.binding import ThreadReason
from proctor.context.change_session import SessionRemoval
from proctor.context.compaction import NATIVE_DETAILS, Compaction
from proctor.context.engine import CompactStatus
from proctor.context.kept_session import attempt_paths
from proctor.context.model import Binding, SessionSettings, SessionTurn, Sitting, TurnContext, TurnState
from proctor.context.report import FoundEntry, SessionReport, SessionSummary, ShownTurn
from proctor.context.verify import SessionVerification
from proctor.errors import Exit
from proctor.event.message import AgentPart, CallPart, Message, ResultPart, UserPart
from proctor.evidence.layout import RootPaths
from proctor.report.format_values import describe_call, duration, legible, moment, one_line, plural
from proctor.report.text import render_findings
from proctor.surface.cli.blocks import HangingRows
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.session_turn import AskedTurn

_EXCERPT = 160
_NO_THREAD = "the session had none"


def turn_line(asked: AskedTurn) -> Text:
    """Render how a turn ended, in one line."""
    turn = asked.turn
    facts = [plural(asked.tool_calls, "tool call"), duration(asked.duration_ms), legible(asked.dir)]
    line = Text(f"turn {turn.n} ", style="dim").append_text(_outcome(turn))
    line.append(f"  {'  '.join(facts)}", style="dim")
    if asked.turn.state is TurnState.ADMITTED:
        line.append("\nwarning: the end of the turn is not stored; the next opening stores it from the record")
    for problem in _context_problems(turn):
        line.append(f"\nwarning: {problem}")
    return line


def _context_problems(turn: SessionTurn) -> Iterator[str]:
    """Yield what is wrong with the context of a completed turn."""
    context = turn.context
    if context is not None and turn.is_degraded:
        yield f"the context engine {context.engine} {_degraded(context)}"
    yield from _commit_problem(turn)


def _commit_problem(turn: SessionTurn) -> Iterator[str]:
    context = turn.context
    if context is not None and turn.is_uncommitted:
        detail = "" if context.commit_detail is None else f": {_detail_of(context, context.commit_detail)}"
        yield f"the context engine {context.engine} does not have this turn ({turn.state}){detail}"


def _degraded(context: TurnContext) -> str:
    """Return that the engine did not apply, and why. It has a digest of what is given if it assembled anything."""
    extent = "did not apply" if context.sha256 is None else "did not apply in full"
    return f"{extent}: {_detail_of(context, context.degraded or '')}"


def _detail_of(context: TurnContext, detail: str) -> str:
    """Return what the engine said went wrong, without the engine's name in front, which the line has already."""
    return one_line(detail.removeprefix(f"engine {context.engine}: "), limit=_EXCERPT)


def _outcome(turn: SessionTurn, *, is_held: bool = False) -> Text:
    """Return how a turn ended. `is_held` is whether a process has the session open, and so may be in the turn."""
    if turn.state is TurnState.ADMITTED:
        return Text("running", style="yellow") if is_held else Text("unsettled", style="bold red")
    if turn.state.is_completed:
        return Text("completed" if turn.kind == "prompt" else f"{turn.kind} completed", style="green")
    code = "" if turn.code is None else f" ({turn.code})"
    detail = "" if turn.detail is None else f": {one_line(turn.detail, limit=_EXCERPT)}"
    return Text(legible(f"{turn.outcome}{code}{detail}"), style="red")


def render_list(sessions: Sequence[SessionSummary]) -> RenderableType:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    for name in ("session", "runtime", "turns", "sittings", "last asked", "state"):
        table.add_column(name, justify="right" if name in ("turns", "sittings") else "left", overflow="fold")
    for each in sessions:
        runtime, asked = each.runtime_id or "-", "-" if each.last_asked_at_ms is None else moment(each.last_asked_at_ms)
        table.add_row(legible(each.id), legible(runtime), f"{each.turns:,}", f"{each.sittings:,}", asked, _state(each))
    return table


def _state(summary: SessionSummary) -> Text:
    if summary.problem is not None:
        return Text(legible(summary.problem), style="bold red")
    problems = [
        f"{plural(count, 'turn')} {word}"
        for count, word in (
            # While it is open, a turn may be running.
            (summary.unsettled if summary.held_by is None else 0, "unsettled"),
            (summary.degraded, "without context"),
            (summary.uncommitted, "not committed"),
        )
        if count
    ]
    held = [] if summary.held_by is None else [f"open in process {summary.held_by}"]
    style = "bold red" if problems else "yellow" if held else ""
    return Text(", ".join((*problems, *held)) or "closed", style=style)


def render_report(report: SessionReport, *, root: RootPaths, most_turns: int) -> RenderableType:
    """Render a session: its header, its sittings, and its last turns."""
    shown = report.turns[len(report.turns) - min(most_turns, len(report.turns)) :]
    parts: list[RenderableType] = [
        Text(legible(report.summary.id), style="bold"),
        HangingRows(list(_facts(report))),
    ]
    if report.sittings:
        parts += [Text("\nSittings:"), *(_sitting(each, root=root) for each in report.sittings)]
    if report.turns:
        parts.append(Text("\nTurns:"))
    if (omitted := len(report.turns) - len(shown)) > 0:
        parts.append(Text(f"  … {plural(omitted, 'earlier turn')}; --turns N shows more", style="dim"))
    for each in shown:
        if each.turn.n == report.history_after + 1 and report.history_after:
            parts.append(Text("  ── reset: the agent does not know what is above ──", style="dim"))
        parts += _turn(each, report, root=root)
    if report.history_after and report.history_after == len(report.turns):
        parts.append(Text("  ── reset: the agent does not know what is above ──", style="dim"))
    return Group(*parts)


def next_steps(report: SessionReport, *, calling: CommandFormatter) -> Iterator[str]:
    """Yield what to do about a session that is not sound."""
    summary = report.summary
    say = legible(calling.command("session", "say", summary.id, "PROMPT"))
    if summary.unsettled and summary.held_by is None:
        yield f"The process of the unsettled turn was killed. Its end is settled from the record by: {say}"
    turns = [each.turn for each in report.turns]
    if any(turn.is_uncommitted and turn.state is not TurnState.BLOCKED for turn in turns):
        yield f"The engine is given the turn that it does not have again by: {say}"
    if any(turn.is_uncommitted and turn.state is TurnState.BLOCKED for turn in turns):
        yield "A blocked turn stays in the session, and is not given to the engine again."
    engines = {turn.context.engine for turn in turns if turn.context is not None and turn.is_degraded}
    for engine in sorted(engines):
        yield f"A degraded turn stays marked. To check its engine: {calling.command('engines', 'check', engine)}"


def _facts(report: SessionReport) -> Iterator[tuple[str, str | Text]]:
    summary = report.summary
    yield "created", moment(summary.created_at_ms)
    if summary.forked_from is not None:
        yield "forked from", summary.forked_from
    yield "state", _state(summary)
    turns = plural(summary.turns, "completed turn")
    yield "turns", turns if not summary.discarded else f"{turns}, {summary.discarded:,} not completed"
    if report.settings is not None:
        yield "opened with", _settings(report.settings)
        yield "workspace", report.settings.workspace or "kept with the session"
    yield "thread", "none" if report.binding is None else _binding(report.binding)
    yield "home", report.home if report.has_home else "none yet"
    yield "", "The agents' homes and the workspace. They are not evidence, and not redacted."


def _settings(settings: SessionSettings) -> str:
    model = "the scripted model" if settings.provider is None else f"{settings.provider}/{settings.model}"
    script = "" if settings.script is None else f" ({settings.script})"
    engine = "" if settings.context is None else f", engine {settings.context.engine} ({settings.context.policy})"
    return f"{settings.runtime}, {model}{script}, {settings.sandbox}, approvals {settings.approvals}{engine}"


def _binding(binding: Binding) -> str:
    where = "" if binding.process is None else f", as long as the pool with process {binding.process} is open"
    return f"{binding.thread} on {binding.runtime_id}{where}"


def _sitting(sitting: Sitting, *, root: RootPaths) -> Text:
    folder = attempt_paths(root, sitting).folder
    origin = "  (of the session that this one was forked from)" if sitting.is_foreign else ""
    return Text(f"  {sitting.n}  {moment(sitting.began_at_ms)}  {legible(str(folder))}{origin}")


def _turn(shown: ShownTurn, report: SessionReport, *, root: RootPaths) -> Iterator[Text]:
    turn = shown.turn
    # Opening a session settles what was left open, so a turn without an end is then the one that runs.
    outcome = _outcome(turn, is_held=report.summary.held_by is not None)
    yield Text(f"  {turn.n}  ").append_text(outcome).append(f"  {moment(turn.asked_at_ms)}", style="dim")
    prompts = [each.part.text for each in shown.messages if isinstance(each.part, UserPart)]
    prompts += [] if shown.asked is None else [shown.asked]
    answers = [each.part.text for each in shown.messages if isinstance(each.part, AgentPart)]
    calls = sum(isinstance(each.part, CallPart) for each in shown.messages)
    if prompts:
        more = "" if len(prompts) == 1 else f"  (and {plural(len(prompts) - 1, 'more text')} during the turn)"
        yield Text(f"     user   {one_line(prompts[0], limit=_EXCERPT)}{more}")
    if not turn.state.is_completed:
        folders = (attempt_paths(root, each).folder for each in report.sittings if each.n == turn.sitting)
        yield from (Text(f"     record {legible(str(folder))}", style="dim") for folder in folders)
    if calls:
        yield Text(f"     tools  {plural(calls, 'call')}", style="dim")
    if answers:
        yield Text(f"     agent  {one_line(answers[-1], limit=_EXCERPT)}")
    if turn.context is not None:
        style = "bold red" if turn.is_degraded else "dim"
        yield Text(f"     engine {_context(turn.context, is_degraded=turn.is_degraded)}", style=style)
    for problem in _commit_problem(turn):
        yield Text(f"     {problem}", style="bold red")


def _context(context: TurnContext, *, is_degraded: bool) -> str:
    """Describe what a context engine did for a turn, in one line."""
    given = _given(context)
    if not is_degraded:
        parts = [given or "nothing to give", _thread(context)]
    elif given is None:
        parts = [_degraded(context), _thread(context)]
    else:
        parts = [given, _thread(context), _degraded(context)]
    return legible(f"{context.engine}: {'; '.join(parts)}")


def _given(context: TurnContext) -> str | None:
    """Return what the thread was given. None if that is nothing."""
    addition = context.addition_words
    dropped = f", {context.dropped} left out" if context.dropped else ""
    if context.how != "none":
        messages = f"{context.given} of {context.assembled} messages given as {context.how}{dropped}"
    elif addition is None and not dropped:
        return None
    else:
        messages = f"no messages{dropped}"
    return messages if addition is None else f"{addition}; {messages}"


def _thread(context: TurnContext) -> str:
    """Return which native thread took the turn, with the reason if that adds anything."""
    match context.thread:
        case "resume":
            return "same thread"
        case "fork":
            return "forked thread"
        case "start":
            return f"new thread: {_NO_THREAD if context.reason == ThreadReason.NONE else context.reason}"


def render_compaction(compaction: Compaction) -> RenderableType:
    """Render what a compaction achieved, and below it the agent's own if that ran beside the engine's."""
    is_good = compaction.status in (CompactStatus.COMPACTED, CompactStatus.NOT_NEEDED)
    style = "green" if is_good else "yellow" if compaction.status is CompactStatus.NO_PROGRESS else "red"
    lines = [Text(_compaction(compaction), style=style)]
    for name, detail in compaction.details.items():
        lines.append(Text(f"  {legible(name)}: {legible(_detail(name, detail))}", style="dim"))
    return Group(*lines)


def _detail(name: str, detail: object) -> str:
    if name in NATIVE_DETAILS:
        # An engine may use the same name for anything.
        with suppress(msgspec.ValidationError):
            return _compaction(decoding.convert(detail, Compaction))
    return str(detail)


def _compaction(compaction: Compaction) -> str:
    before, after = compaction.tokens_before, compaction.tokens_after
    tokens = "" if before is None or after is None else f": {before:,} → {after:,} tokens"
    reason = "" if compaction.reason is None else f" ({one_line(compaction.reason, limit=_EXCERPT)})"
    return f"{compaction.status.replace('_', ' ')}{tokens}{reason}"


def render_found(found: Sequence[FoundEntry]) -> RenderableType:
    """Render the entries that a search found."""
    return Group(*(Text(f"  turn {each.turn:<4} {_entry(each.message)}") for each in found))


def _entry(message: Message) -> str:
    match message.part:
        case UserPart(text=text):
            said = f"user   {one_line(text, limit=_EXCERPT)}"
        case CallPart(name=name, input=given):
            said = f"call   {legible(describe_call(name, given, limit=_EXCERPT))}"
        case ResultPart(output=output):
            said = f"result {one_line(output or '', limit=_EXCERPT)}"
        case part:
            said = f"agent  {one_line(part.text, limit=_EXCERPT)}"
    return f"{said}  ({legible(message.id)})"


def render_removal(removal: SessionRemoval) -> RenderableType:
    rows = [
        *(("removed", each, "") for each in removal.removed),
        *(("left", each, "") for each in removal.left),
        *(("FAILED", each, "bold red") for each in removal.failed),
    ]
    return Group(*(Text(f"{word:8} {legible(what)}", style=style) for word, what, style in rows))


def render_verification(found: SessionVerification) -> RenderableType:
    entries = "1 entry" if found.entries == 1 else f"{found.entries:,} entries"
    counts = f"{plural(found.turns, 'turn')} with {entries}"
    parts: list[RenderableType] = [render_findings(found.findings)] if found.findings else []
    parts += (
        Text(
            f"The state of the engine {legible(id_)} is kept in engines.old; the next turn gives it the whole history."
        )
        for id_ in found.set_aside
    )
    is_different = any(not each.code.startswith("engine.") for each in found.findings)
    match found.exit:
        case Exit.EVIDENCE if not is_different:
            parts.append(Text(f"The state of an engine of {legible(found.id)} cannot be used.", style="bold red"))
        case Exit.OK:
            parts.append(Text(f"{legible(found.id)} agrees with its record: {counts} compared.", style="green"))
        case Exit.UNVERIFIED:
            parts.append(
                Text(
                    f"{counts} compared; the record of the others was deleted, so they cannot be compared.",
                    style="yellow",
                )
            )
        case _:
            parts.append(Text(f"{legible(found.id)} differs from its record.", style="bold red"))
    return Group(*parts)
