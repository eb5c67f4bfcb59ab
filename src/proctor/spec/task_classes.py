"""Task classes: the kinds of probe that a sort of task needs. A mission with `task_class` has one of each kind."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from msgspec import structs

from proctor.errors import InputError
from proctor.spec.missions import MissionSource
from proctor.spec.probe_options import ProbeOptions
from proctor.spec.probes import ProbeSpec
from proctor.spec.source_file import FindKind, decode_tree, find_no_kind
from proctor.spec.struct import Spec, Text, Texts
from proctor.spec.suggest import suggest
from proctor.spec.tree import Node


class TaskClass(Spec, frozen=True, kw_only=True):
    """`[task_classes.<name>]`: the probes that a sort of task needs."""

    kinds: Texts = []
    """The kinds of probe that each mission of the class has. Default: those of the built-in class with this name."""

    criteria: dict[str, Text] = {}
    """What a probe of a kind shows, in words, if the mission does not say it. Default: the words of the built-in class,
    otherwise none."""

    keys: dict[str, dict[str, Any]] = {}
    """The keys of a probe, by its kind, for missions that have no probe of this kind. Default: none."""


BUILT_IN_CLASSES: Final[Mapping[str, TaskClass]] = {
    "library": TaskClass(
        kinds=["import_smoke", "unit_tests"],
        criteria={
            "import_smoke": "the public modules can be imported and have their names",
            "unit_tests": "the tests of the library pass",
        },
    ),
    "cli": TaskClass(
        kinds=["headless_run", "stdout_golden"],
        criteria={
            "headless_run": "the command runs to its end",
            "stdout_golden": "the command prints what it should",
        },
    ),
    "web_service": TaskClass(
        kinds=["headless_run", "api_smoke"],
        criteria={
            "headless_run": "the project can be built or checked with its own command",
            "api_smoke": "the service starts, answers its requests and stops",
        },
    ),
    "web_app": TaskClass(
        kinds=["headless_run", "browser_smoke"],
        criteria={
            "headless_run": "the project can be built or checked with its own command",
            "browser_smoke": "the pages work in a browser, without an error on the console",
        },
    ),
    "webhook": TaskClass(
        kinds=["api_smoke", "side_effect"],
        criteria={
            "api_smoke": "the service accepts calls of the hook and refuses others",
            "side_effect": "a call of the hook has exactly the effects that it should",
        },
    ),
    "data_pipeline": TaskClass(
        kinds=["headless_run", "output_fixture_diff"],
        criteria={
            "headless_run": "the pipeline runs to its end",
            "output_fixture_diff": "the pipeline writes what it should, and the same each time",
        },
    ),
    "game_2d": TaskClass(
        kinds=["sim_trace", "headless_run"],
        criteria={
            "sim_trace": "the simulation follows its laws, and equal seeds give equal games",
            "headless_run": "the game runs without a screen",
        },
    ),
    "refactor_in_place": TaskClass(
        kinds=["test_suite_parity"],
        criteria={"test_suite_parity": "every test that passed before the change still passes"},
    ),
}


def known_kinds() -> dict[str, type[ProbeOptions]]:
    """Return the structs of all kinds of probe that are built in, by kind.

    >>> known_kinds()["headless_run"].__name__
    'HeadlessRun'
    """
    members = get_args(ProbeSpec) or (ProbeSpec,)
    return {str(member.__struct_config__.tag): member for member in members}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassProbe:
    """A probe that a task class requires."""

    kind: str
    """The kind of the probe."""
    criterion: str | None
    """What it shows, in words, if the mission does not say it; None if the class does not say it either."""
    keys: Mapping[str, Any] | None
    """Its keys from `proctor.toml`, for missions without a probe of this kind; None if there are none."""


def probes_of(task_class: TaskClass) -> tuple[ClassProbe, ...]:
    """Return the probes that a class requires, in its order."""
    return tuple(
        ClassProbe(kind=kind, criterion=task_class.criteria.get(kind), keys=task_class.keys.get(kind))
        for kind in task_class.kinds
    )


def find_class(name: str, classes: Mapping[str, TaskClass]) -> TaskClass:
    """Return a task class by its name. Raises InputError if there is no such class."""
    if name not in classes:
        what = f"unknown task class `{name}`; the classes are {', '.join(classes)}"
        raise InputError("spec.unknown-key", what, suggestion=suggest(name, classes, noun="Classes"))
    return classes[name]


def expand_classes(
    sources: Iterable[MissionSource],
    *,
    classes: Callable[[], Mapping[str, TaskClass]],
    find_kind: FindKind = find_no_kind,
) -> tuple[tuple[MissionSource, ...], list[InputError]]:
    """Return the missions with the probes of their task classes, and all errors. `classes` is called only if needed.

    `find_kind` returns the structs of kinds of probe that are not built in.
    """
    expanded: list[MissionSource] = []
    errors: list[InputError] = []
    for source in sources:
        if source.mission.task_class is None:
            expanded.append(source)
            continue
        try:
            task_class = find_class(source.mission.task_class, classes())
        except InputError as error:
            located = [
                each if each.file else source.error(each.code, each.what, key="task_class", suggestion=each.suggestion)
                for each in error.all_errors
            ]
            errors += [each for each in located if str(each) not in map(str, errors)]
            expanded.append(source)
            continue
        expansion = _Expansion(source, task_class, find_kind)
        expanded.append(expansion.run())
        errors += expansion.errors
    return tuple(expanded), errors


class _Expansion:
    """Add the probes of a task class to one mission."""

    def __init__(self, source: MissionSource, task_class: TaskClass, find_kind: FindKind) -> None:
        self.errors: list[InputError] = []
        self._source = source
        self._class = task_class
        self._find_kind = find_kind
        self._missing: dict[str, list[str]] = {}

    def run(self) -> MissionSource:
        mission = self._source.mission
        required = probes_of(self._class)
        words = {each.kind: each.criterion for each in required}
        probes = [_with_criterion(probe, words.get(_kind_of(probe))) for probe in mission.probes]
        present = {_kind_of(probe) for probe in mission.probes}
        added = [self._make(each) for each in required if each.kind not in present]
        if self._missing:
            listed = "; ".join(f"{kind}: {', '.join(keys) or 'a probe'}" for kind, keys in self._missing.items())
            what = f"the task class `{mission.task_class}` needs keys that are missing for this mission: {listed}"
            table = f"[task_classes.{mission.task_class}.keys.KIND]"
            suggestion = f"Add a probe of each kind under `probes`, or the keys under {table} in proctor.toml."
            self.errors.append(self._source.error("spec.missing-key", what, key="task_class", suggestion=suggestion))
        return replace(
            self._source,
            mission=structs.replace(mission, probes=[*probes, *(each for each in added if each is not None)]),
            own_probes=len(probes),
        )

    def _make(self, probe: ClassProbe) -> Any:
        """Return a probe with the keys of the class; None after an error."""
        kind, known = probe.kind, known_kinds()
        try:
            struct = known.get(kind) or self._find_kind(kind)
        except InputError as error:
            self._report(error.code, error.what, suggestion=error.suggestion)
            return None
        if struct is None:
            what = f"the task class `{self._source.mission.task_class}` needs probes of the kind `{kind}`, "
            what += "which does not exist"
            self._report("spec.type", what, suggestion=suggest(kind, known, noun="Kinds"))
            return None
        line = self._source.line_of("task_class")
        node = make_node({**(probe.keys or {}), "kind": kind}, line=line)
        try:
            made = decode_tree(node, struct, file=self._source.source_file.file).value
        except InputError as error:
            for each in error.all_errors:
                if is_missing_key(each):
                    self._missing.setdefault(kind, []).append(str(each.key))
                else:
                    self._report(each.code, f"{kind}.{each.key}: {each.what}", suggestion=each.suggestion)
            return None
        needed = [each.key for each in made.problems() if each.code == "spec.missing-key"]
        if needed:
            self._missing.setdefault(kind, []).extend(needed)
            return None
        return _with_criterion(made, probe.criterion)

    def _report(self, code: str, what: str, *, suggestion: str | None) -> None:
        self.errors.append(self._source.error(code, what, key="task_class", suggestion=suggestion))


def is_missing_key(error: InputError) -> bool:
    """Return whether an error in the keys of a probe says that a required key is missing, not one inside another."""
    return error.code == "spec.missing-key" and error.key is not None and not set(".[") & set(error.key)


def make_node(value: Any, *, line: int) -> Node:
    """Return a value as a tree in which everything is on the same line."""
    match value:
        case dict():
            return Node(line=line, value={str(key): make_node(each, line=line) for key, each in value.items()})
        case list() | tuple():
            return Node(line=line, value=[make_node(each, line=line) for each in value])
        case leaf:
            return Node(line=line, value=leaf)


def _kind_of(probe: ProbeOptions) -> str:
    return str(probe.__struct_config__.tag)


def _with_criterion(probe: Any, criterion: str | None) -> Any:
    return probe if criterion is None or probe.criterion is not None else structs.replace(probe, criterion=criterion)
