"""Structs of a spec: what all kinds of probe share."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from proctor.spec.criterion import Role
from proctor.spec.duration import parse_duration_s
from proctor.spec.fence import Contain, Network
from proctor.spec.struct import Duration, Spec, Text

OUT: Final = "{out}"
"""In the command and the report of a probe, the probe's own folder for what it writes outside its view."""
CONTROL_TOKEN: Final = "PROCTOR_TOKEN"  # noqa: S105
"""In a control file and its name, replaced by a random word that the report must contain."""
MAX_RUNS: Final = 20

ExitCode = Annotated[int, Meta(ge=0, le=255)]


class RepeatSpec(Spec, frozen=True, kw_only=True):
    """`repeat`: run a probe several times, for a check that sometimes fails by chance."""

    runs: Annotated[int, Meta(ge=2, le=MAX_RUNS)]
    """How often the probe is run, 2 to 20. Every run is recorded."""

    need: Annotated[int, Meta(ge=1, le=MAX_RUNS)]
    """How many of the runs must pass for the probe to pass."""


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """What is wrong with a key of a probe, for an InputError that also names file and line."""

    code: str
    what: str
    key: str
    """The key below the probe, such as `cases[0].golden`."""
    suggestion: str | None = None


class ProbeOptions(Spec, frozen=True, kw_only=True):
    """Keys that all kinds of probe share. A kind is a struct that adds its own keys, and says what they mean."""

    contain: Contain = Contain.FENCED
    """Whether the probe is fenced. Default `fenced`."""

    network: Network = Network.NONE
    """What a fenced probe can reach. Default `none`: it has only a private loopback."""

    role: Role = Role.GOAL
    """`goal`: the probe shows that the task is done. `guard`: it shows that nothing else was broken. Default `goal`."""

    mutant: Text | None = None
    """Path of a patch that breaks what a guard protects, relative to the spec's folder. A guard counts only if it fails
    on the untouched workspace with this patch. Default: none."""

    criterion: Text | None = None
    """What the probe shows, in words. Probes with the same criterion decide it together. Default: one for this
    probe."""

    repeat: RepeatSpec | None = None
    """Run the probe several times and require a number of passes. Default: it runs once."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line that shows a reader what the probe runs."""
        raise NotImplementedError

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that the probe starts by name, such as `python3`."""
        return self.argv[:1]

    @property
    def files(self) -> dict[str, str]:
        """The paths of the spec's files that the probe names, by their key in the probe."""
        return {} if self.mutant is None else {"mutant": self.mutant}

    @property
    def durations(self) -> dict[str, Duration]:
        """The durations, by their key in the probe."""
        timeout: Duration | None = getattr(self, "timeout", None)
        return {} if timeout is None else {"timeout": timeout}

    @property
    def expected_values(self) -> tuple[str, ...]:
        """Texts that give the expectation away, so that no feedback to an agent contains them.

        These are the values that observations are compared with, such as an expected output, the body of a response or
        a row of a table, as text. The content of files need not be returned: all files of a probe count as expected.
        Nor need numbers and words that an agent may see anyway, such as exit and status codes.
        """
        return ()

    def problems(self) -> Iterator[KeyProblem]:
        """Yield what is wrong with the keys, apart from their types and from files that do not exist."""
        if self.mutant is not None and self.role is not Role.GUARD:
            what = "`mutant` has no effect on a goal, which must fail on the untouched workspace already"
            suggestion = "Add `role: guard`, or remove `mutant`."
            yield KeyProblem("spec.unsupported", what, key="mutant", suggestion=suggestion)
        if self.repeat is not None and self.repeat.need > self.repeat.runs:
            what = f"{self.repeat.need} passes are needed, but the probe runs {self.repeat.runs} times"
            yield KeyProblem("spec.type", what, key="repeat.need")
        for key, duration in self.durations.items():
            try:
                parse_duration_s(duration)
            except ValueError as error:
                yield KeyProblem("spec.type", str(error), key=key)


def is_inside(path: str) -> bool:
    """Return whether a path, as it is written, leads to something inside a folder.

    >>> [is_inside(path) for path in ("src/a.py", "../a.py", "/etc", ".")]
    [True, False, False, False]
    """
    return not path.startswith("/") and not {"", ".", ".."}.intersection(path.rstrip("/").split("/"))


def texts_of(value: Any) -> tuple[str, ...]:
    """Return the texts and numbers in a value as JSON has it, without its keys, each as text.

    >>> texts_of({"a": ["x", 4.5, True, None], "b": "y"})
    ('x', '4.5', 'y')
    """
    match value:
        case str():
            return (value,)
        case dict():
            return texts_of([*value.values()])
        case list() | tuple():
            return tuple(text for each in value for text in texts_of(each))
        case int() | float() if not isinstance(value, bool):
            return (str(value),)
        case _:
            return ()
