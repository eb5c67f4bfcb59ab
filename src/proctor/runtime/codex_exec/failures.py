"""The failure table of `codex exec` 0.163, which reports error texts without a class."""

from dataclasses import replace

from proctor.runtime.codex.failures import SHARED_FAILURES
from proctor.runtime.failures import Failure


def _without_class(id_: str) -> Failure:
    """Return a shared row without the error classes."""
    row = SHARED_FAILURES[id_]
    return replace(row, final="", retrying=None if row.retrying is None else "")


def _http(status: str, code: str, *, id_: str, cause: str | None = None) -> Failure:
    return Failure(
        id=id_,
        cause=cause or f"The provider returns HTTP {status}.",
        code=code,
        final="",
        retrying="",
        says=f"^(unexpected status|exceeded retry limit, last status:) {status} ",
    )


def _row(says: str, code: str, *, id_: str, cause: str) -> Failure:
    return Failure(id=id_, cause=cause, code=code, final="", says=says)


NOT_STARTED = (
    _row(
        "(?m)^Error: thread/(resume|fork)",
        "peer.refused",
        id_="no-thread",
        cause="The thread to resume or fork does not exist, or another process is writing to it.",
    ),
    _row("(?m)^Error loading config", "peer.refused", id_="settings", cause="The agent rejects its settings."),
)
"""The program exits before the turn starts, and prints the reason to stderr."""

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
    _without_class("http-500"),
    _without_class("script"),
    _without_class("http-400"),
    # ── account limits ──
    _without_class("quota"),
    _without_class("plan"),
    _row(
        "^You.ve hit your usage limit",
        "provider.usage-limit",
        id_="usage-limit",
        cause="The provider returns HTTP 429 with `usage_limit_reached`.",
    ),
    _without_class("rate-limit"),
    # ── no capacity ──
    _row(
        "^Selected model is at capacity",
        "provider.overloaded",
        id_="overloaded",
        cause="The provider reports `server_is_overloaded`, by HTTP 503 or in a reply.",
    ),
    _row(
        "^Flex capacity unavailable",
        "provider.overloaded",
        id_="flex",
        cause="The provider reports `flex_unavailable`.",
    ),
    # ── incomplete or failed replies ──
    _without_class("cut"),
    _without_class("idle"),
    _without_class("garbled"),
    _without_class("reply-failed"),
    _row(
        "^Codex ran out of room in the model.s context window",
        "provider.context-full",
        id_="context",
        cause="The provider reports `context_length_exceeded`.",
    ),
    _without_class("invalid-prompt"),
    # ── no provider, no key ──
    _without_class("unreachable"),
    _without_class("key-missing"),
    *NOT_STARTED,
    # A policy refusal has only the provider's free text, which cannot be recognized.
    Failure(id="other", cause="The agent reports any other error.", code="agent.turn-failed", final=""),
)
