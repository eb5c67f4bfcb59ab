"""What Codex says when something goes wrong, seen with 0.163 and the same whichever way it is driven."""

from proctor.runtime.failures import Failure

# While it tries again the app-server has this class for every fault, most of them with the HTTP status.
RETRYING = "responseStreamDisconnected"
# In front of what it says of a reply that began and did not end.
_BROKEN = "stream disconnected before completion: "


def _stream(says: str, code: str, *, id_: str, fault: str) -> Failure:
    return Failure(id=id_, fault=fault, code=code, final="other", retrying=RETRYING, says=f"^{_BROKEN}{says}")


SAID = {
    row.id: row
    for row in (
        Failure(
            id="http-500",
            fault="HTTP 500",
            code="provider.error",
            final="internalServerError",
            retrying=RETRYING,
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
        # The message is the body of the reply. Where that is neither JSON nor empty it cannot be told from a failure of
        # the agent's own, and ends as agent.turn-failed.
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
            id="rate-limit",
            fault="`rate_limit_exceeded` or `slow_down` in a reply",
            code="provider.rate-limited",
            final="rateLimitExceeded",
            retrying=RETRYING,
            says="^rate limit exceeded",
        ),
        # ── a reply that does not end well ──
        _stream(
            "(Transport error|stream closed before)", "provider.stream-cut", id_="cut", fault="the reply is cut off"
        ),
        _stream("idle timeout", "provider.stream-silent", id_="idle", fault="the reply falls silent"),
        _stream("(UTF8|Parse) error", "provider.stream-garbled", id_="garbled", fault="the reply is no event stream"),
        _stream(
            "", "provider.reply-failed", id_="reply-failed", fault="`response.failed`, of any code that is not here"
        ),
        Failure(
            id="invalid-prompt",
            fault="`invalid_prompt`",
            code="provider.prompt-refused",
            final="other",
            says="^Invalid prompt",
        ),
        # ── no provider, no key ──
        Failure(
            id="unreachable",
            fault="nobody answers at the provider's address",
            code="provider.unreachable",
            final="httpConnectionFailed|responseStreamConnectionFailed",
            retrying=RETRYING,
            says="^Connection failed|waiting for network",
        ),
        Failure(
            id="key-missing",
            fault="the variable with the key is not set",
            code="provider.key-missing",
            final="other",
            says="^Missing environment variable",
        ),
    )
}
"""Rows that its words alone tell apart, by id; with the classes that the app-server puts beside them."""
