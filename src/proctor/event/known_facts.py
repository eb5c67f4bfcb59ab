"""The facts of an attempt: what each can say, what it follows from, and on whose word. One table for code and docs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.event.credential import CredentialState
from proctor.event.history import Completeness
from proctor.event.model import UsageAuthority
from proctor.event.status import ProcessState, ThreadStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One row. `values` is a closed enum, or says what it looks like."""

    values: type[StrEnum] | str
    derivation: str
    authority: str


FACTS: Final[dict[str, Known]] = {
    # ── the thread ──
    "persistence": Known(
        values="ephemeral, persistent",
        derivation="What the flow asks for, and what the agent says of the thread it opened.",
        authority="declared, then reported; the flow's word is kept as a conflict where they differ",
    ),
    "history": Known(
        values=Completeness,
        derivation="From persistence, and from reading back what the agent keeps: prompts, messages and tools are "
        "compared with what was heard, by id where both have one and by content. Never from a warning.",
        authority="verified where it was compared; as persistence where it was not read",
    ),
    "historyDifferences": Known(
        values="a list: what differs, at most 20",
        derivation="Only where history is `hydrated-divergent` or `truncated`.",
        authority="verified",
    ),
    "threadStatus": Known(
        values=ThreadStatus,
        derivation="What the agent said of its thread last, else how its last turn ended. Unknown where it went away "
        "while the thread was active.",
        authority="reported, or inferred from the turn",
    ),
    "model": Known(
        values="{provider, requested, effective, reroutedTo}",
        derivation="The flow's model; the one that the agent says it uses; the one that answers instead.",
        authority="that of `effective`",
    ),
    "usage": Known(
        values="{totalTokens, scope, basis, authority, check}; its authority is one of "
        + ", ".join(f"`{each}`" for each in reversed(UsageAuthority)),
        derivation="The strongest word for each turn; `check` says whether weaker ones agree. Unknown is never zero.",
        authority="reported",
    ),
    "warnings": Known(
        values="{total, bySource, byChannel, inferred}",
        derivation="Counted. The channel says whose a warning is; what a rule attributed is counted as inferred.",
        authority="observed",
    ),
    "thread": Known(values="an id", derivation="The agent's own name for the thread.", authority="reported"),
    "approvals": Known(
        values="{policy, effective, areDenialsTold}",
        derivation="Of an agent that asks nobody: what it does instead.",
        authority="reported, or inferred",
    ),
    # ── the process and the program ──
    "processState": Known(
        values=ProcessState,
        derivation="Its exit status, if it was seen. That it lives says nothing of the thread.",
        authority="observed",
    ),
    "processFrames": Known(
        values="{from, to}",
        derivation="The rows of the runtime process's own record while this attempt had a place in it.",
        authority="observed",
    ),
    "identity": Known(
        values="{path, realPath, shims, sha256, sizeBytes, source, version, package, packageVersion, lockedSha256}",
        derivation="The file that was started, hashed. `version` is what it says to `--version`.",
        authority="verified where its package's record has the same sha256, else observed",
    ),
    "identityAfter": Known(
        values="`same`, or `changed: …`",
        derivation="The file looked at again after the session.",
        authority="observed",
    ),
    "version": Known(
        values="a version", derivation="What the program says of itself when it is greeted.", authority="reported"
    ),
    "versions": Known(
        values="{source: version, agree}",
        derivation="Every version that the program gives, and that of its package where that should be the same. "
        "`agree` is null where there is only one.",
        authority="verified where they agree, else reported",
    ),
    "schema": Known(
        values="{digest, lacks, strangers}",
        derivation="The protocol as the program itself prints it.",
        authority="observed",
    ),
    "capability": Known(
        values="a boolean for each capability", derivation="What the runtime claims.", authority="declared"
    ),
    "transport": Known(values="a transport", derivation="How the process was started.", authority="observed"),
    "utcOffsetMinutes": Known(
        values="a number",
        derivation="The zone in which the agent tells times of day: that of its TZ, else this machine's.",
        authority="inferred",
    ),
    # ── the surroundings ──
    "resolution": Known(
        values="{chosen, refused}",
        derivation="Each of the flow's chain of runtimes, in order, and why not.",
        authority="observed",
    ),
    "laneState": Known(
        values="ready, degraded",
        derivation="How the last starts of the runtime went, when the run began. Neither a thread's status nor a "
        "process's state.",
        authority="inferred",
    ),
    "laneFlag": Known(values="a boolean", derivation="Whether the config enables the lane.", authority="declared"),
    "laneBinary": Known(values="a sha256", derivation="The program that was found for the lane.", authority="observed"),
    "laneHealth": Known(values="counters", derivation="Starts of the lane that are remembered.", authority="observed"),
    "rollout": Known(
        values="locked, internal, selectable, default",
        derivation="Who may use the lane.",
        authority="declared",
    ),
    "toolCalls": Known(
        values="unseen",
        derivation="Only of a command, which is heard by what it prints.",
        authority="declared",
    ),
    "recording": Known(values="an attempt", derivation="What is replayed, where nothing runs.", authority="observed"),
    "containment": Known(
        values="{rung, variant, program, catches, misses}",
        derivation="A trial run on this machine.",
        authority="observed",
    ),
    "fences": Known(
        values="{writable, readOnly, network}, paths by what they are to the agent; null without any",
        derivation="Around an agent without a sandbox of its own.",
        authority="observed",
    ),
    "environment": Known(
        values="names of variables, each with the ground",
        derivation="What the process was given of Proctor's own environment.",
        authority="observed",
    ),
    "profile": Known(values="fresh, mine", derivation="The flow's.", authority="declared"),
    "redaction": Known(
        values="{canary}",
        derivation="A secret that was planted, and is masked wherever it stands.",
        authority="observed",
    ),
    # ── the credential ──
    "credentialInput": Known(
        values="{login, from, givenIn}",
        derivation="Which variable or file held it, by name. Never a value or its hash.",
        authority="observed",
    ),
    "credentialSource": Known(
        values="such as explicit-api-key",
        derivation="What the agent says it logs in with.",
        authority="reported, or inferred from the settings it was given",
    ),
    "credentialState": Known(
        values=CredentialState,
        derivation="The last answer of the provider: whether the model was let work, or refused with 401 or 403.",
        authority="inferred; declared where no login is needed",
    ),
}
