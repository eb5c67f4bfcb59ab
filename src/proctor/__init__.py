"""Proctor runs coding agents through their own runtimes and keeps proof of what they did.

    async with proctor.session(workspace="shop", model="openai/gpt-5.5", login="api-key") as s:
        async for event in s.say("Why does the test fail?"):
            ...

`proctor.session`, `proctor.pool` and `proctor.run` are where to begin; all that there is, is in `proctor.api`.
"""

__version__ = "0.1.0"

# What proctor.api offers. Named here, because importing it to ask would make every `from proctor import …` pay for it.
_OFFERED = frozenset(
    """
    ApprovalAsked ApprovalResolved Approvals Asked Campaign Cancelled ClockFired DeadlineError Decide Decision
    Ending ErrorReported Event EvidenceError EvidenceKept Expect FactsStated Flow FlowId HangupError HeadlessRun
    HistoryRead HookRan InputError LimitReached Limits MachineError Mission MissionId Model ModelRerouted NoteMade
    Noted Outcome PeerError Placed Pool ProcessExited ProctorError PromptSent Question ReasoningSaid
    ReasoningStreamed RefusedError Replied Report ResultFound Select Session SessionBegan SessionRefused
    StatusChanged StrategyId StreamEnded TextSaid TextStreamed Tool ToolBegan ToolEnded ToolStreamed Turn TurnAsked
    TurnBegan TurnEnded Unrecognized UsageReported WarningRaised WireError Workspace pool run session
    """.split()
)


def __getattr__(name: str) -> object:
    """Imported when it is first used: `proctor --version` needs none of it."""
    if name in _OFFERED:
        from importlib import import_module

        return getattr(import_module("proctor.api"), name)
    raise AttributeError(f"module 'proctor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
