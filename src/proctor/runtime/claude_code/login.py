"""Where Claude Code keeps its user's login, and how it takes a token instead."""

from typing import Final

from proctor.runtime.credential import Account

ACCOUNT: Final = Account(
    provider="anthropic",
    home_variable="CLAUDE_CONFIG_DIR",
    home_name=".claude",
    file_name=".credentials.json",
    command="claude auth login",
    token_variable="CLAUDE_CODE_OAUTH_TOKEN",  # noqa: S106 - a name
)
