"""Run coding agents through their own runtimes and keep proof of what they did.

    async with proctor.session(workspace="shop", model="openai/gpt-5.5", login="api-key") as s:
        async for event in s.say("Why does the test fail?"):
            ...

Start with `proctor.session`, `proctor.pool` or `proctor.run`. `proctor.api` defines every public name.
"""

__version__ = "0.1.0"

# Repeats `proctor.api.__all__`, because importing that module here would slow down every `import proctor`.
_PUBLIC = frozenset(
    """
    ApiSmoke ApprovalAsked ApprovalResolved Approvals BrowserSmoke BrowserStep Campaign CampaignReport Cancelled
    ChangeKind CheckedRequest ClassProbe ClockFired CompactStatus Compaction CompactionBegan CompactionEnded
    CompactionNotice Context ContextAssembled ContextDegraded ControlFiles DeadlineError Decide Decision Ending
    ErrorReported Event EvidenceError EvidenceKept Expect FactsStated FailureObserved Flow FlowId FrameNoted
    HangupError HeadlessRun HistoryGiven HistoryOffered HistoryRead HookRan ImportSmoke InputError LimitReached
    Limits MachineError Mission MissionId Model ModelRerouted Normalization NoteMade OffsetEvent Outcome OutputFile
    OutputFixtureDiff OutputFormat PeerError Pool ProcessExited ProctorError PromptDraft PromptSent Question
    ReasoningSaid ReasoningStreamed RefusedError RenderHash ReplyReceived Request RequestSent ResponseExpect
    ResultFound RuntimeId ScriptUnfit Select Service Session SessionBegan SessionRefused SessionSummary SessionTurn
    SideEffect SimTrace SinkCall SqliteQuery StatedChange StatusChanged StdoutCase StdoutGolden StreamEnded
    TestSuiteParity TextSaid TextStreamed ThreadLeft Tool ToolBegan ToolEnded ToolStreamed TraceLaw Turn TurnAsked
    TurnBegan TurnCommitted TurnContext TurnEnded TurnSettled TurnSteered UnitTests Unrecognized UsageReported
    WarningRaised WireError Workspace Yield pool probes_for_task_class run session sessions
    """.split()
)


def __getattr__(name: str) -> object:
    """Import a public name from `proctor.api` on first use, so that `proctor --version` stays fast."""
    if name in _PUBLIC:
        from importlib import import_module

        return getattr(import_module("proctor.api"), name)
    raise AttributeError(f"module 'proctor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
