"""What looks like a secret, by shape or by name, and where a spec spells one out instead of naming its variable."""

import re
from collections.abc import Iterator
from typing import Any, Final

from proctor.spec.tree import child_path

# Shorter values occur in innocent text: masking them would spoil the evidence, and refusing them the spec.
LEAST_CHARS: Final = 8
WRITTEN_OUT: Final = "this looks like a secret, written out"
INSTEAD: Final = "Put the value in an environment variable and list the variable's name under `secrets:`."

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
_SPOKEN = re.compile(rf"(?:{_KEYS})[^\s`]* | [a-z+]+://[^/\s:@]*:[^/\s:@]+@[^\s`]*", re.VERBOSE)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_KEY_WORDS: Final = frozenset("AUTH CREDENTIAL CREDENTIALS KEY KEYS PASS SECRETS".split())
_KEY_ENDS: Final = (
    *("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN"),
    *("APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY"),
)
# A name that ends so says how a secret is used, or where it is asked for.
_ABOUT_WORDS: Final = frozenset("ENDPOINT METHOD MODE TYPE URI URL".split())

# Paths, `$NAMES` and NAMES_OF_VARIABLES say where a secret is, not what it is. A short one of plain words is a setting.
_TOKEN = re.compile(
    rf"""(?x) (?![./~$]) (?! (?: [A-Z]+ | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+ ) $ )
    (?: [^\s$]{{12,}} | (?! [A-Za-z]+ (?: [._-][A-Za-z]+ )* $ ) [^\s$]{{{LEAST_CHARS},}} )"""
)


def is_named_like_a_secret(name: str) -> bool:
    """
    >>> is_named_like_a_secret("refreshToken"), is_named_like_a_secret("MAX_TOKENS")
    (True, False)
    """
    words = (word.upper() for word in _WORD.findall(name))
    return any(word in _KEY_WORDS or word.endswith(_KEY_ENDS) for word in words)


def looks_secret(text: str, *, name: str | None = None) -> bool:
    """
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


def unspoken(text: str) -> str:
    """A message without what has the shape of a secret: messages are printed, logged and pasted.

    >>> unspoken("`sk-proj-4f9a8b7c6d5e4f3a` is not one of a, b")
    '`[a secret]` is not one of a, b'
    """
    return _SPOKEN.sub("[a secret]", text)


def literal_secrets(value: Any, *, path: str = "", name: str | None = None) -> Iterator[str]:
    """The key paths of all texts in plain data that look like secrets.

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
