"""What Codex shows when something goes wrong, seen with 0.163; the first row that fits counts."""

from proctor.runtime.failures import Failure

# While it tries again every fault has this class, most of them with the HTTP status.
_RETRYING = "responseStreamDisconnected"
# In front of what it says of a reply that began and did not end.
_BROKEN = "stream disconnected before completion: "


def _http(status: str, code: str, *, id_: str, fault: str | None = None) -> Failure:
    return Failure(
        id=id_,
        fault=fault or f"HTTP {status}",
        code=code,
        final=f"(httpConnectionFailed|responseStreamConnectionFailed|responseTooManyFailedAttempts):{status}",
        retrying=f"{_RETRYING}:{status}",
    )


def _stream(says: str, code: str, *, id_: str, fault: str) -> Failure:
    return Failure(id=id_, fault=fault, code=code, final="other", retrying=_RETRYING, says=f"^{_BROKEN}{says}")


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
    Failure(
        id="http-500",
        fault="HTTP 500",
        code="provider.error",
        final="internalServerError",
        retrying=_RETRYING,
        says="high demand",
    ),
    # What our own scripted model says of a script that does not fit the agent.
    Failure(
        id="script",
        fault="the script has no step left, or wants a tool that is not offered",
        code="script.unfit",
        final="other",
        says="script_exhausted|tool_not_offered",
    ),
    # The message is the body of the reply. Where that is neither JSON nor empty it cannot be told from a failure of the
    # agent's own, and ends as agent.turn-failed.
    Failure(id="http-400", fault="HTTP 400", code="provider.bad-request", final="other", says=r"^\s*(\{|$)"),
    # ── limits of the account, whether said by HTTP or in a reply ──
    Failure(
        id="quota",
        fault="`insufficient_quota`",
        code="provider.quota",
        final="usageLimitExceeded",
        says="^Quota exceeded",
    ),
    Failure(
        id="plan",
        fault="`usage_not_included`",
        code="provider.plan",
        final="usageLimitExceeded",
        says="^To use Codex with your ChatGPT plan",
    ),
    Failure(
        id="usage-limit",
        fault="HTTP 429 with `usage_limit_reached`",
        code="provider.usage-limit",
        final="usageLimitExceeded",
    ),
    Failure(
        id="rate-limit",
        fault="`rate_limit_exceeded` or `slow_down` in a reply",
        code="provider.rate-limited",
        final="rateLimitExceeded",
        retrying=_RETRYING,
        says="^rate limit exceeded",
    ),
    # ── no capacity ──
    Failure(
        id="overloaded",
        fault="`server_is_overloaded`, by HTTP 503 or in a reply",
        code="provider.overloaded",
        final="serverOverloaded",
    ),
    Failure(id="flex", fault="`flex_unavailable`", code="provider.overloaded", final="flexUnavailable"),
    # ── a reply that does not end well ──
    _stream("(Transport error|stream closed before)", "provider.stream-cut", id_="cut", fault="the reply is cut off"),
    _stream("idle timeout", "provider.stream-silent", id_="idle", fault="the reply falls silent"),
    _stream("(UTF8|Parse) error", "provider.stream-garbled", id_="garbled", fault="the reply is no event stream"),
    _stream("", "provider.reply-failed", id_="reply-failed", fault="`response.failed`, of any code that is not here"),
    Failure(
        id="context",
        fault="`context_length_exceeded`",
        code="provider.context-full",
        final="contextWindowExceeded",
    ),
    Failure(
        id="invalid-prompt",
        fault="`invalid_prompt`",
        code="provider.prompt-refused",
        final="other",
        says="^Invalid prompt",
    ),
    Failure(
        id="policy",
        fault="`cyber_policy` or `misalignment_policy_violation`",
        code="provider.policy",
        final="cyberPolicy|misalignmentPolicyViolation",
    ),
    # ── no provider, no key ──
    Failure(
        id="unreachable",
        fault="nobody answers at the provider's address",
        code="provider.unreachable",
        final="httpConnectionFailed|responseStreamConnectionFailed",
        retrying=_RETRYING,
        says="^Connection failed|waiting for network",
    ),
    Failure(
        id="key-missing",
        fault="the variable with the key is not set",
        code="provider.key-missing",
        final="other",
        says="^Missing environment variable",
    ),
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
        rf"{_RETRYING}(:\d+)?|responseTooManyFailedAttempts",
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
