"""What the app-server shows when something goes wrong, seen with 0.163; the first row that fits counts."""

from proctor.runtime.codex.failures import RETRYING, SAID
from proctor.runtime.failures import Failure


def _http(status: str, code: str, *, id_: str, fault: str | None = None) -> Failure:
    return Failure(
        id=id_,
        fault=fault or f"HTTP {status}",
        code=code,
        final=f"(httpConnectionFailed|responseStreamConnectionFailed|responseTooManyFailedAttempts):{status}",
        retrying=f"{RETRYING}:{status}",
    )


def _unseen(final: str, code: str, *, id_: str, fault: str | None = None) -> Failure:
    return Failure(id=id_, fault=fault or f"class `{final}`", code=code, final=final, is_seen=False)


FAILURES = (
    # ── the provider answers with an HTTP error ──
    _http("401", "provider.unauthorized", id_="http-401"),
    _http("403", "provider.forbidden", id_="http-403"),
    _http("404", "provider.not-found", id_="http-404"),
    _http("402", "provider.quota", id_="http-402"),
    _http("429", "provider.rate-limited", id_="http-429"),
    _http("503", "provider.unavailable", id_="http-503"),
    _http("4..", "provider.bad-request", id_="http-4xx", fault="any other HTTP 4xx"),
    _http("5..", "provider.unavailable", id_="http-5xx", fault="any other HTTP 5xx"),
    SAID["http-500"],
    SAID["script"],
    SAID["http-400"],
    # ── limits of the account ──
    SAID["quota"],
    SAID["plan"],
    Failure(
        id="usage-limit",
        fault="HTTP 429 with `usage_limit_reached`",
        code="provider.usage-limit",
        final="usageLimitExceeded",
    ),
    SAID["rate-limit"],
    # ── no capacity ──
    Failure(
        id="overloaded",
        fault="`server_is_overloaded`, by HTTP 503 or in a reply",
        code="provider.overloaded",
        final="serverOverloaded",
    ),
    Failure(id="flex", fault="`flex_unavailable`", code="provider.overloaded", final="flexUnavailable"),
    # ── a reply that does not end well ──
    SAID["cut"],
    SAID["idle"],
    SAID["garbled"],
    SAID["reply-failed"],
    Failure(
        id="context",
        fault="`context_length_exceeded`",
        code="provider.context-full",
        final="contextWindowExceeded",
    ),
    SAID["invalid-prompt"],
    Failure(
        id="policy",
        fault="`cyber_policy` or `misalignment_policy_violation`",
        code="provider.policy",
        final="cyberPolicy|misalignmentPolicyViolation",
    ),
    # ── no provider, no key ──
    SAID["unreachable"],
    SAID["key-missing"],
    # ── classes of its protocol that no provider was seen to bring about ──
    _unseen("unauthorized", "provider.unauthorized", id_="unauthorized"),
    _unseen("internalServerError", "provider.error", id_="internal"),
    _unseen("rateLimitExceeded", "provider.rate-limited", id_="rate"),
    _unseen("badRequest", "provider.bad-request", id_="bad-request"),
    _unseen(
        "httpConnectionFailed|responseStreamConnectionFailed",
        "provider.unreachable",
        id_="no-connection",
        fault="a class of no connection, without a status",
    ),
    _unseen(
        rf"{RETRYING}(:\d+)?|responseTooManyFailedAttempts",
        "provider.stream-cut",
        id_="disconnected",
        fault="a class of a lost connection",
    ),
    _unseen("sessionBudgetExceeded", "agent.budget", id_="budget"),
    _unseen("tooManyDenials", "agent.denials", id_="denials"),
    _unseen("sandboxError", "agent.sandbox", id_="sandbox"),
    _unseen(
        "threadRollbackFailed|activeTurnNotSteerable",
        "peer.refused",
        id_="request",
        fault="a class that answers a request of ours",
    ),
    Failure(id="other", fault="anything else", code="agent.turn-failed", final="other"),
)
