"""The table of facts about an attempt: the values, derivation and authority of each. The docs are generated from it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.event.credential import CredentialState
from proctor.event.history import Completeness
from proctor.event.model import UsageAuthority
from proctor.event.status import ProcessState, ThreadStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDefinition:
    """One row of the table."""

    values: type[StrEnum] | str
    """The enum of all values, or a description of the value."""

    derivation: str
    """What the fact follows from."""

    authority: str
    """The authority that the fact can have."""


FACTS: Final[dict[str, FactDefinition]] = {
    # ── the thread ──
    "persistence": FactDefinition(
        values="ephemeral, persistent",
        derivation="The flow's setting, and the agent's report when it opened the thread.",
        authority="declared, then reported; the flow's setting is kept as a conflict if they differ",
    ),
    "history": FactDefinition(
        values=Completeness,
        derivation="From `persistence`, and from reading back the history that the agent stores: its prompts, messages "
        "and tool calls are compared with the live events by id and content. Never from a warning.",
        authority="verified if it was compared; that of `persistence` if it was not read",
    ),
    "historyDifferences": FactDefinition(
        values="a list of at most 20 differences",
        derivation="Present only if `history` is `hydrated-divergent` or `truncated`.",
        authority="verified",
    ),
    "threadStatus": FactDefinition(
        values=ThreadStatus,
        derivation="The last status that the agent reported, else the end of its last turn. Unknown if the agent went "
        "away while the thread was active.",
        authority="reported, or inferred from the turn",
    ),
    "model": FactDefinition(
        values="{provider, requested, effective, reroutedTo}",
        derivation="The flow's model, the model that the agent says it uses, and the model that answers instead.",
        authority="that of `effective`",
    ),
    "usage": FactDefinition(
        values="{totalTokens, scope, basis, authority, check}; its authority is one of "
        + ", ".join(f"`{each}`" for each in reversed(UsageAuthority)),
        derivation="The strongest source for each turn; `check` says whether weaker sources agree. Unknown is null.",
        authority="reported",
    ),
    "context": FactDefinition(
        values="{engine, version, commits, policy, mode, thread, reason, how, whyText, sha256, additionSha256, "
        "isAdditionGiven, assembled, given, dropped, placeholders, estimatedTokens, bytesPerToken, ratioSource, "
        "commit, commitDetail, degraded} of the last turn, and {turns, degradedTurns, turnCommits} of all; see "
        "`TurnContext`",
        derivation="Present only if a context engine took part in a turn. What it was asked, what the agent accepted, "
        "and what was known of commits at the end of the attempt.",
        authority="observed",
    ),
    "warnings": FactDefinition(
        values="{total, bySource, byChannel, inferred}",
        derivation="Numbers of warnings. The source follows from the channel; if a rule inferred it, the warning "
        "counts as inferred.",
        authority="observed",
    ),
    "thread": FactDefinition(values="an id", derivation="The agent's id of the thread.", authority="reported"),
    "approvals": FactDefinition(
        values="{policy, effective, areDenialsTold}",
        derivation="For an agent that never asks for approval: how it decides instead.",
        authority="reported, or inferred",
    ),
    # ── the process and the program ──
    "processState": FactDefinition(
        values=ProcessState,
        derivation="The exit status of the process, if it was observed. It says nothing about the thread.",
        authority="observed",
    ),
    "processFrames": FactDefinition(
        values="{from, to}",
        derivation="The rows of the shared agent process's record during which this attempt used it.",
        authority="observed",
    ),
    "identity": FactDefinition(
        values="{path, realPath, shims, sha256, sizeBytes, source, version, package, packageVersion, lockedSha256, "
        "launcher}",
        derivation="The program file that runs, with its hash. `version` is the output of `--version`. `launcher` is "
        "the script that was started, if it starts the program in its place.",
        authority="verified if its package's record has the same sha256, else observed",
    ),
    "identityAfter": FactDefinition(
        values="`same`, or `changed: …`",
        derivation="The program file, checked again after the session.",
        authority="observed",
    ),
    "runningProgram": FactDefinition(
        values="{path, sha256, isLocated}",
        derivation="The program of the process that answers. If another one was located, the attempt fails with "
        "`machine.binary-changed`. `isLocated` is null if a script was located and the process does not name it.",
        authority="observed; unknown if the process cannot be examined",
    ),
    "version": FactDefinition(
        values="a version", derivation="The version that the program reports in its handshake.", authority="reported"
    ),
    "versions": FactDefinition(
        values="{source: version, agree}",
        derivation="Every version that the program reports, and that of its package if it should be the same. "
        "`agree` is null if there is only one.",
        authority="verified if they agree, else reported",
    ),
    "schema": FactDefinition(
        values="{digest, lacks, strangers}",
        derivation="The protocol schema that the program prints.",
        authority="observed",
    ),
    "capability": FactDefinition(
        values="a boolean for each capability", derivation="The runtime's declaration.", authority="declared"
    ),
    "capabilityProfile": FactDefinition(
        values="replay-only, headless-limited, interactive-approvals, full-app-server",
        derivation="The highest profile whose capabilities the runtime declares.",
        authority="declared",
    ),
    "provenCapabilities": FactDefinition(
        values="for each capability: `proven`, `FAILED`, `stale`, `declared` or `not declared`",
        derivation="The results of the conformance suite for the runtime's program and the flow's transport, as of the "
        "beginning of the run.",
        authority="observed; unknown if they cannot be read",
    ),
    "schemaDigest": FactDefinition(
        values="a digest",
        derivation="The digest of the protocol schema that the program prints.",
        authority="observed; unknown if the program prints none",
    ),
    "transport": FactDefinition(values="a transport", derivation="How the process was started.", authority="observed"),
    "utcOffsetMinutes": FactDefinition(
        values="a number",
        derivation="The time zone of the agent's timestamps: that of its TZ variable, else this machine's.",
        authority="inferred",
    ),
    # ── the environment ──
    "resolution": FactDefinition(
        values="{chosen, refused}",
        derivation="The runtimes of the flow's chain in order, and why each was refused.",
        authority="observed",
    ),
    "runtimeState": FactDefinition(
        values="ready, degraded",
        derivation="The results of the runtime's recent starts, as of the beginning of the run. It is neither a "
        "thread's status nor a process's state.",
        authority="inferred",
    ),
    "runtimeFlag": FactDefinition(
        values="a boolean", derivation="The config's `enabled` setting of the runtime.", authority="declared"
    ),
    "runtimeBinary": FactDefinition(
        values="a sha256", derivation="The program file of the runtime.", authority="observed"
    ),
    "runtimeHealth": FactDefinition(
        values="counters", derivation="The recorded starts of the runtime.", authority="observed"
    ),
    "rollout": FactDefinition(
        values="{state, autoResolves, requires}",
        derivation="The runtime's rollout from the config: its state (locked, internal, selectable, default), whether "
        "`auto` may choose it, and whether its capabilities must be declared or proven.",
        authority="declared",
    ),
    "toolCalls": FactDefinition(
        values="unseen",
        derivation="Present only for a plain command, whose tool calls cannot be observed.",
        authority="declared",
    ),
    "recording": FactDefinition(
        values="an attempt", derivation="The recorded attempt that is replayed.", authority="observed"
    ),
    "containment": FactDefinition(
        values="{rung, variant, program, overlays, catches, misses}",
        derivation="A test of containment on this machine.",
        authority="observed",
    ),
    "fences": FactDefinition(
        values="{writable, readOnly, network}, with paths keyed by purpose; null without fences",
        derivation="The fences that Proctor puts around an agent that has no sandbox.",
        authority="observed",
    ),
    "hiding": FactDefinition(
        values="{hidden, isEnforced, why}, with paths named by purpose: spec, scripts, hiddenFiles, evidence, proctor",
        derivation="What is hidden from the agent because it judges the agent. If the agent may be able to see it "
        "nevertheless, for example because root can unmount what hides it, `isEnforced` is false and `why` says so.",
        authority="observed; unknown if the runtime does not say how it starts its agents",
    ),
    "environment": FactDefinition(
        values="names of variables, each with the reason",
        derivation="The variables of Proctor's environment that were passed to the process.",
        authority="observed",
    ),
    "profile": FactDefinition(values="fresh, mine", derivation="The flow's setting.", authority="declared"),
    "redaction": FactDefinition(
        values="{tripwire}",
        derivation="The planted secret, which redaction masks wherever it occurs.",
        authority="observed",
    ),
    # ── the credential ──
    "credentialInput": FactDefinition(
        values="{login, from, givenIn}",
        derivation="The name of the variable or file that holds the credential. Never its value or a hash.",
        authority="observed",
    ),
    "credentialSource": FactDefinition(
        values="a kind of login, such as explicit-api-key",
        derivation="The login that the agent says it uses.",
        authority="reported, or inferred from the agent's settings",
    ),
    "credentialState": FactDefinition(
        values=CredentialState,
        derivation="The provider's last answer: model output, or a 401 or 403.",
        authority="inferred; declared if no login is needed",
    ),
}
