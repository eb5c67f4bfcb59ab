"""What counts as a secret: variables named like one, those the spec declares, and what credential files hold."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from proctor.errors import CODES, InputError
from proctor.event.outcome import Outcome
from proctor.event.row import Dir, Seen
from proctor.spec.literal import LEAST_CHARS, is_named_like_a_secret, looks_secret
from proctor.spec.marked import read_source
from proctor.spec.model import Approvals, Isolation, Sandbox

# A variable that ends in one of these and holds an absolute path says where a secret is, and is none itself.
_PLACE_WORDS = frozenset("CREDENTIALS DIR FILE HOME PATH SOCK SOCKET".split())

_LINE = re.compile(r"(?m)^\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*[:=]\s*[\"']?(.*?)[\"']?\s*$")


def _said_by_us() -> Iterator[str]:
    """What our own rows and files are made of. Masking a part of one would make evidence that cannot be read."""
    yield from (*CODES, *Outcome, *Dir, *Isolation, *Sandbox, *Approvals, "redacted", "PROCTOR-RESULT")
    for seen in Seen.__subclasses__():
        yield from (str(seen.__struct_config__.tag), *seen.__struct_encode_fields__)


OUR_WORDS: Final = frozenset(_said_by_us())


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A value that must never reach the disk, and the name that stands there instead."""

    name: str
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) < LEAST_CHARS:
            raise ValueError(f"{self.name} is too short to redact safely")


def find_secrets(
    environ: Mapping[str, str],
    *,
    declared: Sequence[str],
    files: Sequence[Path] = (),
    words: Collection[str] = (),
) -> tuple[Secret, ...]:
    """Each secret value once, under the first of its names; surrounding white space is no part of a value.

    `words` are those of the agent's protocol and the ids of the spec: what is a part of one of them, of a word of ours
    or of a variable's name cannot be masked without making evidence unreadable, and is never a secret.

    >>> find_secrets({"OPENAI_API_KEY": "sk-live-0123", "KEYBOARD": "qwertyuiop"}, declared=[])
    (Secret(name='OPENAI_API_KEY'),)
    """
    taken = "\n".join((*OUR_WORDS, *words, *environ))
    names: dict[str, str] = {}
    for name, padded in environ.items():
        value = padded.strip()
        is_place = value.startswith("/") and name.upper().split("_")[-1] in _PLACE_WORDS
        if name not in declared and not is_place and is_named_like_a_secret(name) and _is_maskable(value, taken):
            names.setdefault(value, name)
    for name in declared:
        names.setdefault(_declared_value(environ, name, taken), name)
    for path in files:
        for name, value in _held_by(path, taken):
            names.setdefault(value, name)
    return tuple(Secret(name=name, value=value) for value, name in names.items())


def _is_maskable(value: str, taken: str) -> bool:
    return len(value) >= LEAST_CHARS and value not in taken


def _declared_value(environ: Mapping[str, str], name: str, taken: str) -> str:
    if name not in environ:
        raise InputError(
            "spec.missing-key",
            f"the variable {name} is declared as a secret but is not set",
            key="secrets",
            suggestion=f"set {name}, or take it out of `secrets`",
        )
    value = environ[name].strip()
    if len(value) < LEAST_CHARS:
        raise InputError(
            "spec.type",
            f"the value of {name} is too short to redact safely: it needs {LEAST_CHARS} characters or more",
            key="secrets",
        )
    if value in taken:
        raise InputError(
            "spec.type",
            f"the value of {name} is a word of the agent protocol, an id or a variable's name, and cannot be redacted",
            key="secrets",
        )
    return value


def _held_by(path: Path, taken: str) -> list[tuple[str, str]]:
    """The secrets of a credential file, each with its name. InputError where there is none to be found."""
    text = read_source(path).decode("utf-8", "surrogateescape").strip()
    try:
        held = list(_leaves(json.loads(text), key=""))
    except (ValueError, RecursionError):
        pairs = _LINE.findall(text)
        held = [(name, value) for name, value in pairs if is_named_like_a_secret(name)] if pairs else [("", text)]
    found = [(f"{path.name}:{key}".rstrip(":"), value) for key, value in held if _is_maskable(value, taken)]
    if not found:
        raise InputError(
            "spec.type",
            f"{path.name} holds nothing that can be redacted",
            key="secrets",
            suggestion=f"a credential file is JSON or lines of NAME=value with names like API_KEY, or one secret of "
            f"{LEAST_CHARS} characters or more",
        )
    return found


def holds_credential(data: bytes) -> bool:
    """Whether this is a JSON mapping with a secret in it that is long enough to be one.

    >>> holds_credential(b'{"tokens": {"access_token": "0123-abcd"}}'), holds_credential(b'{"tokens": {}}')
    (True, False)
    """
    try:
        held = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(held, dict) and any(len(value) >= LEAST_CHARS for _, value in _leaves(held, key="."))


def _leaves(value: Any, *, key: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, item in value.items():
                yield from _leaves(item, key=name)
        case list():
            for item in value:
                yield from _leaves(item, key=key)
        case str() if not key or is_named_like_a_secret(key) or looks_secret(value):
            yield key, value.strip()
