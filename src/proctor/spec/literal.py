"""Where a spec spells out a secret instead of naming the variable that holds it."""

import re
from collections.abc import Iterator
from typing import Any

from proctor.spec.tree import child_path

_KEYS = re.compile(
    r"""(?x) (?<![A-Za-z0-9_-])
    (?: sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}            # OpenAI, Anthropic and their imitators
    |   (?: gh[pousr]_ | github_pat_ | glpat- )[A-Za-z0-9_-]{16,}
    |   (?: AKIA | ASIA )[A-Z0-9]{16}
    |   AIza[A-Za-z0-9_-]{30,}
    |   xox[abeoprs]-[A-Za-z0-9-]{10,}
    |   eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}            # a JSON web token
    )
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
    """
)
_URL_WITH_PASSWORD = re.compile(r"[a-z+]+://[^/\s:@]*:[^/\s:@]+@\S*")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
# Paths, `$NAMES` and NAMES_OF_VARIABLES say where a secret is, not what it is.
_TOKEN = re.compile(r"(?![./~$])(?!(?:[A-Z]+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)$)[^\s$]{12,}")


def looks_secret(text: str, *, name: str | None = None) -> bool:
    """
    >>> looks_secret("sk-proj-4f9a8b7c6d5e4f3a"), looks_secret("sk-learn-compatible-estimators")
    (True, False)
    >>> looks_secret("correcthorsebattery"), looks_secret("correcthorsebattery", name="DB_PASSWORD")
    (False, True)
    >>> looks_secret("MY_HOST_TOKEN", name="token"), looks_secret("my-host-0123456", name="token")
    (False, True)
    """
    if _KEYS.search(text) or _URL_WITH_PASSWORD.fullmatch(text):
        return True
    return name is not None and _SECRET_NAME.search(name) is not None and _TOKEN.fullmatch(text) is not None


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
