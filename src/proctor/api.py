"""The public API, `import proctor`: sessions, pools of sessions, campaigns, and the types they use."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import anyio.to_thread
import msgspec
from msgspec import to_builtins

from proctor import decoding
from proctor.attempt.converse import LiveSession as Session
from proctor.attempt.converse import Turn
from proctor.attempt.hold import RecordMode
from proctor.attempt.model import DECIDE_S
from proctor.attempt.stream import OffsetEvent
from proctor.campaign.freeze import read_given
from proctor.campaign.run import run_campaign
from proctor.campaign.session_engine import DEFAULT_ENGINE, NO_ENGINE, ContextRequest
from proctor.campaign.sessions import ConversationRequest, KeptRequest, Sessions, open_sessions
from proctor.campaign.suite import flows_on
from proctor.campaign.watch import CampaignWatcher
from proctor.config.load import load_config
from proctor.config.project import load_project_built, load_project_spec, probes_for_task_class
from proctor.context.compaction import Compaction
from proctor.context.engine import CompactStatus, Complete
from proctor.context.hooks import CompactionHook, CompactionNotice, PromptDraft, PromptHook
from proctor.context.model import SessionSettings, SessionTurn, TurnContext
from proctor.context.payload import Payload
from proctor.context.project import ProjectionMode
from proctor.context.registry import engine_by_id
from proctor.context.report import SessionSummary, list_sessions
from proctor.errors import (
    DeadlineError,
    EvidenceError,
    HangupError,
    InputError,
    MachineError,
    PeerError,
    ProctorError,
    RefusedError,
    WireError,
)
from proctor.errors.arguments import ArgumentChecker, wrong_argument
from proctor.event.model import (
    ApprovalAsked,
    ApprovalResolved,
    Cancelled,
    ClockFired,
    CompactionBegan,
    CompactionEnded,
    ContextAssembled,
    ContextDegraded,
    ErrorReported,
    Event,
    FactsStated,
    FailureObserved,
    FrameNoted,
    HistoryGiven,
    HistoryOffered,
    HistoryRead,
    HookRan,
    LimitReached,
    ModelRerouted,
    NoteMade,
    ProcessExited,
    PromptSent,
    ReasoningSaid,
    ReasoningStreamed,
    ReplyReceived,
    RequestSent,
    ResultFound,
    ScriptUnfit,
    SessionBegan,
    SessionRefused,
    StatusChanged,
    StreamEnded,
    TextSaid,
    TextStreamed,
    ThreadLeft,
    ToolBegan,
    ToolEnded,
    ToolStreamed,
    TurnAsked,
    TurnBegan,
    TurnCommitted,
    TurnEnded,
    TurnSettled,
    TurnSteered,
    Unrecognized,
    UsageReported,
    WarningRaised,
)
from proctor.event.outcome import Ending, Outcome
from proctor.event.row import FailurePolicy
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.ids import FlowId, MissionId, RuntimeId, ThreadId
from proctor.report.campaign import CampaignReport
from proctor.report.write_report import write_report
from proctor.runtime.base import Decide, Decision, Question, Tool, Yield
from proctor.spec.campaign_options import LimitsSpec as Limits
from proctor.spec.campaign_options import SelectSpec as Select
from proctor.spec.choices import Approvals
from proctor.spec.collect_errors import raise_collected
from proctor.spec.command_probes import (
    HeadlessRun,
    ImportSmoke,
    Normalization,
    OutputFile,
    OutputFixtureDiff,
    OutputFormat,
    StdoutCase,
    StdoutGolden,
)
from proctor.spec.context_settings import ContextSettings
from proctor.spec.duration import parse_duration_s
from proctor.spec.expect import ExpectSpec as Expect
from proctor.spec.load import LoadedSpec, SpecOverrides
from proctor.spec.model import CampaignSpec as Campaign
from proctor.spec.model import FlowSpec as Flow
from proctor.spec.model import MissionSpec as Mission
from proctor.spec.model import ModelSpec as Model
from proctor.spec.model import WorkspaceSpec as Workspace
from proctor.spec.page_probes import BrowserSmoke, BrowserStep, RenderHash
from proctor.spec.service_probes import (
    ApiSmoke,
    ChangeKind,
    CheckedRequest,
    ResponseExpect,
    SideEffect,
    SinkCall,
    SqliteQuery,
    StatedChange,
)
from proctor.spec.service_probes import RequestSpec as Request
from proctor.spec.service_probes import ServiceSpec as Service
from proctor.spec.struct import Duration
from proctor.spec.suite_probes import ControlFiles, TestSuiteParity, UnitTests
from proctor.spec.task_classes import ClassProbe
from proctor.spec.trace_probes import SimTrace, TraceLaw

__all__ = [
    "ApiSmoke",
    "ApprovalAsked",
    "ApprovalResolved",
    "Approvals",
    "BrowserSmoke",
    "BrowserStep",
    "Campaign",
    "CampaignReport",
    "Cancelled",
    "ChangeKind",
    "CheckedRequest",
    "ClassProbe",
    "ClockFired",
    "CompactStatus",
    "Compaction",
    "CompactionBegan",
    "CompactionEnded",
    "CompactionNotice",
    "Context",
    "ContextAssembled",
    "ContextDegraded",
    "ControlFiles",
    "DeadlineError",
    "Decide",
    "Decision",
    "Ending",
    "ErrorReported",
    "Event",
    "EvidenceError",
    "EvidenceKept",
    "Expect",
    "FactsStated",
    "FailureObserved",
    "Flow",
    "FlowId",
    "FrameNoted",
    "HangupError",
    "HeadlessRun",
    "HistoryGiven",
    "HistoryOffered",
    "HistoryRead",
    "HookRan",
    "ImportSmoke",
    "InputError",
    "LimitReached",
    "Limits",
    "MachineError",
    "Mission",
    "MissionId",
    "Model",
    "ModelRerouted",
    "Normalization",
    "NoteMade",
    "OffsetEvent",
    "Outcome",
    "OutputFile",
    "OutputFixtureDiff",
    "OutputFormat",
    "PeerError",
    "Pool",
    "ProcessExited",
    "ProctorError",
    "PromptDraft",
    "PromptSent",
    "Question",
    "ReasoningSaid",
    "ReasoningStreamed",
    "RefusedError",
    "RenderHash",
    "ReplyReceived",
    "Request",
    "RequestSent",
    "ResponseExpect",
    "ResultFound",
    "RuntimeId",
    "ScriptUnfit",
    "Select",
    "Service",
    "Session",
    "SessionBegan",
    "SessionRefused",
    "SessionSummary",
    "SessionTurn",
    "SideEffect",
    "SimTrace",
    "SinkCall",
    "SqliteQuery",
    "StatedChange",
    "StatusChanged",
    "StdoutCase",
    "StdoutGolden",
    "StreamEnded",
    "TestSuiteParity",
    "TextSaid",
    "TextStreamed",
    "ThreadLeft",
    "Tool",
    "ToolBegan",
    "ToolEnded",
    "ToolStreamed",
    "TraceLaw",
    "Turn",
    "TurnAsked",
    "TurnBegan",
    "TurnCommitted",
    "TurnContext",
    "TurnEnded",
    "TurnSettled",
    "TurnSteered",
    "UnitTests",
    "Unrecognized",
    "UsageReported",
    "WarningRaised",
    "WireError",
    "Workspace",
    "Yield",
    "pool",
    "probes_for_task_class",
    "run",
    "session",
    "sessions",
]  # fmt: skip

EvidenceKept: TypeAlias = Literal["off", "memory", "disk"]
ProfileName: TypeAlias = Literal["fresh", "mine"]
SandboxName: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
Approving: TypeAlias = Literal["deny", "accept", "workspace"] | Decide
"""A policy, or an async function that answers each question: `async def decide(question) -> Decision`."""

SecretsGiven: TypeAlias = Sequence[str | Path] | Mapping[str, str]
"""Values to mask by their names; or names of environment variables, and paths of files with secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context engine of a session with an id: it decides what the model should know in each turn."""

    engine: str = DEFAULT_ENGINE
    """Id of the engine: `none`, `window`, `lossless`, or a plugin that the config names."""
    policy: FailurePolicy = "degrade"
    """What follows if the engine fails: `degrade` runs the turn without it, `strict` refuses the turn."""
    mode: Literal["per_turn", "thread_bootstrap"] | None = None
    """When the agent's thread is given the context. None for what the engine asks for."""
    window: int | None = None
    """Tokens of the model's context window, where the agent does not report it. None for 128,000."""
    tools: Literal["elided", "shape", "whole"] | None = None
    """How much of tool calls is given. None for all of it as items of the agent, and its shape as text."""
    complete: Complete | Literal["agent"] | None = None
    """Calls a model for the engine: an async function that takes a prompt and returns the answer; or `agent`, the
    session's own agent, read-only, in a separate attempt. None if the engine has no model."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the engine."""


SESSION_LIMITS = Limits(attempt="1h", turn="10m", stall="2m")
"""The default limits of a session. `attempt` and `tokens` apply to the whole session."""


def session(
    runtime: str = "codex_app_server",
    *,
    workspace: str | Path | None = None,
    model: Model | str | None = None,
    login: str | None = None,
    sandbox: SandboxName = "workspace-write",
    approvals: Approving = "deny",
    approval_deadline: Duration = DECIDE_S,
    tools: Sequence[Tool] = (),
    tool_deadline: Duration = DECIDE_S,
    limits: Limits = SESSION_LIMITS,
    evidence: EvidenceKept | None = None,
    root: str | Path | None = None,
    script: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    secrets: SecretsGiven = (),
    profile: ProfileName = "fresh",
    id: str | None = None,  # noqa: A002  the name that a caller expects
    ephemeral: bool = False,
    thread: str | None = None,
    context: Context | None = None,
    before_prompt_build: Sequence[PromptHook] = (),
    before_compaction: Sequence[CompactionHook] = (),
    after_compaction: Sequence[CompactionHook] = (),
) -> AbstractAsyncContextManager[Session]:
    """Open a conversation with an agent. It has its own process, which always ends with the block.

        async with proctor.session(workspace="shop", model="openai/gpt-5.5", login="api-key") as s:
            async for event in s.say("Why does the test fail?"):
                if isinstance(event, proctor.TextStreamed):
                    print(event.text, end="")
            print(s.outcome, s.answer)

    The agent works directly in `workspace`, or in an empty folder that is deleted with the session. `model` is a Model
    or "provider/name"; with `script` the scripted model is used and nothing leaves the machine. `evidence` keeps only
    the latest events (`off`), all events in memory (`memory`), or a sealed folder under `root` (`disk`). `secrets` are
    masked in all of them: values by name (`{"TENANT_TOKEN": token}`), or names of variables and paths of files.

    With an `id` the session can be opened again, in this or another process, and knows what was said: its evidence is
    on disk, and the agent's home and the workspace are kept in the user's state folder until the session is deleted.
    `thread` begins it with a thread that the agent keeps already, such as one of the user's own (`profile="mine"`).
    `context` is its context engine, by default that of proctor.toml. With one, the session also continues on another
    runtime, or on a new thread, and with `ephemeral` no native thread is kept. `before_prompt_build` may change what
    the agent is given; `before_compaction` and `after_compaction` observe every compaction.
    """
    given = dict(locals())
    _check("session", given)
    if model is None and script is None:
        raise _no_model("session", is_kept=id is not None)
    if id is not None and evidence not in (None, "disk"):
        raise _wrong("evidence", "a session with an id keeps its evidence on disk")
    given["evidence"] = evidence or ("off" if id is None else "disk")
    return _session(**given)


@asynccontextmanager
async def _session(
    *,
    runtime: str,
    sandbox: SandboxName,
    script: str | Path | None,
    model: Model | str | None,
    login: str | None,
    evidence: str,
    root: str | Path | None,
    options: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
    secrets: SecretsGiven,
    profile: ProfileName,
    **request: Any,
) -> AsyncIterator[Session]:
    async with (
        _open(
            runtime, isolation="process", sandbox=sandbox, model=model, login=login, script=script, evidence=evidence,
            root=root, options=options, env=env, secrets=secrets, profile=profile,
        ) as opened,
        opened.session(sandbox=sandbox, script=script, **request) as live,
    ):  # fmt: skip
        yield live


def pool(
    runtime: str = "codex_app_server",
    *,
    model: Model | str | None = None,
    login: str | None = None,
    evidence: EvidenceKept = "off",
    root: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    secrets: SecretsGiven = (),
    profile: ProfileName = "fresh",
) -> AbstractAsyncContextManager["Pool"]:
    """Open one warm agent process for many sessions. It is replaced when it dies, and ends with the block.

    Suitable for the lifespan of a web application.

        async with proctor.pool(model="openai/gpt-5.5", login="api-key") as pool:
            async with pool.session(workspace="shop") as s:
                print((await s.say("What is this?")).outcome, s.answer)

    Without a model, each session needs a script. `secrets` are masked in every session, as in `proctor.session`.
    """
    given = dict(locals())
    _check("pool", given)
    return _open(isolation="shared", **given)


class Pool:
    """Opens sessions on one process."""

    def __init__(self, sessions: Sessions, spec: Mapping[str, Any]) -> None:
        self._sessions = sessions
        self._spec = spec

    def session(
        self,
        *,
        workspace: str | Path | None = None,
        sandbox: SandboxName = "workspace-write",
        approvals: Approving = "deny",
        approval_deadline: Duration = DECIDE_S,
        tools: Sequence[Tool] = (),
        tool_deadline: Duration = DECIDE_S,
        limits: Limits = SESSION_LIMITS,
        script: str | Path | None = None,
        id: str | None = None,  # noqa: A002  the name that a caller expects
        ephemeral: bool = False,
        thread: str | None = None,
        context: Context | None = None,
        before_prompt_build: Sequence[PromptHook] = (),
        before_compaction: Sequence[CompactionHook] = (),
        after_compaction: Sequence[CompactionHook] = (),
    ) -> AbstractAsyncContextManager[Session]:
        """Open a conversation like `proctor.session`, but on the shared process, where full access is not allowed.

        A session with an `id` needs a pool with `evidence="disk"`. Its native thread lives as long as that process, and
        so does its workspace if `workspace` names none.
        """
        given = dict(locals())
        del given["self"]
        _check("session", given)
        if script is None and "model" not in self._spec["flows"][0]:
            raise _no_model("session")
        hooks = (*before_prompt_build, *before_compaction, *after_compaction)
        if id is None and (ephemeral or hooks or thread is not None or context is not None):
            raise _wrong("id", "`ephemeral`, `thread`, `context` and hooks are for sessions with an `id`")
        chosen = None if id is None else _context_settings(context)
        if hooks and chosen is not None and chosen.engine == NO_ENGINE:
            raise _wrong("context", f"hooks need a context engine, and the engine is `{NO_ENGINE}`")
        for name in ("mission", "campaign", "usd"):
            if getattr(limits, name) is not None:
                what = "this limit is for campaigns; a session has the limits attempt, turn, stall, tokens and evidence"
                raise _wrong(f"limits.{name}", what)
        decide = approvals if callable(approvals) else None
        written = "ask" if callable(approvals) else str(approvals)
        if decide is None and written == Approvals.ASK:
            what = '`approvals="ask"` has nothing to ask: pass an async function as `approvals`'
            raise InputError("policy.no-approver", what, file=_NAME, key="approvals")
        spec = _with(self._spec, flow={"sandbox": sandbox, "approvals": written}, script=script, limits=limits)
        with _parameters_named():
            loaded = load_project_built(spec, name=_NAME, folder=Path.cwd())
        request = ConversationRequest(
            loaded=loaded,
            workspace=None if workspace is None else _folder(workspace),
            decide=decide,
            decide_deadline_s=_seconds(approval_deadline, key="approval_deadline"),
            tools=tuple(tools),
            tool_deadline_s=_seconds(tool_deadline, key="tool_deadline"),
            kept=None
            if id is None
            else KeptRequest(
                key=id,
                settings=_settings(
                    spec, workspace=workspace, script=script, context=None if context is None else chosen
                ),
                is_ephemeral=ephemeral,
                adopted=None if thread is None else ThreadId(thread),
                context=None
                if chosen is None or chosen.engine == NO_ENGINE
                else ContextRequest(
                    settings=chosen,
                    source=load_config(Path.cwd()).context_file if context is None else None,
                    complete=context.complete if context is not None and callable(context.complete) else None,
                    before_prompt_build=tuple(before_prompt_build),
                    before_compaction=tuple(before_compaction),
                    after_compaction=tuple(after_compaction),
                ),
            ),
        )
        with _parameters_named():
            return self._sessions.session(request)


def session_settings(
    runtime: str,
    *,
    workspace: str | Path | None = None,
    model: Model | str | None = None,
    login: str | None = None,
    sandbox: SandboxName = "workspace-write",
    approvals: str = "deny",
    script: str | Path | None = None,
    profile: ProfileName = "fresh",
    context: Context | None = None,
) -> SessionSettings:
    """Check how a session would be opened, and return that. Opens nothing. Raises InputError as `session` does."""
    _check("session", dict(locals()))
    if model is None and script is None:
        raise _no_model("session")
    spec = _conversation(runtime, isolation="process", model=model, login=login, profile=profile, sandbox=sandbox)
    spec = _with(spec, flow={"approvals": approvals}, script=script)
    with _parameters_named():
        load_project_built(spec, name=_NAME, folder=Path.cwd())
    # The configured one is checked too, and not stored: it may change until the session is opened.
    chosen = _context_settings(context)
    return _settings(spec, workspace=workspace, script=script, context=None if context is None else chosen)


def sessions(root: str | Path | None = None) -> tuple[SessionSummary, ...]:
    """Return the sessions under an evidence root that can be opened again, the one that was asked last first."""
    return list_sessions(RootPaths(_root(root)))


async def run(
    spec: str | Path | Campaign | Mapping[str, Any],
    *,
    on: Sequence[str] | None = None,
    select: Select | None = None,
    root: str | Path | None = None,
    decide: Decide | None = None,
    approval_deadline: Duration = DECIDE_S,
    resume: str | None = None,
    allow_unjudgeable: bool = False,
) -> CampaignReport:
    """Run a campaign, keep its evidence, and return the report.

    `spec` is a file, or a Campaign or mapping with the same content. For each attempt the report has its outcome, what
    the agent claimed, what was verified, and its folder.

        report = await proctor.run("examples/quickstart.yaml")
        for attempt in report.attempts:
            print(attempt.mission_id, attempt.outcome, attempt.claimed, attempt.verified, attempt.dir)

    `on` runs the spec as a suite: each runtime named there becomes a flow, replacing the spec's own flows. `select`
    narrows its missions. `decide` answers approvals in flows with `approvals: ask`. In a Campaign or mapping, relative
    paths start from the current folder. `resume` is the id of a campaign of this spec: its remaining trials are run
    with the `on` and `select` it was started with, and the report covers the whole campaign.

    Each probe is first run once on the untouched workspace. If one passes there, InputError is raised, and if one
    cannot run, MachineError; with `allow_unjudgeable` its trials run instead and end unscored.
    """
    _check("run", dict(locals()))
    place = _root(root)
    # Files are read and written in threads: the event loop may belong to the caller's server.
    campaign = None if resume is None else await anyio.to_thread.run_sync(_campaign, place, resume)
    loaded = await anyio.to_thread.run_sync(lambda: _load(spec, on=on, select=select, resume=campaign))
    result = await run_campaign(
        loaded,
        root=place,
        watcher=CampaignWatcher(),
        decide=decide,
        decide_deadline_s=_seconds(approval_deadline, key="approval_deadline"),
        resume=campaign,
        is_unjudgeable_allowed=allow_unjudgeable,
    )
    reasons = {each.attempt_id: str(each.error) for each in result.attempts if each.error is not None}
    report = await anyio.to_thread.run_sync(
        lambda: write_report(result.paths, root=place, redactor=result.redactor, reasons=reasons)
    )
    if result.failure is not None:
        raise result.failure
    return report


def _load(
    spec: str | Path | Campaign | Mapping[str, Any],
    *,
    on: Sequence[str] | None,
    select: Select | None,
    resume: CampaignPaths | None,
) -> LoadedSpec:
    folder = Path(spec).absolute().parent if isinstance(spec, str | Path) else Path.cwd()
    if resume is None:
        flows = None if on is None else flows_on(on, config=load_config(folder))
        overrides = SpecOverrides(select=select or Select(), flows=flows)
    else:
        overrides = read_given(resume)
    if isinstance(spec, str | Path):
        return load_project_spec(Path(spec), overrides=overrides)
    return load_project_built(spec, name="campaign", folder=folder, overrides=overrides)


# ── checking arguments ──

_TWO_WAYS = (
    'For a real model, pass model="openai/gpt-5.5" and login="api-key" (docs/howto/logins.md). To try it offline and '
    'without cost, pass script="FILE": the scripted model plays it (docs/reference/script.md, examples/session.py).'
)
_ANSWERS = "an async function that takes a Question and returns a Decision"


def _no_model(function: str, *, is_kept: bool = False) -> InputError:
    what = "a session needs a model to talk to, or a script for the scripted model; this one has neither"
    if is_kept:
        what += "; an `id` does not bring back how the session was opened before (`proctor session show` prints that)"
    return InputError("spec.missing-key", what, file=function, key="model", suggestion=_TWO_WAYS)


def _check(function: str, given: Mapping[str, Any]) -> None:
    """Check the types of arguments by parameter name. Raises InputError for the first wrong one."""
    check = ArgumentChecker(function)
    for name, value in given.items():
        match name:
            case "runtime":
                check.text(name, value)
            case "login" | "resume" | "id" | "thread":
                check.text(name, value, is_optional=True)
            case "workspace" | "root" | "script":
                check.path(name, value)
            case "model":
                check.instance(name, value, (Model, str), expected="a Model or provider/name", is_optional=True)
            case "sandbox":
                check.choice(name, value, get_args(SandboxName))
            case "evidence" if value is not None:
                check.choice(name, value, get_args(EvidenceKept))
            case "profile":
                check.choice(name, value, get_args(ProfileName))
            case "approvals" if isinstance(value, str):
                check.choice(name, value, tuple(Approvals))
            case "approvals":
                check.async_function(name, value, expected=f"deny, accept, workspace, or {_ANSWERS}")
            case "decide" if value is not None:
                check.async_function(name, value, expected=_ANSWERS)
            case "approval_deadline" | "tool_deadline":
                check.duration(name, value)
            case "tools":
                _check_tools(check, value)
            case "limits":
                check.instance(name, value, Limits, expected='proctor.Limits, as in Limits(turn="5m")')
            case "options":
                check.mapping(name, value)
            case "env":
                check.mapping(name, value, is_text=True)
            case "secrets" if isinstance(value, Mapping):
                check.mapping(name, value, is_text=True)
            case "secrets":
                check.items(name, value, (str, Path), expected="names of variables and Paths, or a mapping of values")
            case "ephemeral" | "allow_unjudgeable":
                check.flag(name, value)
            case "context":
                expected = 'proctor.Context, as in Context(engine="window")'
                check.instance(name, value, Context, expected=expected, is_optional=True)
                if value is not None:
                    _check_context(check, value)
            case "before_prompt_build" | "before_compaction" | "after_compaction":
                check.items(name, value, object, expected="async functions")
                for at, hook in enumerate(value):
                    check.async_function(f"{name}[{at}]", hook, expected="an async function")
            case "spec":
                check.instance(name, value, (str, Path, Campaign, Mapping), expected="a path, a Campaign or a mapping")
            case "on":
                check.items(name, value, str, expected="ids of runtimes", is_optional=True)
            case "select":
                check.instance(
                    name, value, Select, expected='proctor.Select, as in Select(tags=["quick"])', is_optional=True
                )


def _check_context(check: ArgumentChecker, context: Context) -> None:
    check.choice("context.policy", context.policy, get_args(FailurePolicy))
    if context.mode is not None:
        check.choice("context.mode", context.mode, tuple(ProjectionMode))
    if context.tools is not None:
        check.choice("context.tools", context.tools, tuple(Payload))
    check.mapping("context.options", context.options, is_optional=False)
    if context.complete is not None and context.complete != "agent":
        expected = "`agent`, or an async function that takes a prompt and returns the answer"
        check.async_function("context.complete", context.complete, expected=expected)


def _check_tools(check: ArgumentChecker, tools: Sequence[Tool]) -> None:
    check.items("tools", tools, Tool, expected="proctor.Tool")
    for at, tool in enumerate(tools):
        key = f"tools[{at}]"
        check.text(f"{key}.name", tool.name)
        check.text(f"{key}.description", tool.description)
        check.mapping(f"{key}.schema", tool.schema, is_optional=False)
        check.async_function(f"{key}.call", tool.call, expected="an async function that returns a text")


# ── translating arguments into a spec ──

_NAME = "session"
_SCRIPT_KEY = "missions[0].script"
_SPEC_PLACES = ("flows[0].", "missions[0].")


@asynccontextmanager
async def _open(
    runtime: str,
    *,
    isolation: str,
    model: Model | str | None,
    login: str | None,
    evidence: str,
    root: str | Path | None,
    options: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
    secrets: SecretsGiven,
    profile: ProfileName,
    sandbox: str = "workspace-write",
    script: str | Path | None = None,
) -> AsyncIterator[Pool]:
    values = dict(secrets) if isinstance(secrets, Mapping) else {}
    names = [] if isinstance(secrets, Mapping) else [_secret_source(each) for each in secrets]
    spec = _conversation(
        runtime, isolation=isolation, model=model, login=login, options=options, env=env, profile=profile,
        sandbox=sandbox, secrets=names,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        with _parameters_named():
            loaded = load_project_built(
                _with(spec, script=script), name=_NAME, folder=Path.cwd(), ignored_key=_SCRIPT_KEY
            )
            opened = open_sessions(loaded, root=_root(root), keep=RecordMode(evidence), secrets=values)
            sessions = await stack.enter_async_context(opened)
        yield Pool(sessions, spec)


def _conversation(
    runtime: str,
    *,
    isolation: str,
    model: Model | str | None,
    login: str | None,
    profile: ProfileName,
    sandbox: str,
    options: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Sequence[str | dict[str, str]] = (),
) -> dict[str, Any]:
    """Return the spec of conversations, as far as all of a pool have it in common."""
    flow = {"id": "flow", "runtime": [runtime], "isolation": isolation, "sandbox": sandbox, "env": dict(env or {})}
    flow["profile"] = profile
    if login is not None:
        flow["login"] = login
    if model is not None:
        flow["model"] = _model(model)
    if options is not None:
        flow["options"] = {runtime: dict(options)}
    mission = {"id": "conversation", "prompt": "A conversation."}
    return {"version": 1, "campaign": _NAME, "missions": [mission], "flows": [flow], "secrets": list(secrets)}


@contextmanager
def _parameters_named() -> Iterator[None]:
    """Name the parameter in errors about the spec that arguments were translated into."""
    try:
        yield
    except InputError as error:
        if not any((each.key or "").startswith(_SPEC_PLACES) for each in error.all_errors):
            raise
        raise_collected([_with_parameter(each) for each in error.all_errors])


def _with_parameter(error: InputError) -> InputError:
    key = None if error.key is None else error.key.removeprefix("flows[0].").removeprefix("missions[0].")
    suggestion = error.suggestion
    if suggestion is not None and suggestion.startswith("Paths are relative to the spec's folder"):
        suggestion = _from_here()
    return InputError(error.code, error.what, file=error.file, line=error.line, key=key, suggestion=suggestion)


def _with(
    spec: Mapping[str, Any],
    *,
    flow: Mapping[str, Any] | None = None,
    script: str | Path | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Return the spec with the settings of one session added."""
    mission = dict(spec["missions"][0])
    if script is not None:
        mission["script"] = str(Path(script).absolute())
    more = {} if limits is None else {"limits": to_builtins(limits)}
    return {**spec, "missions": [mission], "flows": [{**spec["flows"][0], **(flow or {})}], **more}


def _settings(
    spec: Mapping[str, Any],
    *,
    workspace: str | Path | None,
    script: str | Path | None,
    context: ContextSettings | None,
) -> SessionSettings:
    """Return how a session is opened, without secrets and variables."""
    [flow] = spec["flows"]
    model = flow.get("model", {})
    return SessionSettings(
        runtime=flow["runtime"][0],
        workspace=None if workspace is None else str(_folder(workspace)),
        provider=model.get("provider"),
        model=model.get("name"),
        base_url=model.get("base_url"),
        login=flow.get("login"),
        sandbox=flow["sandbox"],
        approvals=flow["approvals"],
        profile=flow["profile"],
        script=None if script is None else str(Path(script).absolute()),
        context=context,
    )


def _context_settings(context: Context | None) -> ContextSettings:
    """Return which context engine a session uses: as given, else as configured, else the built-in default.

    Raises InputError for an engine that does not exist or is not in the config, MachineError for one that is broken.
    """
    if context is None:
        config = load_config(Path.cwd())
        settings = config.context or ContextSettings(engine=DEFAULT_ENGINE)
        try:
            engine_by_id(settings.engine, config)
        except InputError as error:
            if (file := config.context_file) is None:
                raise
            raise file.error(error.code, error.what, key="context.engine", suggestion=error.suggestion) from error
        return settings
    complete = None if callable(context.complete) else context.complete
    given = {each.name: getattr(context, each.name) for each in fields(context)}
    try:
        settings = decoding.convert({**given, "options": dict(context.options), "complete": complete}, ContextSettings)
    except (msgspec.ValidationError, TypeError) as error:
        raise _wrong("context", str(error)) from error
    try:
        engine_by_id(settings.engine)
    except InputError as error:
        raise InputError(
            error.code, error.what, file=_NAME, key="context.engine", suggestion=error.suggestion
        ) from error
    return settings


def _model(model: Model | str) -> dict[str, Any]:
    if isinstance(model, Model):
        return {"provider": model.provider, **dict(to_builtins(model))}
    provider, slash, name = model.partition("/")
    if not slash:
        raise _wrong("model", f"{model!r} does not have the form provider/name")
    return {"provider": provider, "name": name}


def _secret_source(source: str | Path) -> str | dict[str, str]:
    return {"file": str(source.expanduser().absolute())} if isinstance(source, Path) else source


def _folder(workspace: str | Path) -> Path:
    folder = Path(workspace).expanduser().absolute()
    if not folder.is_dir():
        what = f"there is no folder {folder}"
        raise InputError("spec.missing-file", what, file=_NAME, key="workspace", suggestion=_from_here())
    return folder


def _from_here() -> str:
    return f"Paths are relative to the current folder, {Path.cwd()}."


def _seconds(written: Duration, *, key: str) -> float:
    try:
        return parse_duration_s(written)
    except ValueError as error:
        raise _wrong(key, str(error)) from None


def _campaign(root: Path, id_: str) -> CampaignPaths:
    # Looked up instead of joined to a path: an id with slashes could lead anywhere.
    for campaign in RootPaths(root).campaigns():
        if campaign.folder.name == id_:
            return campaign
    raise InputError("evidence.not-found", f"there is no campaign {id_!r} under {root}", file=_NAME, key="resume")


def _root(root: str | Path | None) -> Path:
    return Path(root or os.environ.get("PROCTOR_ROOT") or ".proctor")


def _wrong(key: str, what: str) -> InputError:
    return wrong_argument(_NAME, key, what)
