"""The failure table of the Codex app-server 0.163. The first row that fits an error applies."""

from proctor.runtime.codex.failures import RETRYING, SHARED_FAILURES
from proctor.runtime.failures import Failure


def _http(status: str, code: str, *, id_: str, cause: str | None = None) -> Failure:
    return Failure(
        id=id_,
        cause=cause or f"The provider returns HTTP {status}.",
        code=code,
        final=f"(httpConnectionFailed|responseStreamConnectionFailed|responseTooManyFailedAttempts):{status}",
        retrying=f"{RETRYING}:{status}",
    )


def _unseen(final: str, code: str, *, id_: str, cause: str | None = None) -> Failure:
    return Failure(
        id=id_, cause=cause or f"The agent reports the error class `{final}`.", code=code, final=final, is_seen=False
    )


FAILURES = (
    # ── the provider answers with an HTTP error ──
    _http("401", "provider.unauthorized", id_="http-401"),
    _http("403", "provider.forbidden", id_="http-403"),
    _http("404", "provider.not-found", id_="http-404"),
    _http("402", "provider.quota", id_="http-402"),
    _http("429", "provider.rate-limited", id_="http-429"),
    _http("503", "provider.unavailable", id_="http-503"),
    _http("4..", "provider.bad-request", id_="http-4xx", cause="The provider returns any other HTTP 4xx status."),
    _http("5..", "provider.unavailable", id_="http-5xx", cause="The provider returns any other HTTP 5xx status."),
    SHARED_FAILURES["http-500"],
    SHARED_FAILURES["script"],
    SHARED_FAILURES["http-400"],
    # ── account limits ──
    SHARED_FAILURES["quota"],
    SHARED_FAILURES["plan"],
    Failure(
        id="usage-limit",
        cause="The provider returns HTTP 429 with `usage_limit_reached`.",
        code="provider.usage-limit",
        final="usageLimitExceeded",
    ),
    SHARED_FAILURES["rate-limit"],
    # ── no capacity ──
    Failure(
        id="overloaded",
        cause="The provider reports `server_is_overloaded`, by HTTP 503 or in a reply.",
        code="provider.overloaded",
        final="serverOverloaded",
    ),
    Failure(
        id="flex", cause="The provider reports `flex_unavailable`.", code="provider.overloaded", final="flexUnavailable"
    ),
    # ── incomplete or failed replies ──
    SHARED_FAILURES["cut"],
    SHARED_FAILURES["idle"],
    SHARED_FAILURES["garbled"],
    SHARED_FAILURES["reply-failed"],
    Failure(
        id="context",
        cause="The provider reports `context_length_exceeded`.",
        code="provider.context-full",
        final="contextWindowExceeded",
    ),
    SHARED_FAILURES["invalid-prompt"],
    Failure(
        id="policy",
        cause="The provider reports `cyber_policy` or `misalignment_policy_violation`.",
        code="provider.policy",
        final="cyberPolicy|misalignmentPolicyViolation",
    ),
    # ── no provider, no key ──
    SHARED_FAILURES["unreachable"],
    SHARED_FAILURES["key-missing"],
    # ── error classes of the protocol that no provider error was seen to cause ──
    _unseen("unauthorized", "provider.unauthorized", id_="unauthorized"),
    _unseen("internalServerError", "provider.error", id_="internal"),
    _unseen("rateLimitExceeded", "provider.rate-limited", id_="rate"),
    _unseen("badRequest", "provider.bad-request", id_="bad-request"),
    _unseen(
        "httpConnectionFailed|responseStreamConnectionFailed",
        "provider.unreachable",
        id_="no-connection",
        cause="The agent reports that it could not connect, without an HTTP status.",
    ),
    _unseen(
        rf"{RETRYING}(:\d+)?|responseTooManyFailedAttempts",
        "provider.stream-cut",
        id_="disconnected",
        cause="The agent reports that it lost the connection.",
    ),
    _unseen("sessionBudgetExceeded", "agent.budget", id_="budget"),
    _unseen("tooManyDenials", "agent.denials", id_="denials"),
    _unseen("sandboxError", "agent.sandbox", id_="sandbox"),
    _unseen(
        "threadRollbackFailed|activeTurnNotSteerable",
        "peer.refused",
        id_="request",
        cause="The agent refuses a request of Proctor.",
    ),
    Failure(id="other", cause="The agent reports any other error.", code="agent.turn-failed", final="other"),
)
