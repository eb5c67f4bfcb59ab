"""Every name of a file, a JSON field and a ledger column that a tampering case touches. A rename changes only this."""

from typing import Final

# ── attempts of the campaign `whole` ──
FIX: Final = "fix.codex.r1.1"
CLAIM: Final = "claim.codex.r1.1"
ASK: Final = "ask.codex.r1.1"

# ── attempts of the campaign `priced` ──
FIRST: Final = "first.f.r1.1"
SECOND: Final = "second.f.r1.1"

# ── files of an attempt ──
ATTEMPT: Final = "attempt.json"
PROMPT: Final = "prompt.txt"
FRAMES: Final = "frames.jsonl"
TOOL_CALLS: Final = "tool.calls.jsonl"
TRANSCRIPT: Final = "transcript.jsonl"
RUNNER: Final = "runner.ref.json"
FEEDBACK: Final = "feedback.json"
PROBES: Final = "probes.jsonl"
DIFF: Final = "workspace.diff"
REPORT: Final = "attempt.report.json"
SEAL: Final = "seal.json"
SIGNATURE: Final = "seal.json.sig"
SEALED: Final = (ATTEMPT, PROMPT, FRAMES, TOOL_CALLS, TRANSCRIPT, RUNNER, FEEDBACK, PROBES, DIFF, REPORT)

# ── files of a runtime process and of a campaign ──
PROCESS: Final = "process.json"
LEDGER: Final = "ledger.db"
PLAN: Final = "plan.json"
CAMPAIGN_REPORT: Final = "report.json"
RESULTS: Final = "RESULTS.md"
SNAPSHOT: Final = "spec.snapshot"
LOCK: Final = "lock"


class Field:
    """JSON fields."""

    RUNTIME: Final = "runtimeId"
    EXPECT: Final = "expect"
    TOOLS: Final = "tools"
    THREAD: Final = "threadId"
    PROCESS: Final = "processId"
    FACTS: Final = "facts"
    CLAIMED: Final = "claimed"
    VERIFIED: Final = "verified"
    JUDGED: Final = "judged"
    ANSWER: Final = "answer"
    FRAME: Final = "frame"
    OUTCOME: Final = "outcome"
    CODE: Final = "code"
    DETAIL: Final = "detail"
    REASONS: Final = "reasons"
    REASON_CODES: Final = "reasonCodes"
    CRITERIA: Final = "criteria"
    EXPECTATION: Final = "expectation"
    DIGEST_AFTER: Final = "workspaceDigestAfter"
    CHANGED_FILES: Final = "hasChangedFiles"
    VIOLATIONS: Final = "policyViolations"
    METRICS: Final = "metrics"
    WARNINGS: Final = "warnings"
    STATUS: Final = "status"
    TEXT: Final = "text"
    VERDICT: Final = "verdict"
    FAILURE: Final = "failure"
    DIGEST: Final = "workspaceDigest"
    SUMMARY: Final = "summary"
    AT: Final = "atMs"
    DIRECTION: Final = "dir"
    INPUT: Final = "input"
    SEQ: Final = "seq"
    PREVIOUS: Final = "prev"
    FILES: Final = "files"
    STREAMS: Final = "streams"
    STREAM: Final = "stream"
    ROWS: Final = "rows"
    HEAD: Final = "head"
    BYTES: Final = "bytes"
    SHA256: Final = "sha256"
    VALUE: Final = "value"
    AUTHORITY: Final = "authority"
    SOURCE: Final = "source"
    MET: Final = "met"
    UNMET: Final = "unmet"
    KEYS: Final = "keys"
    VERSION: Final = "schemaVersion"
    PLAN: Final = "plan"
    TRIALS: Final = "trials"
    MISSION: Final = "mission"
    SNAPSHOT: Final = "snapshot"
    LIMITS: Final = "limits"
    ATTEMPT_LIMIT: Final = "attemptMs"
    CANARY: Final = "isCanary"
    ATTEMPTS: Final = "attempts"
    RUNS: Final = "runs"
    RUN: Final = "runId"
    EXIT: Final = "exit"


class Table:
    """Tables of the ledger."""

    CAMPAIGN: Final = "campaign"
    TRIAL: Final = "trial"
    RUN: Final = "run"
    ATTEMPT: Final = "attempt"
    REPLACEMENT: Final = "replacement"


class Column:
    """Columns of the ledger."""

    ID: Final = "id"
    TRIAL: Final = "trial"
    NUMBER: Final = "n"
    RUN: Final = "run"
    STATE: Final = "state"
    OUTCOME: Final = "outcome"
    CODE: Final = "code"
    TOKENS: Final = "tokens"
    STARTED: Final = "started_at_ms"
    ENDED: Final = "ended_at_ms"
    BEGAN: Final = "began_at_ms"
    RETRY: Final = "retry_at_ms"
    USD: Final = "usd"
    SUMMARY: Final = "summary"
    RUNTIME: Final = "runtime"
    MISSION: Final = "mission"
    DIGEST: Final = "digest"
    PLAN: Final = "plan"
    SPEC_FILE: Final = "file"


class Summary:
    """Paths in the JSON of the column `summary`."""

    OUTCOME: Final = "$.outcome"
    CODE: Final = "$.code"
    VERIFIED: Final = "$.verified"
    RESULT: Final = "$.result"
    TOOL_CALLS: Final = "$.toolCalls"
    TOOL_FAILURES: Final = "$.toolFailures"
    VIOLATIONS: Final = "$.policyViolations"
    DURATION: Final = "$.durationMs"


class State:
    """What the ledger calls the states of an attempt."""

    RUNNING: Final = "running"
    ABANDONED: Final = "abandoned"
