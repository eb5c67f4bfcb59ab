"""What Claude Code shows when something goes wrong, seen with 2.1.325; the first row that fits counts."""

from typing import Final

from proctor.runtime.failures import Failure

_LOST: Final = r"ECONNRESET|Connection to the API was lost|socket (hang up|connection was closed)|terminated"


def error_class(reason: str | None, status: int | None) -> str:
    """Its own word for what is wrong, and the provider's status where there was one.

    >>> error_class("api_error", 401), error_class("overloaded", None)
    ('api_error:401', 'overloaded')
    """
    return f"{reason or 'unknown'}{'' if status is None else f':{status}'}"


def _http(status: str, code: str, *, id_: str, fault: str | None = None, says: str | None = None) -> Failure:
    """While it tries again it says what kind of error it takes it for; in the end only that it was one."""
    return Failure(
        id=id_,
        fault=fault or f"HTTP {status}",
        code=code,
        final=f"[a-z_]+:{status}",
        retrying=f"[a-z_]+:{status}",
        says=says,
    )


FAILURES: Final = (
    # What our own scripted model says of a script that does not fit the agent.
    _http(
        "400",
        "script.unfit",
        id_="script",
        fault="the script has no step left, or wants a tool that is not offered",
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
        fault="HTTP 400 with `prompt is too long`",
        code="provider.context-full",
        final="prompt_too_long(:400)?",
    ),
    _http(
        "400", "provider.quota", id_="credit", fault="HTTP 400 with `credit balance is too low`", says="Credit balance"
    ),
    _http("4..", "provider.bad-request", id_="http-4xx", fault="any other HTTP 4xx"),
    _http("5..", "provider.unavailable", id_="http-5xx", fault="any other HTTP 5xx"),
    # ── a reply that does not end well ──
    Failure(
        id="garbled",
        fault="the reply is no event stream",
        code="provider.stream-garbled",
        final="api_error",
        says="JSON Parse error",
    ),
    Failure(id="cut", fault="the reply is cut off", code="provider.stream-cut", final="api_error", says=_LOST),
    # ── no provider, no key ──
    Failure(
        id="unreachable",
        fault="nobody answers at the provider's address",
        code="provider.unreachable",
        final="api_error",
        says="Connection refused|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|Unable to connect",
    ),
    Failure(
        id="key-missing",
        fault="there is neither key nor login",
        code="provider.key-missing",
        final="api_error",
        says="Not logged in",
    ),
    # While it tries again it does not say whether it had no connection or lost one.
    Failure(
        id="retrying",
        fault="a reply is cut off, or nobody answers, and it tries again",
        code="provider.unreachable",
        retrying="unknown",
    ),
    # ── its own limits ──
    Failure(
        id="max-turns",
        fault="more requests to the model than `max_turns`",
        code="agent.budget",
        final="error_max_turns|max_turns",
    ),
    Failure(id="other", fault="anything else", code="agent.turn-failed", final=".*", is_seen=False),
)
