"""Shapes of tokens and keys that are masked even if they are not known secrets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BOUND_CHARS: Final = 4096
"""A run of this many characters after a lead is masked without waiting for its end."""

LEAD_CHARS: Final = 96
"""Maximum length of a lead, including the character before it."""

MODEL_PREFIX: Final = "proctor_model_"
"""How the token begins that is part of the URL of a scripted model."""

# The last word of a key says what its value is: `client_secret`, `GITHUB_TOKEN`, `apiKey`.
_PHRASE = r"(?i:pass(?:word|wd|phrase))"
_KEY = r"(?i:secret|token|(?:api|access|secret|private)[_-]?key)"
# As in `password=`, `"password": "`, and the same in JSON within JSON.
_IS = r"""["'\\]{0,4}[ \t]{0,4}(?:=>|[:=])[ \t]{0,4}"""

_VALUE = r"""[^\s"'`\\,;&<>]"""
_LITERAL = r"""[^\s"'`\\,;&<>()\[\]{}$]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a token: a lead, which stays readable, followed by the secret."""

    kind: str
    """Name of the shape. It appears in the placeholder as `scan:<kind>`."""
    lead: str
    """Pattern of the text before the secret, for both `re` and `re2`."""
    body: str
    """Pattern of the secret, for `re`."""
    run: str
    """Pattern of everything that may still become the secret. A text that ends inside a run is undecided."""
    hint: str
    """Pattern of enough of the secret to justify a close look, for both `re` and `re2`."""
    is_word: bool = True
    """Whether the lead only counts without a letter or digit before it."""


def _token(kind: str, lead: str, chars: str, least: int, *, when: str = "", is_word: bool = True) -> Shape:
    body = f"{when}{chars}{{{least},}}"
    return Shape(kind=kind, lead=lead, body=body, run=f"{chars}*", hint=f"{chars}{{{least}}}", is_word=is_word)


def _with(chars: str, *needed: str) -> str:
    """Return lookaheads that require each of these characters in a run of `chars`, as in generated tokens."""
    return "".join(f"(?={chars}*{one})" for one in needed)


# Between the lines of a key: line ends, also escaped ones, with the marks of a diff or a quotation.
_FOLD = r"(?:[\s>|]|\\{1,3}[rn])[+-]?"
_LINES = rf"(?:(?:{_FOLD})*[A-Za-z0-9+/]{{16,}}={{0,2}})"

SHAPES: Final = (
    _token("sk", r"sk-", "[A-Za-z0-9_-]", 20, when=_with("[A-Za-z_-]", "[0-9]")),
    _token("github", r"(?:gh[pousr]_|github_pat_)", "[A-Za-z0-9_]", 20, is_word=False),
    _token("gitlab", r"glpat-", "[A-Za-z0-9_-]", 20, is_word=False),
    _token("google", r"AIza", "[A-Za-z0-9_-]", 30),
    _token("slack", r"xox[abeoprs]-", "[A-Za-z0-9-]", 10, when=_with("[A-Za-z-]", "[0-9]"), is_word=False),
    _token("aws", r"(?:AKIA|ASIA)", "[A-Z0-9]", 16),
    _token("model", MODEL_PREFIX, "[A-Za-z0-9_-]", 20, is_word=False),
    Shape(
        kind="jwt",
        lead="eyJ",
        body=r"[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?",
        run="[A-Za-z0-9_.-]*",
        hint=r"[A-Za-z0-9_-]{6,}\.eyJ",
    ),
    Shape(
        kind="private-key",
        lead=r"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY-----",
        body=rf"{_LINES}+(?:(?:{_FOLD})+[A-Za-z0-9+/]{{1,15}}={{0,2}})?",
        run=rf"{_LINES}*(?:{_FOLD})*(?:\\{{1,3}}|[A-Za-z0-9+/]{{0,15}}={{0,2}})",
        hint="",
        is_word=False,
    ),
    _token(
        "bearer",
        r"(?:[Bb]earer|BEARER)[ \t]{1,4}",
        "[A-Za-z0-9._~+/=-]",
        16,
        when=_with("[A-Za-z0-9._~+/=-]", "[0-9]", "[A-Za-z]"),
    ),
    _token("basic", rf"""(?i:authorization){_IS}["'\\]{{0,4}}(?i:basic)[ \t]{{1,4}}""", "[A-Za-z0-9+/=_-]", 8),
    Shape(
        kind="url",
        lead=r"""://[^\s/@:"'<>\\]{1,32}:""",
        body=r"""(?!\[redacted:)[^\s/@"'<>\\]{3,}(?=@)""",
        run=r"""[^\s/@"'<>\\]*""",
        hint=r"""[^\s/@"'<>\\]{3,}@""",
        is_word=False,
    ),
    Shape(
        kind="password",
        lead=rf"""{_PHRASE}{_IS}\\{{0,3}}["']""",
        body=r"""(?!\[redacted:)[^\s"'\\]{8,}""",
        run=r"""[^\s"'\\]*""",
        hint=r"""[^"'\\]{8}""",
        is_word=False,
    ),
    Shape(
        kind="key",
        lead=rf"""(?:{_PHRASE}|{_KEY}){_IS}["'\\]{{0,4}}""",
        # Excludes source code in the same position: a call, an index, a reference, a comparison.
        body=rf"{_with(_LITERAL, '[0-9]', '[A-Za-z]')}(?![=:]){_LITERAL}{{8,}}(?!{_VALUE})",
        run=f"{_VALUE}*",
        hint=f"{_VALUE}{{8}}",
        is_word=False,
    ),
)

HINTS: Final = tuple(f"{shape.lead}{shape.hint}" for shape in SHAPES)
"""Patterns for undecoded bytes. Text that contains a token matches at least one of them."""

KEY_HINT: Final = rf"(?:{_PHRASE}|{_KEY})\"[ \t\r\n]*:"
"""Pattern for undecoded JSON that matches every key for which `kind_of` may return a name."""


@dataclass(frozen=True, slots=True)
class _Scanner:
    name: str
    lead: re.Pattern[str]
    body: re.Pattern[str]
    run: re.Pattern[str]


_SCANNERS: Final = tuple(
    _Scanner(
        f"scan:{shape.kind}",
        re.compile(rf"(?<![A-Za-z0-9]){shape.lead}" if shape.is_word else shape.lead),
        re.compile(shape.body),
        re.compile(shape.run),
    )
    for shape in SHAPES
)


def places(text: str, *, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and name of each token whose secret part starts before `end`, in any order, overlaps included.

    >>> list(places("GITHUB_TOKEN=ghp_0123456789abcdefghij", end=99))
    [(17, 37, 'scan:github'), (13, 37, 'scan:key')]
    """
    for scanner in _SCANNERS:
        done = 0
        for lead in scanner.lead.finditer(text):
            if lead.end() >= end:
                break
            if lead.end() < done:
                continue
            run = scanner.run.match(text, lead.end())
            token = scanner.body.match(text, lead.end()) if run is None or len(run[0]) < BOUND_CHARS else run
            if token is not None:
                yield token.start(), token.end(), scanner.name
                # Leads inside a token add nothing, and scanning each of many would take quadratic time.
                done = token.end()


def may_contain_lead(text: str) -> bool:
    """Whether a text can contain a lead.

    Called for every piece of every stream: `in` on a short text takes a tenth of the time of a regular expression.
    """
    if "-" in text and ("sk-" in text or "xox" in text or "glpat-" in text or "-----BEGIN " in text):
        return True
    if "_" in text and ("gh" in text or "github_pat_" in text or MODEL_PREFIX in text):
        return True
    if "eyJ" in text or "AIza" in text or "AKIA" in text or "ASIA" in text or "earer" in text or "EARER" in text:
        return True
    if ":" in text or "=" in text:
        lower = text.lower()
        if "://" in lower or "key" in lower or "token" in lower or "secret" in lower or "authorization" in lower:
            return True
        return "passw" in lower or "passphrase" in lower
    return False


def open_at(text: str) -> tuple[int, int]:
    """Return where the first run begins that reaches the end of the text, and where its lead begins.

    Both are the length of the text if there is no such run.

    >>> open_at("the key is sk-0123"), open_at("the key is known")
    ((14, 11), (16, 16))
    """
    end = len(text)
    first = (end, end)
    for scanner in _SCANNERS:
        done = 0
        for lead in scanner.lead.finditer(text):
            if lead.end() < done:
                continue
            run = scanner.run.match(text, lead.end())
            done = lead.end() if run is None else run.end()
            if done == end:
                first = min(first, (lead.end(), lead.start()))
                break
    return first


_PHRASE_NAME = re.compile(rf"{_PHRASE}\Z")
_KEY_NAME = re.compile(rf"{_KEY}\Z")
_KEY_VALUE = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])\S{8,}")


def kind_of(key: str, value: str) -> str | None:
    """Return the name under which a value is masked because of its key; None if it is not.

    >>> kind_of("client_secret", "3fa9c2d17b"), kind_of("password", "correct horse"), kind_of("tokens", "3fa9c2d17b")
    ('scan:key', 'scan:password', None)
    """
    if len(value) < 8 or value.startswith("[redacted:"):
        return None
    if _PHRASE_NAME.search(key):
        return "scan:password"
    return "scan:key" if _KEY_NAME.search(key) and _KEY_VALUE.fullmatch(value) else None
