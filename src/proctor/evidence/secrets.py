"""Finds the secrets to mask: variables named like one, those that the spec declares, and credential files."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from proctor.errors import CODES, InputError
from proctor.event.outcome import Outcome
from proctor.event.row import Direction, SupervisorRow
from proctor.spec.choices import Approvals, Isolation, Sandbox
from proctor.spec.literal import MIN_SECRET_CHARS, is_named_like_a_secret, looks_secret
from proctor.spec.source_file import read_source

# A variable whose name ends in one of these and whose value is an absolute path is the place of a secret, not one.
_PLACE_WORDS = frozenset("CREDENTIALS DIR FILE HOME PATH SOCK SOCKET".split())

_LINE = re.compile(r"(?m)^\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*[:=]\s*[\"']?(.*?)[\"']?\s*$")


def _own_words() -> Iterator[str]:
    """Yield the words of Proctor's own rows and files. Masking part of one would make evidence unreadable."""
    yield from (*CODES, *Outcome, *Direction, *Isolation, *Sandbox, *Approvals, "redacted", "PROCTOR-RESULT")
    for row in SupervisorRow.__subclasses__():
        yield from (str(row.__struct_config__.tag), *row.__struct_encode_fields__)


OUR_WORDS: Final = frozenset(_own_words())


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A value that must never be written to disk, and the name that replaces it.

    Raises ValueError if the value has fewer than `MIN_SECRET_CHARS` characters.
    """

    name: str
    value: str = field(repr=False)
    is_case_sensitive: bool = field(default=False, repr=False)
    """Whether the value is masked only in its own case, because it is part of a reserved word in another case."""

    def __post_init__(self) -> None:
        if len(self.value) < MIN_SECRET_CHARS:
            raise ValueError(f"{self.name} is too short to redact safely")


def find_secrets(
    environ: Mapping[str, str],
    *,
    declared: Sequence[str],
    files: Sequence[Path] = (),
    words: Collection[str] = (),
) -> tuple[Secret, ...]:
    """Return each secret value once, under the first of its names, without surrounding white space.

    `words` are those of the agent's protocol and the ids of the spec. A value that is part of one of them, of one of
    Proctor's own words or of a variable's name cannot be masked without making evidence unreadable, so it is skipped.
    If it is part of one in another case only, it is masked in its own case.
    Raises InputError if a declared secret or a credential file has nothing that can be masked.

    >>> find_secrets({"OPENAI_API_KEY": "sk-live-0123", "KEYBOARD": "qwertyuiop"}, declared=[])
    (Secret(name='OPENAI_API_KEY'),)
    """
    reserved = "\n".join((*OUR_WORDS, *words, *environ))
    names: dict[str, str] = {}
    for name, padded in environ.items():
        value = padded.strip()
        is_place = value.startswith("/") and name.upper().split("_")[-1] in _PLACE_WORDS
        if name not in declared and not is_place and is_named_like_a_secret(name) and _is_maskable(value, reserved):
            names.setdefault(value, name)
    for name in declared:
        names.setdefault(_declared_value(environ, name, reserved), name)
    for path in files:
        for name, value in _read_credentials(path, reserved):
            names.setdefault(value, name)
    folded = reserved.lower()
    return tuple(
        Secret(name=name, value=value, is_case_sensitive=value.lower() in folded) for value, name in names.items()
    )


def _is_maskable(value: str, reserved: str) -> bool:
    return len(value) >= MIN_SECRET_CHARS and value not in reserved


def _declared_value(environ: Mapping[str, str], name: str, reserved: str) -> str:
    if name not in environ:
        raise InputError(
            "spec.missing-key",
            f"the variable {name} is declared as a secret but is not set",
            key="secrets",
            suggestion=f"set {name}, or take it out of `secrets`",
        )
    value = environ[name].strip()
    if len(value) < MIN_SECRET_CHARS:
        raise InputError(
            "spec.type",
            f"the value of {name} is too short to redact safely: it needs {MIN_SECRET_CHARS} characters or more",
            key="secrets",
        )
    if value in reserved:
        raise InputError(
            "spec.type",
            f"the value of {name} is a word of the agent protocol, an id or a variable's name, and cannot be redacted",
            key="secrets",
        )
    return value


def _read_credentials(path: Path, reserved: str) -> list[tuple[str, str]]:
    """Return the secrets of a credential file as (name, value). Raises InputError if it has none."""
    text = read_source(path).decode("utf-8", "surrogateescape").strip()
    try:
        values = list(_leaves(json.loads(text), key=""))
    except (ValueError, RecursionError):
        pairs = _LINE.findall(text)
        values = [(name, value) for name, value in pairs if is_named_like_a_secret(name)] if pairs else [("", text)]
    secrets = [(f"{path.name}:{key}".rstrip(":"), value) for key, value in values if _is_maskable(value, reserved)]
    if not secrets:
        raise InputError(
            "spec.type",
            f"{path.name} contains no secret that can be redacted",
            key="secrets",
            suggestion="use JSON, or lines of NAME=value with names like API_KEY, or a single secret of "
            f"{MIN_SECRET_CHARS} characters or more",
        )
    return secrets


def holds_credential(data: bytes) -> bool:
    """Whether the data is a JSON mapping that contains a secret of at least `MIN_SECRET_CHARS` characters.

    >>> holds_credential(b'{"tokens": {"access_token": "0123-abcd"}}'), holds_credential(b'{"tokens": {}}')
    (True, False)
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and any(len(leaf) >= MIN_SECRET_CHARS for _, leaf in _leaves(value, key="."))


def _leaves(value: Any, *, key: str) -> Iterator[tuple[str, str]]:
    """Yield the strings that look secret, or whose key does, each with its key."""
    match value:
        case dict():
            for name, item in value.items():
                yield from _leaves(item, key=name)
        case list():
            for item in value:
                yield from _leaves(item, key=key)
        case str() if not key or is_named_like_a_secret(key) or looks_secret(value):
            yield key, value.strip()
