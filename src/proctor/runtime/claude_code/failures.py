"""The failure table of Claude Code 2.1.325. The first row that fits an error applies."""

from typing import Final

from proctor.runtime.failures import Failure

_LOST: Final = r"ECONNRESET|Connection to the API was lost|socket (hang up|connection was closed)|terminated"


def error_class(reason: str | None, status: int | None) -> str:
    """Return Claude Code's name for an error, with the provider's HTTP status if there is one.

    >>> error_class("api_error", 401), error_class("overloaded", None)
    ('api_error:401', 'overloaded')
    """
    return f"{reason or 'unknown'}{'' if status is None else f':{status}'}"


def _http(status: str, code: str, *, id_: str, cause: str | None = None, says: str | None = None) -> Failure:
    """Return a row for an HTTP status. The program names the kind of error only while it retries."""
    return Failure(
        id=id_,
        cause=cause or f"The provider returns HTTP {status}.",
        code=code,
        final=f"[a-z_]+:{status}",
        retrying=f"[a-z_]+:{status}",
        says=says,
    )


FAILURES: Final = (
    # The error of the scripted model if its script does not fit the agent.
    _http(
        "400",
        "script.unfit",
        id_="script",
        cause="The script has no step left, or uses a tool that the agent does not offer.",
        says="script_exhausted|tool_not_offered",
    ),
    # ── the provider answers with an HTTP error ──
    _http("401", "provider.unauthorized", id_="http-401"),
    _http("403", "provider.forbidden", id_="http-403"),
    _http("404", "provider.not-found", id_="http-404"),
    _http("402", "provider.quota", id_="http-402"),
    _http("429", "provider.rate-limited", id_="http-429"),
    _http("529", "provider.overloaded", id_="http-529"),
    _http("413", "provider.context-full", id_="http-413"),
    _http("500", "provider.error", id_="http-500"),
    Failure(
        id="context",
        cause="The provider returns HTTP 400 with `prompt is too long`.",
        code="provider.context-full",
        final="prompt_too_long(:400)?",
    ),
    _http(
        "400",
        "provider.quota",
        id_="credit",
        cause="The provider returns HTTP 400 with `credit balance is too low`.",
        says="Credit balance",
    ),
    _http("4..", "provider.bad-request", id_="http-4xx", cause="The provider returns any other HTTP 4xx status."),
    _http("5..", "provider.unavailable", id_="http-5xx", cause="The provider returns any other HTTP 5xx status."),
    # ── incomplete or failed replies ──
    Failure(
        id="garbled",
        cause="The reply is not a valid event stream.",
        code="provider.stream-garbled",
        final="api_error",
        says="JSON Parse error",
    ),
    Failure(
        id="cut",
        cause="The connection closes in the middle of a reply.",
        code="provider.stream-cut",
        final="api_error",
        says=_LOST,
    ),
    # ── no provider, no key ──
    Failure(
        id="unreachable",
        cause="The provider's address cannot be reached.",
        code="provider.unreachable",
        final="api_error",
        says="Connection refused|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|Unable to connect",
    ),
    Failure(
        id="key-missing",
        cause="The agent has neither a key nor a login.",
        code="provider.key-missing",
        final="api_error",
        says="Not logged in",
    ),
    # While it retries, the program does not report whether it could not connect or lost the connection.
    Failure(
        id="retrying",
        cause="A reply is cut off or the provider cannot be reached, and the agent retries.",
        code="provider.unreachable",
        retrying="unknown",
    ),
    # ── the agent's own limits ──
    Failure(
        id="max-turns",
        cause="The agent has sent `max_turns` requests to the model.",
        code="agent.budget",
        final="error_max_turns|max_turns",
    ),
    Failure(
        id="other", cause="The agent reports any other error.", code="agent.turn-failed", final=".*", is_seen=False
    ),
)
