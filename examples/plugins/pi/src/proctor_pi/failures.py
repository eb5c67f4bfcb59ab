"""What pi shows when something goes wrong, seen with 0.73 on the Responses wire; the first row that fits counts."""

import re

from proctor.runtime.failures import Failure


def error_class(text: str) -> str | None:
    """pi gives an error as a text alone: what its beginning tells of its kind.

    >>> error_class("429 You exceeded your current quota"), error_class("server_error: it broke")
    ('http:429', 'reply:server_error')
    >>> error_class("Connection error."), error_class("terminated"), error_class("no idea")
    ('connection', 'terminated', None)
    """
    if found := re.match(r"([45]\d\d)\b", text):
        return f"http:{found[1]}"
    if found := re.match(r"([a-z_]+): ", text):
        return f"reply:{found[1]}"
    if text.startswith("Connection error"):
        return "connection"
    return "terminated" if text == "terminated" else None


def _row(id_: str, code: str, class_: str, *, fault: str, says: str | None = None, is_retried: bool = False) -> Failure:
    retrying = class_ if is_retried else None
    return Failure(id=id_, fault=fault, code=code, final=class_, retrying=retrying, says=says)


def _http(status: str, code: str, *, is_retried: bool = False, fault: str | None = None) -> Failure:
    id_ = f"http-{status.replace('.', 'x')}"
    return _row(id_, code, f"http:{status}", fault=fault or f"HTTP {status}", is_retried=is_retried)


FAILURES = (
    _row(
        "script",
        "script.unfit",
        "http:400",
        fault="the script has no step left, or wants a tool that is not offered",
        says="the script is exhausted|which no tool offered does",
    ),
    _row(
        "context",
        "provider.context-full",
        # Without a class it is pi itself that says so, when it has shortened its history in vain.
        "http:4..|reply:context_length_exceeded|",
        fault="`context_length_exceeded`, by HTTP or in a reply, and again after pi has shortened its history",
        says="(?i)context.(window|length|overflow)",
    ),
    _row(
        "quota",
        "provider.quota",
        "http:429|reply:insufficient_quota",
        fault="`insufficient_quota`",
        says="quota",
        is_retried=True,
    ),
    _http("401", "provider.unauthorized"),
    _http("402", "provider.quota"),
    _http("403", "provider.forbidden"),
    _http("404", "provider.not-found"),
    _http("429", "provider.rate-limited", is_retried=True),
    _http("500", "provider.error", is_retried=True),
    _http("529", "provider.overloaded"),
    _http("5..", "provider.unavailable", is_retried=True, fault="any other HTTP 5xx"),
    _http("4..", "provider.bad-request", fault="any other HTTP 4xx"),
    _row(
        "rate-limit",
        "provider.rate-limited",
        "reply:rate_limit_exceeded",
        fault="`rate_limit_exceeded` in a reply",
        is_retried=True,
    ),
    _row(
        "reply-failed",
        "provider.reply-failed",
        "reply:.*",
        fault="`response.failed`, of any code that is not here",
        is_retried=True,
    ),
    _row("cut", "provider.stream-cut", "terminated", fault="the reply is cut off", is_retried=True),
    _row(
        "unreachable",
        "provider.unreachable",
        "connection",
        fault="nobody answers at the provider's address",
        is_retried=True,
    ),
    _row("garbled", "provider.stream-garbled", ".*", fault="the reply is no event stream", says="JSON"),
    _row("other", "agent.turn-failed", ".*", fault="anything else", is_retried=True),
)
