"""What `codex exec` shows when something goes wrong, seen with 0.163: no class of error, only words."""

from dataclasses import replace

from proctor.runtime.codex.failures import SAID
from proctor.runtime.failures import Failure


def _said(id_: str) -> Failure:
    """The same words, with no class beside them."""
    row = SAID[id_]
    return replace(row, final="", retrying=None if row.retrying is None else "")


def _http(status: str, code: str, *, id_: str, fault: str | None = None) -> Failure:
    return Failure(
        id=id_,
        fault=fault or f"HTTP {status}",
        code=code,
        final="",
        retrying="",
        says=f"^(unexpected status|exceeded retry limit, last status:) {status} ",
    )


def _words(says: str, code: str, *, id_: str, fault: str) -> Failure:
    return Failure(id=id_, fault=fault, code=code, final="", says=says)


NOT_STARTED = (
    _words(
        "(?m)^Error: thread/(resume|fork)",
        "peer.refused",
        id_="no-thread",
        fault="the thread to resume or fork is not there, or somebody else writes to it",
    ),
    _words("(?m)^Error loading config", "peer.refused", id_="settings", fault="it will not have its settings"),
)
"""It ends before it takes up the turn, and says why on stderr."""

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
    _said("http-500"),
    _said("script"),
    _said("http-400"),
    # ── limits of the account ──
    _said("quota"),
    _said("plan"),
    _words(
        "^You.ve hit your usage limit",
        "provider.usage-limit",
        id_="usage-limit",
        fault="HTTP 429 with `usage_limit_reached`",
    ),
    _said("rate-limit"),
    # ── no capacity ──
    _words(
        "^Selected model is at capacity",
        "provider.overloaded",
        id_="overloaded",
        fault="`server_is_overloaded`, by HTTP 503 or in a reply",
    ),
    _words("^Flex capacity unavailable", "provider.overloaded", id_="flex", fault="`flex_unavailable`"),
    # ── a reply that does not end well ──
    _said("cut"),
    _said("idle"),
    _said("garbled"),
    _said("reply-failed"),
    _words(
        "^Codex ran out of room in the model.s context window",
        "provider.context-full",
        id_="context",
        fault="`context_length_exceeded`",
    ),
    _said("invalid-prompt"),
    # ── no provider, no key ──
    _said("unreachable"),
    _said("key-missing"),
    *NOT_STARTED,
    # A refusal for policy comes in the provider's own words, which tell nothing here.
    Failure(id="other", fault="anything else", code="agent.turn-failed", final=""),
)
