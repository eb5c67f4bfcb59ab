"""Suggest the known word that is most similar to a misspelled one. Pure."""

from collections.abc import Iterable
from typing import Final

MAX_WORD: Final = 60  # comparing longer words is slow, and they are not misspellings


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`; None if none is similar.

    >>> nearest("comand", ["command", "stdout"])
    'command'
    """
    import difflib  # imported here, because few commands need it

    close = difflib.get_close_matches(word, list(known), n=1) if len(word) <= MAX_WORD else []
    return close[0] if close else None


def suggest_nearest(word: str, known: Iterable[str]) -> str | None:
    """Return a suggestion for an unknown word, for a message that lists the known ones; None if none is similar.

    >>> suggest_nearest("comand", ["command", "stdout"])
    'Did you mean `command`?'
    """
    close = nearest(word, known)
    return None if close is None else f"Did you mean `{close}`?"


def suggest(word: str, known: Iterable[str], *, noun: str) -> str:
    """Return a suggestion for an unknown word: the most similar known word, or all of them.

    >>> suggest("nope", ["command", "stdout"], noun="Known keys")
    'Known keys: command, stdout.'
    """
    names = list(known)
    return suggest_nearest(word, names) or f"{noun}: {', '.join(names)}."
