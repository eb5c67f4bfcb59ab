"""The failure table of pi 0.73 with the Responses API. The first row that fits an error applies."""

import re

from proctor.runtime.failures import Failure


def error_class(text: str) -> str | None:
    """Return the class of an error from the beginning of its text. pi reports only a text.

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


def _row(id_: str, code: str, class_: str, *, cause: str, says: str | None = None, is_retried: bool = False) -> Failure:
    retrying = class_ if is_retried else None
    return Failure(id=id_, cause=cause, code=code, final=class_, retrying=retrying, says=says)


def _http(status: str, code: str, *, is_retried: bool = False, cause: str | None = None) -> Failure:
    id_ = f"http-{status.replace('.', 'x')}"
    return _row(
        id_, code, f"http:{status}", cause=cause or f"The provider returns HTTP {status}.", is_retried=is_retried
    )


FAILURES = (
    _row(
        "script",
        "script.unfit",
        "http:400",
        cause="The script has no step left, or uses a tool that the agent does not offer.",
        says="the script is exhausted|no offered tool can do that",
    ),
    _row(
        "context",
        "provider.context-full",
        # Without a class, the error is from pi itself: shortening its history did not help.
        "http:4..|reply:context_length_exceeded|",
        cause="The provider reports `context_length_exceeded` again after pi has shortened its history.",
        says="(?i)context.(window|length|overflow)",
    ),
    _row(
        "quota",
        "provider.quota",
        "http:429|reply:insufficient_quota",
        cause="The provider reports `insufficient_quota`.",
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
    _http("5..", "provider.unavailable", is_retried=True, cause="The provider returns any other HTTP 5xx status."),
    _http("4..", "provider.bad-request", cause="The provider returns any other HTTP 4xx status."),
    _row(
        "rate-limit",
        "provider.rate-limited",
        "reply:rate_limit_exceeded",
        cause="A reply reports `rate_limit_exceeded`.",
        is_retried=True,
    ),
    _row(
        "reply-failed",
        "provider.reply-failed",
        "reply:.*",
        cause="The reply ends with `response.failed` and a code without its own row.",
        is_retried=True,
    ),
    _row(
        "cut",
        "provider.stream-cut",
        "terminated",
        cause="The connection closes in the middle of a reply.",
        is_retried=True,
    ),
    _row(
        "unreachable",
        "provider.unreachable",
        "connection",
        cause="The provider's address cannot be reached.",
        is_retried=True,
    ),
    _row("garbled", "provider.stream-garbled", ".*", cause="The reply is not a valid event stream.", says="JSON"),
    _row("other", "agent.turn-failed", ".*", cause="The agent reports any other error.", is_retried=True),
)
