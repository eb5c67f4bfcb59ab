"""References of a context engine: which are given beside the prompt, and which are quoted in it. Pure.

Some agents accept data with less authority than the prompt, under a key of our choice, and put it between tags that are
made from the key (such as `<external_KEY>`). Codex neither escapes the data nor checks the key, and cuts the middle out
of longer data without a warning. So both are made safe here, and what is longer than the agent passes on is quoted in
the prompt.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from proctor.context.payload import json_text, utf8_bytes
from proctor.context.text import Header, Quote, escape, unescape
from proctor.ids import EntryId

_KEY_CHARS: Final = 40
_HASH_CHARS: Final = 16
_UNSAFE: Final = re.compile("[^a-z0-9]+")


class Trust(StrEnum):
    """Who wrote a reference."""

    UNTRUSTED = "untrusted"
    """Anyone, such as the author of a web page."""

    WORKSPACE = "workspace"
    """The authors of the workspace."""

    OPERATOR = "operator"
    """The user, or the caller of Proctor."""


class Reference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A document that a context engine adds to a turn. It is data, whatever its trust."""

    id: str
    """Id of the document, chosen by the engine, such as a path or a URL."""

    text: str
    """The document."""

    trust: Trust = Trust.UNTRUSTED
    """Who wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparateReference:
    """A reference to give beside the prompt. `key` has only lower-case letters, digits and `_`; `value` is escaped."""

    id: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedReferences:
    """Where each reference goes, in the engine's order."""

    separate: tuple[SeparateReference, ...]
    quoted: tuple[Reference, ...]


def place_references(references: Sequence[Reference], *, most_separate_bytes: int | None) -> PlacedReferences:
    """Decide for each reference whether it is given beside the prompt or quoted in it.

    `most_separate_bytes` is the longest data that the agent accepts beside the prompt, after escaping; None if it
    accepts none.

    >>> references = (Reference(id="a.md", text="a < b"), Reference(id="b.md", text="b" * 4_001))
    >>> placed = place_references(references, most_separate_bytes=4_000)
    >>> [(each.key, each.value) for each in placed.separate], [each.id for each in placed.quoted]
    ([('a_md_fecccc97532467ad', 'a &lt; b')], ['b.md'])
    """
    separate: dict[str, SeparateReference] = {}
    quoted: list[Reference] = []
    for each in references:
        key, value = reference_key(each.id), escape_reference(each.text)
        if most_separate_bytes is None or len(value.encode()) > most_separate_bytes or key in separate:
            quoted.append(each)
        else:
            separate[key] = SeparateReference(id=each.id, key=key, value=value)
    return PlacedReferences(separate=tuple(separate.values()), quoted=tuple(quoted))


def reference_key(id_: str) -> str:
    """Return the key for a reference, the same at each turn: readable, and different for each id.

    >>> reference_key("docs/Read Me.md"), reference_key("</external_x>")
    ('docs_read_me_md_a363de39bb391d3e', 'external_x_f3a5021487cf3567')
    """
    name = _UNSAFE.sub("_", id_.lower())[:_KEY_CHARS].strip("_")
    return f"{name or 'reference'}_{hashlib.sha256(id_.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH_CHARS]}"


def reference_mark(reference: Reference) -> EntryId:
    """Return what notes, among the entries that a thread holds, that it was given this reference.

    >>> reference_mark(Reference(id="a.md", text="a"))
    'reference-7e613a6c07c5c3ff'
    """
    content = json_text([reference.id, reference.trust, reference.text]).encode("utf-8", "surrogatepass")
    return EntryId(f"reference-{hashlib.sha256(content).hexdigest()[:_HASH_CHARS]}")


def escape_reference(text: str) -> str:
    """Escape a reference so that nothing in it is a tag or a mention: `unescape_reference` returns the text.

    >>> escape_reference("</external_x> & $skill")
    '&lt;/external_x&gt; &amp; $\\\\skill'
    """
    return escape(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape_reference(text: str) -> str:
    """Undo `escape_reference`."""
    return unescape(text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


def quote_reference(reference: Reference) -> Quote:
    r"""Return a reference as a quote, after a line with its id and trust.

    >>> quote_reference(Reference(id="a.md", text="a", trust=Trust.WORKSPACE)).text
    'a.md (workspace)\na'
    """
    return Quote(header=Header.REFERENCE, text=f"{reference.id} ({reference.trust})\n{reference.text}")


def reference_bytes(reference: Reference) -> int:
    """Return the size of a reference in UTF-8.

    >>> reference_bytes(Reference(id="a.md", text="é"))
    6
    """
    return utf8_bytes(reference.id) + utf8_bytes(reference.text)
