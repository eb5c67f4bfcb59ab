"""What counts as a secret: variables named like one, and those the spec declares."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import InputError

# Shorter values occur in innocent text, and masking them there would spoil the evidence.
LEAST_CHARS = 8

_KEY_WORDS = frozenset(
    """
    APIKEY AUTH AUTHTOKEN CREDENTIAL CREDENTIALS KEY KEYS PASSPHRASE PASSWD PASSWORD PGPASSWORD SECRET SECRETS TOKEN
    """.split()
)

# A variable that ends in one of these and holds an absolute path says where a secret is, and is none itself.
_PLACE_WORDS = frozenset("CREDENTIALS DIR FILE HOME PATH SOCK SOCKET".split())

# Masking one of these, or a part of one, would change what a frame means.
PROTOCOL_WORDS = frozenset(
    """
    account/rateLimits/updated agentMessage aggregatedOutput approvalPolicy assistant cachedInputTokens
    commandExecution completed danger-full-access declined developer emittedAtMs fileChange function_call_output
    inProgress initialize initialized inputTokens instructions interrupted item/agentMessage/delta
    item/commandExecution/outputDelta item/commandExecution/requestApproval item/completed item/fileChange/outputDelta
    item/fileChange/requestApproval item/reasoning/summaryTextDelta item/reasoning/textDelta item/started mcpToolCall
    on-failure on-request outputTokens read-only reasoningOutputTokens redacted sandboxPolicy systemError
    thread/started thread/status/changed thread/tokenUsage/updated threadId totalTokens turn/completed
    turn/diff/updated turn/interrupt turn/started untrusted userMessage webSearch workspace-write workspaceWrite
    """.split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A value that must never reach the disk, and the name that stands there instead."""

    name: str
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) < LEAST_CHARS:
            raise ValueError(f"{self.name} is too short to redact safely")


def find_secrets(environ: Mapping[str, str], *, declared: Sequence[str]) -> tuple[Secret, ...]:
    """Each secret value once, under the first of its names; surrounding white space is no part of a value.

    >>> find_secrets({"OPENAI_API_KEY": "sk-live-0123", "KEYBOARD": "qwertyuiop"}, declared=[])
    (Secret(name='OPENAI_API_KEY'),)
    """
    names: dict[str, str] = {}
    for name, padded in environ.items():
        value = padded.strip()
        if name not in declared and _is_named_like_a_secret(name, value) and _is_safe_to_redact(value):
            names.setdefault(value, name)
    for name in declared:
        names.setdefault(_declared_value(environ, name), name)
    return tuple(Secret(name=name, value=value) for value, name in names.items())


def _is_named_like_a_secret(name: str, value: str) -> bool:
    words = re.split(r"[^A-Z0-9]+", name.upper())
    is_place = value.startswith("/") and words[-1] in _PLACE_WORDS
    return not is_place and not _KEY_WORDS.isdisjoint(words)


def _is_safe_to_redact(value: str) -> bool:
    return len(value) >= LEAST_CHARS and not _is_part_of_the_protocol(value)


def _is_part_of_the_protocol(value: str) -> bool:
    return any(value in word for word in PROTOCOL_WORDS)


def _declared_value(environ: Mapping[str, str], name: str) -> str:
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
    if _is_part_of_the_protocol(value):
        raise InputError(
            "spec.type", f"the value of {name} is a word of the agent protocol and cannot be redacted", key="secrets"
        )
    return value
