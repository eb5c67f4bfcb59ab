"""What every Codex does when it shortens the history of a thread. Seen with 0.163."""

from typing import Final

KEPT_TOKENS: Final = 20_000
"""Codex keeps the newest messages of the user up to this size, and cuts the one that does not fit."""

WARNING: Final = "Heads up: Long threads and multiple compactions "
"""How the warning after each compaction begins. `codex exec` prints nothing else about a compaction."""
