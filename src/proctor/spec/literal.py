"""Recognize secrets by their shape or by their name, and find literal secrets in a spec."""

import re
from collections.abc import Iterator
from typing import Any, Final

from proctor.spec.tree import child_path

# Shorter values occur in ordinary text, so that masking or refusing them would do harm.
MIN_SECRET_CHARS: Final = 8
LITERAL_MESSAGE: Final = "the value looks like a secret"
LITERAL_SUGGESTION: Final = "Put the value in an environment variable and list the variable's name under `secrets:`."

_KEYS: Final = r"""
    (?<![A-Za-z0-9_-])
    (?: sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}            # OpenAI, Anthropic and their imitators
    |   (?: gh[pousr]_ | github_pat_ | glpat- )[A-Za-z0-9_-]{16,}
    |   (?: AKIA | ASIA )[A-Z0-9]{16}
    |   AIza[A-Za-z0-9_-]{30,}
    |   xox[abeoprs]-[A-Za-z0-9-]{10,}
    |   eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}            # a JSON web token
    )
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
    """
_KEY = re.compile(_KEYS, re.VERBOSE)
_URL_WITH_PASSWORD = re.compile(r"[a-z+]+://[^/\s:@]*:[^/\s:@]+@\S*")
_IN_MESSAGE = re.compile(rf"(?:{_KEYS})[^\s`]* | [a-z+]+://[^/\s:@]*:[^/\s:@]+@[^\s`]*", re.VERBOSE)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_KEY_WORDS: Final = frozenset("AUTH CREDENTIAL CREDENTIALS KEY KEYS PASS SECRETS".split())
_KEY_ENDS: Final = (
    *("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN"),
    *("APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY"),
)
# A name that ends with one of these describes how or where a secret is used.
_ABOUT_WORDS: Final = frozenset("ENDPOINT METHOD MODE TYPE URI URL".split())

# Paths, `$NAMES` and NAMES_OF_VARIABLES are references to a secret. A short value of plain words is a setting.
_TOKEN = re.compile(
    rf"""(?x) (?![./~$]) (?! (?: [A-Z]+ | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+ ) $ )
    (?: [^\s$]{{12,}} | (?! [A-Za-z]+ (?: [._-][A-Za-z]+ )* $ ) [^\s$]{{{MIN_SECRET_CHARS},}} )"""
)


def is_named_like_a_secret(name: str) -> bool:
    """Return whether a variable or key has a name that is typical of secrets.

    >>> is_named_like_a_secret("refreshToken"), is_named_like_a_secret("MAX_TOKENS")
    (True, False)
    """
    words = (word.upper() for word in _WORD.findall(name))
    return any(word in _KEY_WORDS or word.endswith(_KEY_ENDS) for word in words)


def looks_secret(text: str, *, name: str | None = None) -> bool:
    """Return whether a text has the shape of a secret, or is the value of a name that is typical of secrets.

    >>> looks_secret("sk-proj-4f9a8b7c6d5e4f3a"), looks_secret("sk-learn-compatible-estimators")
    (True, False)
    >>> looks_secret("correcthorsebattery"), looks_secret("correcthorsebattery", name="DB_PASSWORD")
    (False, True)
    >>> looks_secret("MY_HOST_TOKEN", name="token"), looks_secret("my-host-0123456", name="token")
    (False, True)
    """
    if _KEY.search(text) or _URL_WITH_PASSWORD.fullmatch(text):
        return True
    if name is None or not is_named_like_a_secret(name) or _WORD.findall(name)[-1].upper() in _ABOUT_WORDS:
        return False
    return _TOKEN.fullmatch(text) is not None


def mask_secrets(text: str) -> str:
    """Mask everything in a message that has the shape of a secret.

    >>> mask_secrets("`sk-proj-4f9a8b7c6d5e4f3a` is not one of a, b")
    '`[a secret]` is not one of a, b'
    """
    return _IN_MESSAGE.sub("[a secret]", text)


def literal_secrets(value: Any, *, path: str = "", name: str | None = None) -> Iterator[str]:
    """Yield the key paths of all strings in plain data that look like secrets.

    >>> list(literal_secrets({"flows": [{"env": {"API_TOKEN": "0123456789abcdef", "LANG": "C"}}]}))
    ['flows[0].env.API_TOKEN']
    """
    match value:
        case dict():
            for key, inner in value.items():
                yield from literal_secrets(inner, path=child_path(path, key), name=key)
        case list():
            for at, inner in enumerate(value):
                yield from literal_secrets(inner, path=child_path(path, at))
        case str() if looks_secret(value, name=name):
            yield path
