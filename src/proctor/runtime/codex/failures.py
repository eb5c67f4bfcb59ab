"""Error messages of Codex 0.163 that the app-server and `codex exec` share."""

from proctor.runtime.failures import Failure

# The app-server uses this class for every error after which it retries, usually with the HTTP status.
RETRYING = "responseStreamDisconnected"
# The prefix of the message for a reply that began and did not end.
_BROKEN = "stream disconnected before completion: "


def _stream(says: str, code: str, *, id_: str, cause: str) -> Failure:
    return Failure(id=id_, cause=cause, code=code, final="other", retrying=RETRYING, says=f"^{_BROKEN}{says}")


SHARED_FAILURES = {
    row.id: row
    for row in (
        Failure(
            id="http-500",
            cause="The provider returns HTTP 500.",
            code="provider.error",
            final="internalServerError",
            retrying=RETRYING,
            says="high demand",
        ),
        # The error of the scripted model if its script does not fit the agent.
        Failure(
            id="script",
            cause="The script has no step left, or uses a tool that the agent does not offer.",
            code="script.unfit",
            final="other",
            says="script_exhausted|tool_not_offered",
        ),
        # The message is the body of the reply. If that is neither JSON nor empty, it looks like an error of the agent
        # itself and ends as agent.turn-failed.
        Failure(
            id="http-400",
            cause="The provider returns HTTP 400.",
            code="provider.bad-request",
            final="other",
            says=r"^\s*(\{|$)",
        ),
        # ── account limits, by HTTP or in a reply ──
        Failure(
            id="quota",
            cause="The provider reports `insufficient_quota`.",
            code="provider.quota",
            final="usageLimitExceeded",
            says="^Quota exceeded",
        ),
        Failure(
            id="plan",
            cause="The provider reports `usage_not_included`.",
            code="provider.plan",
            final="usageLimitExceeded",
            says="^To use Codex with your ChatGPT plan",
        ),
        Failure(
            id="rate-limit",
            cause="A reply reports `rate_limit_exceeded` or `slow_down`.",
            code="provider.rate-limited",
            final="rateLimitExceeded",
            retrying=RETRYING,
            says="^rate limit exceeded",
        ),
        # ── incomplete or failed replies ──
        _stream(
            "(Transport error|stream closed before)",
            "provider.stream-cut",
            id_="cut",
            cause="The connection closes in the middle of a reply.",
        ),
        _stream(
            "idle timeout",
            "provider.stream-silent",
            id_="idle",
            cause="The provider stops sending in the middle of a reply.",
        ),
        _stream(
            "(UTF8|Parse) error",
            "provider.stream-garbled",
            id_="garbled",
            cause="The reply is not a valid event stream.",
        ),
        _stream(
            "",
            "provider.reply-failed",
            id_="reply-failed",
            cause="The reply ends with `response.failed` and a code without its own row.",
        ),
        Failure(
            id="invalid-prompt",
            cause="The provider reports `invalid_prompt`.",
            code="provider.prompt-refused",
            final="other",
            says="^Invalid prompt",
        ),
        # ── no provider, no key ──
        Failure(
            id="unreachable",
            cause="The provider's address cannot be reached.",
            code="provider.unreachable",
            final="httpConnectionFailed|responseStreamConnectionFailed",
            retrying=RETRYING,
            says="^Connection failed|waiting for network",
        ),
        Failure(
            id="key-missing",
            cause="The variable for the key is not set.",
            code="provider.key-missing",
            final="other",
            says="^Missing environment variable",
        ),
    )
}
"""Rows that the error text alone identifies, by id. The classes are those of the app-server."""
