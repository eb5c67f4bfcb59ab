"""The words of a query, as an index of words without positions takes them. Pure."""

import re
import unicodedata
from typing import Final

_MOST_WORDS: Final = 32
_WORD: Final = re.compile(r"[^\W_]+")


def query_words(query: str) -> tuple[str, ...]:
    """Return the words of a query, each once.

    >>> query_words('the "lamp_post" AND *')
    ('the', 'lamp', 'post', 'AND')
    """
    return tuple(dict.fromkeys(word for found in _WORD.findall(query) for word in _split(found)))[:_MOST_WORDS]


def fts_query(query: str) -> str:
    """Return the query for FTS5 that finds all the words of a text. Empty if it has none.

    >>> fts_query("a-b")
    '"a" "b"'
    """
    return " ".join(f'"{word}"' for word in query_words(query))


def _split(word: str) -> list[str]:
    """Return the parts of a word that the index knows as words.

    Without positions, FTS5 refuses a quoted text that is several words to it, and it knows no letters that are newer
    than Unicode 6.1. So letters that are newer than 3.2, for which Python has a table, separate words.
    """
    if word.isascii():
        return [word]
    known = (each if unicodedata.ucd_3_2_0.category(each)[0] in "LN" else " " for each in word)
    return "".join(known).split()
