"""Attribute a Codex warning to its source, by versioned rules on its text or else by its channel."""

import re
from dataclasses import dataclass
from typing import Final

from proctor.event.model import WarningSource

STDERR: Final = "stderr"
ERROR_ITEM: Final = "item error"
"""The channel for all warnings of `codex exec` on stdout."""

CHANNELS: Final[dict[str, WarningSource]] = {
    STDERR: "process",
    ERROR_ITEM: "thread",
    "thread.started": "thread",
    "warning": "thread",
    "guardianWarning": "thread",
    "configWarning": "config",
    "deprecationNotice": "deprecation",
    "mcpServer/startupStatus/updated": "mcp",
    "model/rerouted": "provider",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A pattern for one kind of warning in Codex's sources. A changed pattern needs a new version."""

    id: str
    version: int
    channel: str
    source: WarningSource
    pattern: re.Pattern[str]

    @property
    def name(self) -> str:
        return f"codex.{self.id}/{self.version}"


def _rule(
    id_: str, pattern: str, *, channel: str = STDERR, source: WarningSource = "process", version: int = 1
) -> Rule:
    return Rule(id=id_, version=version, channel=channel, source=source, pattern=re.compile(pattern))


# Texts in the program 0.163, and in published recordings of 0.117 to 0.147.
RULES: Final = (
    _rule(
        "plugin-cache",
        r"failed to warm featured plugin ids cache|remote (installed )?plugins? cache|plugin cache (entry|refresh)"
        r"|clearing plugin-related caches",
    ),
    _rule(
        "state-migration",
        r"migration \d+ was previously applied but (is missing in the resolved migrations|has been modified)"
        r"|rollout migration failed",
    ),
    _rule("shell-snapshot", r"(?i:shell snapshot)|Failed to check rollout age for snapshot"),
    _rule("mcp-process-group", r"Failed to (terminate|kill) MCP process group"),
    # `codex exec` has one channel for all of these, where the app-server has one for each.
    _rule("item-deprecation", r"(?i:\bis deprecated\b)", channel=ERROR_ITEM, source="deprecation"),
    _rule("item-mcp", r"^MCP (client|server|startup)\b", channel=ERROR_ITEM, source="mcp"),
    _rule("item-model-metadata", r"^Model metadata for ", channel=ERROR_ITEM, source="provider"),
)


def attribute_warning(channel: str, text: str) -> tuple[WarningSource, str | None]:
    """Return the source of a warning, and the name of the rule that determined it. None: the channel did.

    >>> attribute_warning("stderr", "WARN codex_core::shell_snapshot: Failed to delete shell snapshot at x")
    ('process', 'codex.shell-snapshot/1')
    >>> attribute_warning("stderr", "thread/read failed while backfilling turn items for turn completion")
    ('process', None)
    """
    for rule in RULES:
        if rule.channel == channel and rule.pattern.search(text):
            return rule.source, rule.name
    return CHANNELS.get(channel, "protocol"), None
