import re
from collections.abc import Callable
from pathlib import Path

import pytest

import proctor
from proctor.campaign.freeze import FrozenSpec, freeze, read_given, thaw
from proctor.config.project import load_project_spec
from proctor.errors import InputError
from proctor.evidence.artifacts import PlanFile
from proctor.evidence.layout import CampaignPaths, write_artifact
from proctor.evidence.redact import Redactor
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.literal import LITERAL_MESSAGE
from proctor.spec.load import LoadedSpec, SpecOverrides
from proctor.spec.suite_probes import UnitTests
from proctor.spec.task_classes import BUILT_IN_CLASSES, TaskClass, known_kinds
from tests.spec.conftest import Told

Ask = Callable[[Callable[[], object]], list[Told]]

SPEC = """\
version: 1
campaign: night
missions:
  - id: fix-it
    prompt: Fix it.
    workspace: {copy: tree}
    script: say.yaml
    task_class: NAME
PROBES
flows: [{id: native, runtime: [one]}]
"""
USABLE = [name for name, each in BUILT_IN_CLASSES.items() if set(each.kinds) <= set(known_kinds())]
CHECKED = """\
[task_classes.checked]
kinds = ["headless_run", "unit_tests"]

[task_classes.checked.criteria]
headless_run = "it runs"
unit_tests = "its tests pass"

[task_classes.checked.keys.headless_run]
command = ["python3", "a.py"]
stdout = "ok\\n"

[task_classes.checked.keys.unit_tests]
paths = ["tests"]
"""


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedSpec]:
    """Loads a mission of a class with these probes, under this proctor.toml."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "own"))
    monkeypatch.chdir(folder)

    def loaded(name: str, *, probes: str = "", config: str | None = None) -> LoadedSpec:
        listed = f"    probes:\n{probes}" if probes else ""
        (folder / "spec.yaml").write_text(SPEC.replace("NAME", name).replace("PROBES", listed))
        if config is not None:
            (folder / "proctor.toml").write_text(config)
        return load_project_spec(folder / "spec.yaml")

    return loaded


@pytest.mark.requirement("probe.task-class")
def test_task_class_adds_its_probes_with_the_keys_of_proctor_toml(load: Callable[..., LoadedSpec]) -> None:
    [mission] = load("checked", config=CHECKED).missions

    assert mission.probes == [
        HeadlessRun(command=["python3", "a.py"], stdout="ok\n", criterion="it runs"),
        UnitTests(paths=["tests"], criterion="its tests pass"),
    ]


def test_task_class_takes_the_probes_of_the_mission_first(load: Callable[..., LoadedSpec]) -> None:
    probes = "      - {kind: unit_tests, paths: [mine]}\n      - {kind: unit_tests, paths: [b], criterion: b works}"
    [mission] = load("checked", probes=probes, config=CHECKED).missions

    assert mission.probes == [
        UnitTests(paths=["mine"], criterion="its tests pass"),
        UnitTests(paths=["b"], criterion="b works"),
        HeadlessRun(command=["python3", "a.py"], stdout="ok\n", criterion="it runs"),
    ]


def test_task_class_keeps_other_probes_of_the_mission(load: Callable[..., LoadedSpec]) -> None:
    config = '[task_classes.tested]\nkinds = ["unit_tests"]\nkeys.unit_tests.paths = ["tests"]\n'
    [mission] = load("tested", probes="      - {kind: headless_run, command: make}", config=config).missions

    assert mission.probes == [HeadlessRun(command="make"), UnitTests(paths=["tests"])]


def test_task_class_works_for_mission_files(load: Callable[..., LoadedSpec], folder: Path) -> None:
    load("checked", config=CHECKED)
    (folder / "missions").mkdir()
    (folder / "missions" / "one.md").write_text("---\ntask_class: checked\nscript: say.yaml\n---\nFix it.\n")
    spec = re.sub(r"(?s)missions:.*flows", "missions: {folder: missions}\nflows", (folder / "spec.yaml").read_text())
    (folder / "spec.yaml").write_text(spec)

    [mission] = load_project_spec(folder / "spec.yaml").missions

    assert [probe.criterion for probe in mission.probes] == ["it runs", "its tests pass"]


def test_task_class_that_is_unknown_is_refused_with_its_line(load: Callable[..., LoadedSpec], told: Ask) -> None:
    [(code, line, key, what, suggestion)] = told(lambda: load("checkd", config=CHECKED))

    assert (code, line, key) == ("spec.unknown-key", 8, "missions[0].task_class")
    assert what.startswith("unknown task class `checkd`; the classes are library, cli,")
    assert suggestion == "Did you mean `checked`?"


def test_task_class_reports_all_keys_that_are_missing(load: Callable[..., LoadedSpec], told: Ask) -> None:
    config = '[task_classes.checked]\nkinds = ["headless_run", "unit_tests"]\nkeys.headless_run.timeout = 5\n'
    [(code, line, key, what, suggestion)] = told(lambda: load("checked", config=config))

    assert (code, line, key) == ("spec.missing-key", 8, "missions[0].task_class")
    assert what.endswith("keys that are missing for this mission: headless_run: command; unit_tests: paths")
    assert suggestion is not None
    assert "[task_classes.checked.keys.KIND]" in suggestion


@pytest.mark.parametrize(
    ("config", "line", "key", "what"),
    [
        (
            '[task_classes.a]\nkinds = ["unit_test"]\n',
            2,
            "task_classes.a.kinds[0]",
            "unknown kind of probe `unit_test`",
        ),
        ("[task_classes.a]\n", 1, "task_classes.a.kinds", "the task class `a` has no kinds"),
        (
            '[task_classes.cli]\nkinds = ["headless_run"]\n',
            2,
            "task_classes.cli.kinds",
            "`cli` is a built-in class, whose kinds cannot be changed",
        ),
        (
            '[task_classes.a]\nkinds = ["headless_run"]\n\n[task_classes.a.keys.headless_run]\ncomand = "x"\n',
            5,
            "task_classes.a.keys.headless_run.comand",
            "unknown key `comand`",
        ),
        (
            '[task_classes.a]\nkinds = ["headless_run"]\nkeys.headless_run.exit = 300\n',
            3,
            "task_classes.a.keys.headless_run.exit",
            "expected an integer <= 255, found 300",
        ),
        (
            '[task_classes.a]\nkinds = ["headless_run"]\nkeys.headless_run.command = ["a", "sk-SECRET"]\n'.replace(
                "SECRET", "0123456789abcdef" * 2
            ),
            3,
            "task_classes.a.keys.headless_run.command[1]",
            LITERAL_MESSAGE,
        ),
        (
            '[task_classes.a]\nkinds = ["headless_run"]\n[task_classes.a.criteria]\nunit_tests = "x"\n',
            4,
            "task_classes.a.criteria.unit_tests",
            "the task class `a` has no kind `unit_tests`",
        ),
    ],
)
def test_task_class_in_proctor_toml_is_checked_with_file_and_line(
    load: Callable[..., LoadedSpec], folder: Path, config: str, line: int, key: str, what: str
) -> None:
    with pytest.raises(InputError) as caught:
        load("a", config=config)

    [error] = caught.value.all_errors
    assert (error.file, error.line, error.key, error.what) == (
        str(folder / "proctor.toml"),
        line,
        key,
        what,
    )


def test_task_class_is_blamed_for_a_file_that_its_probe_names(load: Callable[..., LoadedSpec], told: Ask) -> None:
    config = CHECKED.replace('stdout = "ok\\n"', 'role = "guard"\nmutant = "no.patch"')
    [(code, line, key, what, _)] = told(lambda: load("checked", config=config))

    assert (code, line, key) == ("spec.missing-file", 8, "missions[0].task_class")
    assert what == "headless_run.mutant: `no.patch` does not exist"


def test_task_class_of_a_campaign_whose_kind_does_not_exist_any_more_says_so(
    load: Callable[..., LoadedSpec], folder: Path, told: Ask
) -> None:
    load("checked", config=CHECKED)
    kept = SpecOverrides(task_classes={"checked": TaskClass(kinds=["unit_test"])})
    [(code, line, key, what, suggestion)] = told(lambda: load_project_spec(folder / "spec.yaml", overrides=kept))

    assert (code, line, key) == ("spec.type", 8, "missions[0].task_class")
    assert what == "the task class `checked` needs probes of the kind `unit_test`, which does not exist"
    assert suggestion == "Did you mean `unit_tests`?"


@pytest.mark.parametrize("name", BUILT_IN_CLASSES)
def test_task_class_that_is_built_in_has_words_for_each_kind(name: str) -> None:
    built_in = BUILT_IN_CLASSES[name]

    assert list(built_in.criteria) == built_in.kinds
    assert [(each.kind, each.criterion, each.keys) for each in proctor.probes_for_task_class(name)] == [
        (kind, words, None) for kind, words in built_in.criteria.items()
    ]


@pytest.mark.parametrize(
    "name", [name for name, each in BUILT_IN_CLASSES.items() if set(each.kinds) <= set(known_kinds())]
)
def test_task_class_that_is_built_in_needs_keys_for_each_kind(
    name: str, load: Callable[..., LoadedSpec], told: Ask
) -> None:
    [(code, line, _, what, _)] = told(lambda: load(name))

    assert (code, line) == ("spec.missing-key", 8)
    assert all(f" {kind}: " in what for kind in BUILT_IN_CLASSES[name].kinds)


def test_probes_for_task_class_reads_proctor_toml(load: Callable[..., LoadedSpec]) -> None:
    load("checked", config=CHECKED)

    assert [(each.kind, each.keys) for each in proctor.probes_for_task_class("checked")] == [
        ("headless_run", {"command": ["python3", "a.py"], "stdout": "ok\n"}),
        ("unit_tests", {"paths": ["tests"]}),
    ]
    with pytest.raises(InputError, match="unknown task class `nope`"):
        proctor.probes_for_task_class("nope")


def test_task_class_of_the_project_wins_over_the_users(load: Callable[..., LoadedSpec], folder: Path) -> None:
    own = folder / "own" / "proctor" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(CHECKED.replace("it runs", "the user's"))
    assert load("checked").missions[0].probes[0].criterion == "the user's"

    assert load("checked", config=CHECKED).missions[0].probes[0].criterion == "it runs"


def test_task_class_of_a_campaign_stays_as_it_was_when_it_began(
    load: Callable[..., LoadedSpec], folder: Path, tmp_path: Path
) -> None:
    paths, other = CampaignPaths(tmp_path / "one"), CampaignPaths(tmp_path / "two")
    before = load("checked", config=CHECKED)
    plan = _freeze(before, paths).plan
    # Trials depend on the probes of the class.
    assert _freeze(load("checked", config=CHECKED.replace("a.py", "b.py")), other).plan.digest != plan.digest

    (folder / "proctor.toml").unlink()
    resumed = load_project_spec(folder / "spec.yaml", overrides=read_given(paths))

    assert resumed.missions == before.missions
    assert _thaw(resumed, paths).plan == plan


def _freeze(loaded: LoadedSpec, paths: CampaignPaths) -> FrozenSpec:
    paths.create()
    frozen = freeze(loaded, paths=paths, workspaces=paths.folder / "copies", redactor=Redactor([]))
    plan = PlanFile(plan=frozen.plan, snapshot=dict(frozen.snapshot))
    write_artifact(paths.plan, plan, redactor=Redactor([]))
    return frozen


def _thaw(loaded: LoadedSpec, paths: CampaignPaths) -> FrozenSpec:
    return thaw(loaded, paths=paths, workspaces=paths.folder / "again", redactor=Redactor([]))
