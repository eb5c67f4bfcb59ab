"""Fold events into the facts about an attempt's agent and session. The statement with more authority wins. Pure."""

import re
from collections import Counter
from typing import Any

from proctor.event.credential import CredentialFold
from proctor.event.history import HistoryFold
from proctor.event.model import (
    Event,
    FactsStated,
    FrameNoted,
    ModelRerouted,
    ReasoningSaid,
    ReasoningStreamed,
    RequestSent,
    SessionBegan,
    TextStreamed,
    ToolStreamed,
    UsageAuthority,
    WarningRaised,
)
from proctor.event.status import StatusFold
from proctor.event.usage import Usage
from proctor.fact import UNKNOWN, Authority, Fact, settle

# Most events of a turn are of these types, and no fact depends on them.
_SILENT = frozenset({TextStreamed, ReasoningStreamed, ReasoningSaid, ToolStreamed, FrameNoted, RequestSent})

_NUMBER = re.compile(r"\d+\.\d+\S*")


class FactsFold:
    """Fold events into facts; `finish` returns them by name."""

    def __init__(self) -> None:
        self._stated: dict[str, Fact] = {}
        self._model: dict[str, Fact] = {}
        self._versions: dict[str, str] = {}
        self._warnings: Counter[tuple[str, str, bool]] = Counter()
        self._status = StatusFold()
        self._history = HistoryFold()
        self._credential = CredentialFold()

    def feed(self, event: Event) -> None:
        if type(event) in _SILENT:
            return
        match event:
            case FactsStated(facts=facts):
                for name, fact in facts.items():
                    self._state(name, fact)
            case SessionBegan(ephemeral=ephemeral, model=model):
                if ephemeral is not None:
                    persistence = "ephemeral" if ephemeral else "persistent"
                    self._state("persistence", _reported(persistence, "the agent, when it opened the thread", event))
                if model is not None:
                    self._state_part("effective", _reported(model, "the agent, when it opened the thread", event))
            case ModelRerouted(to=to):
                self._state_part("reroutedTo", _reported(to, "the agent", event))
            case WarningRaised(source=source, channel=channel):
                self._warnings[source, channel, event.is_inferred] += 1
            case _:
                pass
        self._status.feed(event)
        self._history.feed(event)
        self._credential.feed(event)

    def finish(self, usage: Usage | None) -> dict[str, Fact]:
        """Return the facts by name. `usage` is the result of `UsageFold` for the same events."""
        facts = {"credentialSource": UNKNOWN, "persistence": UNKNOWN, **self._stated}
        facts["model"] = self._settled_model()
        facts["versions"] = self._agreement()
        facts["usage"] = _usage_fact(usage)
        facts["threadStatus"] = self._status.thread
        facts["processState"] = self._status.process
        facts["warnings"] = self._warnings_fact()
        facts["credentialState"] = self._credential.fact(self._stated.get("credentialInput"))
        return facts | self._history.facts(facts["persistence"])

    # ── facts that are stated more than once, or in parts ──

    def _state(self, name: str, fact: Fact) -> None:
        if name == "model" and isinstance(fact.value, dict):
            for part, value in fact.value.items():
                self._state_part(part, Fact(value=value, authority=fact.authority, source=fact.source, refs=fact.refs))
            return
        if name == "identity" and isinstance(fact.value, dict):
            self._versions |= _versions_in(fact.value)
        elif name == "version" and isinstance(fact.value, str):
            self._versions[fact.source] = fact.value
        old = self._stated.get(name)
        self._stated[name] = fact if old is None else settle(old, fact)

    def _state_part(self, part: str, fact: Fact) -> None:
        old = self._model.get(part)
        self._model[part] = fact if old is None else settle(old, fact)

    def _settled_model(self) -> Fact:
        """Join the parts of the fact `model`. Its authority is that of the effective model, if known."""
        if not self._model:
            return UNKNOWN
        parts = {part: self._model.get(part, UNKNOWN) for part in (*self._model, "effective", "reroutedTo")}
        known = [fact for fact in parts.values() if fact.authority is not Authority.UNKNOWN]
        main = parts["effective"] if parts["effective"] in known else (known or [UNKNOWN])[0]
        return Fact(
            value={part: fact.value for part, fact in parts.items()},
            authority=main.authority,
            source=main.source,
            refs=tuple(ref for fact in parts.values() for ref in fact.refs),
            conflicts=tuple(each for fact in parts.values() for each in fact.conflicts),
        )

    def _agreement(self) -> Fact:
        """Return the fact `versions`: every known version of the program, and whether they agree."""
        numbers = {match[0] for version in self._versions.values() if (match := _NUMBER.search(version)) is not None}
        if not numbers:
            return UNKNOWN
        is_agreed = len(numbers) == 1 if len(self._versions) > 1 else None
        return Fact(
            value={**self._versions, "agree": is_agreed},
            authority=Authority.VERIFIED if is_agreed else Authority.REPORTED,
            source="every version that the program or its package reports",
        )

    def _warnings_fact(self) -> Fact:
        by_source: Counter[str] = Counter()
        by_channel: Counter[str] = Counter()
        inferred = 0
        for (source, channel, is_inferred), count in self._warnings.items():
            by_source[source] += count
            by_channel[channel] += count
            inferred += count * is_inferred
        value = {
            "total": by_source.total(),
            "bySource": dict(sorted(by_source.items())),
            "byChannel": dict(sorted(by_channel.items())),
            "inferred": inferred,
        }
        return Fact(
            value=value, authority=Authority.OBSERVED, source="the channel of each warning, or a rule where inferred"
        )


def _versions_in(identity: dict[str, Any]) -> dict[str, str]:
    """
    >>> _versions_in({"version": "codex-cli 0.163.0", "packageVersion": "0.163.0"})
    {'--version': 'codex-cli 0.163.0', 'package': '0.163.0'}
    """
    sources = {"--version": identity.get("version"), "package": identity.get("packageVersion")}
    return {source: value for source, value in sources.items() if isinstance(value, str)}


def _usage_fact(usage: Usage | None) -> Fact:
    if usage is None:
        value: dict[str, Any] = {"authority": UsageAuthority.NONE.value}
        return Fact(value=value, authority=Authority.UNKNOWN, source="not reported")
    checks = {turn.check for turn in usage.turns}
    return Fact(
        value={
            "totalTokens": None if usage.tokens is None else usage.tokens.total,
            "scope": usage.scope,
            "basis": usage.basis,
            "authority": usage.authority.value,
            "check": next((check for check in ("divergent", "equal") if check in checks), None),
        },
        authority=Authority.REPORTED,
        source="the strongest source for each turn",
    )


def _reported(value: str, source: str, event: Event) -> Fact:
    return Fact(value=value, authority=Authority.REPORTED, source=source, refs=(f"frames.jsonl:{event.frame}",))
