"""The word that somebody may have meant. Pure."""

from collections.abc import Iterable
from typing import Final

MAX_WORD: Final = 60  # a longer word is no misspelling, and comparing it would cost its square


def nearest(word: str, known: Iterable[str]) -> str | None:
    """
    >>> nearest("comand", ["command", "stdout"])
    'command'
    """
    import difflib  # mistakes are rare, and every command would load it

    close = difflib.get_close_matches(word, list(known), n=1) if len(word) <= MAX_WORD else []
    return close[0] if close else None


def suggest(word: str, known: Iterable[str], *, noun: str) -> str:
    """
    >>> suggest("nope", ["command", "stdout"], noun="Known keys")
    'Known keys: command, stdout.'
    """
    names = list(known)
    close = nearest(word, names)
    return f"Did you mean `{close}`?" if close else f"{noun}: {', '.join(names)}."
