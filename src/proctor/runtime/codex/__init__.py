"""Code that the two Codex runtimes share."""
