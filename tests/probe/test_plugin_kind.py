"""A kind of probe from another package: its keys, its errors, and that it runs only if the config names it."""

import re
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from proctor.config.project import load_project_built, load_project_spec
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.errors import InputError, MachineError
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.probe.model import Phase, ProbeRow, Verdict, identify_probe
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.load import LoadedSpec
from proctor.spec.task_classes import probes_of
from proctor.workspace.snapshot import snapshot
from tests.plugins import install

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "write-a-probe-kind.md"
[SOURCE] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
SPEC = """\
version: 1
campaign: night
missions:
  - id: write
    prompt: Write it.
    workspace: {copy: tree}
    script: say.yaml
    probes:
      - {kind: headless_run, command: "true"}
      - {kind: word_count, path: essay.txt, words: 3, role: guard}
flows: [{id: native, runtime: [one]}]
"""

Load = Callable[..., LoadedSpec]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Load:
    """Loads a spec where a package with the kind `word_count` is installed."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "essay.txt").write_text("one two three\n")
    (tmp_path / "say.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    (tmp_path / "site").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    # Modules stay imported, so each test has its own.
    module = f"word_count_{abs(hash(request.node.name))}"

    def loaded(spec: str = SPEC, *, config: str = 'plugins = ["word_count"]\n', source: str = SOURCE) -> LoadedSpec:
        if not list((tmp_path / "site").iterdir()):
            points = {"word_count": f"{module}:PROBE"}
            install(tmp_path / "site", "word-count", points={}, probes=points, modules={module: source})
        (tmp_path / "proctor.toml").write_text(config)
        (tmp_path / "spec.yaml").write_text(spec)
        return load_project_spec(tmp_path / "spec.yaml")

    return loaded


def judge(loaded: LoadedSpec, tmp_path: Path) -> ProbeRow:
    async def main() -> ProbeRow:
        (tmp_path / "scratch").mkdir(exist_ok=True)
        async with open_intents(tmp_path / "spawns") as intents:
            return await run_probe(
                loaded.missions[0].probes[1],
                index=1,
                phase=Phase.FINAL,
                subject=examine_subject(tmp_path / "tree", snapshot(tmp_path / "tree").digest),
                scratch=tmp_path / "scratch",
                containment=choose(survey()),
                intents=intents,
                redactor=Redactor([]),
            )

    return anyio.run(main)


@pytest.mark.requirement("probe.kinds")
def test_plugin_kind_passes_and_fails(load: Load, tmp_path: Path) -> None:
    loaded = load()
    passed = judge(loaded, tmp_path)
    (tmp_path / "tree" / "essay.txt").write_text("one\n")
    failed = judge(loaded, tmp_path)

    assert (passed.kind, passed.verdict, passed.judged) == ("word_count", Verdict.PASS, Judged.OUTSIDE)
    assert (failed.verdict, failed.summary) == (Verdict.FAIL, "the file has 1 words")


def test_plugin_kind_stays_beside_built_in_kinds(load: Load) -> None:
    first, second = load().missions[0].probes

    assert first == HeadlessRun(command="true")
    assert (type(second).__name__, second.role, second.expected_values) == ("WordCount", "guard", ("3",))
    assert identify_probe(first) != identify_probe(second)


def test_plugin_kind_can_be_used_in_mission_files_and_in_python(load: Load, tmp_path: Path) -> None:
    loaded = load()
    (tmp_path / "missions").mkdir()
    matter = "script: say.yaml\nprobes: [{kind: word_count, path: a, words: 1}]"
    (tmp_path / "missions" / "one.md").write_text(f"---\n{matter}\n---\nWrite it.\n")
    in_file = load(re.sub(r"(?s)missions:.*flows", "missions: {folder: missions}\nflows", SPEC))
    again = load_project_built(loaded.spec, name="built", folder=tmp_path)

    assert type(in_file.missions[0].probes[0]).__name__ == "WordCount"
    assert again.missions == loaded.missions


@pytest.mark.parametrize(
    ("change", "code", "key", "what"),
    [
        (("words: 3", "wrods: 3"), "spec.unknown-key", "missions[0].probes[1].wrods", "unknown key `wrods`"),
        (("words: 3", "words: x"), "spec.type", "missions[0].probes[1].words", "expected an integer, found a string"),
        (("path: essay.txt, ", ""), "spec.missing-key", "missions[0].probes[1].path", "required key `path` is missing"),
    ],
)
def test_plugin_kind_has_errors_with_line_and_key(
    load: Load, change: tuple[str, str], code: str, key: str, what: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(SPEC.replace(*change))

    [error] = caught.value.all_errors
    assert (error.code, error.line, error.key, error.what) == (code, 10, key, what)


def test_plugin_kind_is_refused_unless_the_config_names_it(load: Load, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(config="", source="raise SystemExit('it was imported')")

    error = caught.value
    assert (error.code, error.line, error.key) == ("runtime.not-allowed", 10, "missions[0].probes[1].kind")
    assert error.what == "word_count is a plugin from word-count that no config names"
    assert error.suggestion == f'Add `plugins = ["word_count"]` as the first line of {tmp_path / "proctor.toml"}.'


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('tag="word_count"', 'tag="words"'), 'its `spec` does not have tag_field="kind" and tag="word_count"'),
        (("    async def judge", "    async def other"), "it has no `judge`"),
        (("    spec = WordCount", "    spec = dict"), "its `spec` is not a struct that derives from ProbeOptions"),
        (("PROBE = Probe()", "raise ValueError('no')"), "ValueError: no"),
    ],
)
def test_plugin_kind_that_is_broken_says_why(load: Load, change: tuple[str, str], problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        load(source=SOURCE.replace(*change))

    assert caught.value.code == "runtime.broken"
    assert str(caught.value).endswith(problem)


def test_plugin_kind_that_is_not_offered_is_an_unknown_kind(load: Load) -> None:
    with pytest.raises(InputError, match="unknown kind `word_cuont`"):
        load(SPEC.replace("kind: word_count", "kind: word_cuont"))


def test_plugin_kind_can_be_in_a_task_class(load: Load) -> None:
    config = 'plugins = ["word_count"]\n[task_classes.essay]\nkinds = ["word_count"]\n'
    config += 'keys.word_count = {path = "essay.txt", words = 5}\n'
    loaded = load(re.sub(r"(?s)    probes:.*flows", "    task_class: essay\nflows", SPEC), config=config)

    [probe] = loaded.missions[0].probes
    [required] = probes_of(loaded.overrides.task_classes["essay"])
    assert (probe.argv, required.keys) == (("wc", "-w", "essay.txt"), {"path": "essay.txt", "words": 5})
