"""Open a session as it was opened last, ask a turn, and report how that ended."""

import shlex
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec import structs

from proctor.api import (
    SESSION_LIMITS,
    Approving,
    Context,
    Limits,
    Model,
    ProfileName,
    SandboxName,
    Session,
    session,
    session_settings,
)
from proctor.campaign.suite import flows_on
from proctor.clock import SYSTEM_CLOCK
from proctor.config.load import load_config
from proctor.context.compaction import Compaction
from proctor.context.engine import CompactStatus
from proctor.context.kept_session import find_session, read_header, session_home
from proctor.context.model import SessionSettings, SessionTurn, SettingName, TurnState
from proctor.context.report import setup_of
from proctor.errors import Exit, InputError
from proctor.event.model import Event, ToolBegan, ToolEnded
from proctor.event.outcome import Outcome
from proctor.evidence.layout import RootPaths
from proctor.ids import CallId, SessionKey
from proctor.report.verdict import exit_of_turn, worst
from proctor.spec.choices import Approvals

_HOW_TO_OPEN: Final = (
    "For example `--on codex --model openai/gpt-5.5 --login api-key`, or `--on codex --script FILE` for the scripted "
    "model, which is offline and costs nothing."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a command that opens a session. None means as the last time."""

    runtime: str | None = None
    workspace: Path | None = None
    model: str | None = None
    login: str | None = None
    sandbox: str | None = None
    approvals: str | None = None
    script: Path | None = None
    engine: str | None = None
    policy: str | None = None
    window: int | None = None


class AskedTurn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn that was asked, with its answer."""

    id: SessionKey
    """Id of the session."""
    turn: SessionTurn
    """The turn, as it is stored."""
    answer: str | None
    """The last text that the agent said. Null if it said nothing."""
    tool_calls: int
    """Number of tool calls."""
    duration_ms: int
    """Duration of the turn, in milliseconds."""
    dir: str
    """Folder with the evidence of the sitting."""
    exit: int
    """Exit code: 0 if the turn completed, 1 if the agent failed, 3 for infrastructure, 130 if it was interrupted."""


def choose_settings(stored: SessionSettings | None, given: SessionOptions) -> SessionSettings:
    """Return how to open a session: as given, and for the rest as it was opened last.

    Raises InputError if a runtime, or a model and a script, are missing or not valid.
    """
    if given.model is not None and given.script is not None:
        raise InputError("usage", "--model and --script exclude each other: a script replaces the model")
    runtime = given.runtime or (None if stored is None else stored.runtime)
    if runtime is None:
        what = "--on is missing: there is no runtime with which the session was opened before"
        raise InputError("usage", what, suggestion=_HOW_TO_OPEN)
    # Raises InputError for an unknown one.
    flows_on([runtime], config=load_config(Path.cwd()))
    model, script, login = _choose_model(stored, given)
    if model is None and script is None:
        raise InputError("usage", "--model or --script is missing: the agent needs a model", suggestion=_HOW_TO_OPEN)
    last = stored or SessionSettings(runtime=runtime)
    return session_settings(
        runtime,
        workspace=given.workspace or last.workspace,
        model=model,
        login=login,
        sandbox=cast("SandboxName", given.sandbox or last.sandbox),
        # The callback that answers is in the program that opened the session last.
        approvals=given.approvals or (Approvals.DENY if last.approvals == Approvals.ASK else last.approvals),
        script=script,
        profile=cast("ProfileName", last.profile),
        context=_choose_context(last, given),
    )


def _choose_context(last: SessionSettings, given: SessionOptions) -> Context | None:
    """Return the context engine: as given, else as the session was opened last. None for the configured one."""
    stored = last.context
    changes = {"engine": given.engine, "policy": given.policy, "window": given.window}
    changed = {name: value for name, value in changes.items() if value is not None}
    if stored is not None and given.engine in (None, stored.engine):
        return Context(**{**structs.asdict(stored), **changed})
    if not changed:
        return None
    # The options of one engine mean nothing to another.
    configured = load_config(Path.cwd()).context
    start = {} if configured is None or given.engine not in (None, configured.engine) else structs.asdict(configured)
    return Context(**{**start, **changed})


def _choose_model(
    stored: SessionSettings | None, given: SessionOptions
) -> tuple[Model | str | None, Path | str | None, str | None]:
    """Return the model, the script and the login. A new model replaces a script, and a new script a model."""
    if given.script is not None:
        return None, given.script, given.login
    login = given.login or (None if stored is None else stored.login)
    if given.model is not None or stored is None:
        return given.model, None, login
    return _model_of(stored), stored.script, login


def _model_of(settings: SessionSettings) -> Model | None:
    if settings.provider is None:
        return None
    return Model(provider=settings.provider, name=settings.model, base_url=settings.base_url)


def settings_for(root: RootPaths, key: str, given: SessionOptions) -> SessionSettings:
    """Return how to open a session, which is created if it does not exist.

    Raises InputError `session.unknown` if it does not exist and the options do not say how to open it.
    """
    has_all = given.runtime is not None and (given.model or given.script) is not None
    try:
        setup = setup_of(root, key)
        if setup.lost:
            given = _name_lost(root, key, setup.lost, given)
        return choose_settings(setup.settings, given)
    except InputError as error:
        if error.code != "session.unknown":
            raise
        if has_all:
            return choose_settings(None, given)
        new = f"proctor session new {shlex.quote(key)} --on codex --model PROVIDER/NAME --login api-key"
        suggestion = new if error.suggestion is None else f"{error.suggestion} To create it: `{new}`"
        raise InputError(error.code, error.what, key=error.key, suggestion=suggestion) from error


def _name_lost(root: RootPaths, key: str, lost: Iterable[SettingName], given: SessionOptions) -> SessionOptions:
    """Return the options, without a workspace that is the session's own folder.

    Raises InputError if they do not name every setting that was lost: a default may allow more than the session did.
    """
    own = session_home(read_header(find_session(root, key))) / "workspace"
    missing = [word for name, word in _OPTIONS.items() if name in lost and not _is_given(name, given)]
    if missing:
        what = f"session.db was rebuilt without these settings of the session {key}: {', '.join(missing)}"
        suggestion = f"Name each of them once. The session's own workspace is `--workspace {shlex.quote(str(own))}`."
        raise InputError("usage", what, key="id", suggestion=suggestion)
    if given.workspace is not None and given.workspace.resolve() == own.resolve():
        return replace(given, workspace=None)
    return given


def _is_given(name: SettingName, given: SessionOptions) -> bool:
    if name == "model":
        return given.model is not None or given.script is not None
    if name == "login":
        return given.login is not None or given.script is not None
    return getattr(given, name) is not None


# The profile has no option: without it the agent gets a new home.
_OPTIONS: Final[dict[SettingName, str]] = {
    "runtime": "--on",
    "workspace": "--workspace",
    "model": "--model or --script",
    "login": "--login",
    "sandbox": "--sandbox",
    "approvals": "--approvals",
    "engine": "--engine",
}


class CompactedSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a compaction of a session achieved."""

    id: SessionKey
    """Id of the session."""
    compaction: Compaction
    """What it achieved."""
    dir: str
    """Folder with the evidence of the sitting."""
    exit: int
    """Exit code: 0 if it ended, 1 if the agent failed, 3 for infrastructure, 130 if it was interrupted."""


def report_compaction(live: Session, compaction: Compaction, *, is_interrupted: bool) -> CompactedSession:
    """Report a compaction that has ended."""
    assert live.key is not None, "the session has an id"
    code = exit_of_compaction(compaction, is_interrupted=is_interrupted)
    return CompactedSession(id=live.key, compaction=compaction, dir=str(live.folder), exit=code)


def exit_of_compaction(compaction: Compaction, *, is_interrupted: bool) -> int:
    """Return the exit code of a compaction. One that shortened nothing is no failure."""
    match compaction.status:
        case CompactStatus.FAILED:
            return exit_of_turn(Outcome.FAILED, compaction.code, is_interrupted=is_interrupted)
        case CompactStatus.ABORTED:
            return exit_of_turn(Outcome.CANCELLED, compaction.code, is_interrupted=is_interrupted)
        case _:
            return Exit.OK


def open_session(
    root: RootPaths, key: str, settings: SessionSettings, *, limits: Limits = SESSION_LIMITS
) -> AbstractAsyncContextManager[Session]:
    """Open a session, in a separate agent process."""
    return session(
        settings.runtime,
        workspace=settings.workspace,
        model=_model_of(settings),
        login=settings.login,
        sandbox=cast("SandboxName", settings.sandbox),
        approvals=cast("Approving", settings.approvals),
        limits=limits,
        root=root.folder,
        script=settings.script,
        profile=cast("ProfileName", settings.profile),
        id=key,
        context=None if settings.context is None else Context(**structs.asdict(settings.context)),
    )


class TurnMeter:
    """Counts what happens in a turn, and makes its report."""

    def __init__(self, live: Session) -> None:
        self._live = live
        self._began_s = SYSTEM_CLOCK.steady_s()
        self._calls: set[CallId] = set()

    def feed(self, event: Event) -> None:
        """Take an event of the turn."""
        if isinstance(event, ToolBegan | ToolEnded):
            self._calls.add(event.call)

    def report(self, *, is_interrupted: bool) -> AskedTurn:
        """Return the report of the turn, which is over."""
        live, ending = self._live, self._live.ending
        key, folder = live.key, live.folder
        assert key is not None, "the session has an id"
        assert folder is not None, "a session with an id keeps its evidence on disk"
        turn = live.turns[-1]
        code = exit_of_turn(ending.outcome, ending.code, is_interrupted=is_interrupted)
        if turn.state is TurnState.ADMITTED:
            code = worst([code, Exit.INFRASTRUCTURE])
        return AskedTurn(
            id=key,
            turn=turn,
            answer=live.answer,
            tool_calls=len(self._calls),
            duration_ms=round((SYSTEM_CLOCK.steady_s() - self._began_s) * 1000),
            dir=str(folder),
            exit=code,
        )
