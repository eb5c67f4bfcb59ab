"""What the two ways to drive Codex have in common."""
