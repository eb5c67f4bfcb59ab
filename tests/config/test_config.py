"""proctor.toml: the nearest upwards over the user's own; what is wrong with it is told with file, line and key."""

import re
from pathlib import Path

import pytest

from proctor import places
from proctor.config.load import load_config
from proctor.config.model import Config, ConfigFile, RolloutSettings, RolloutState, Setting
from proctor.config.retention import RetentionSettings
from proctor.errors import CollectedInputError, InputError
from proctor.ids import RuntimeId
from proctor.runtime.rollout import check_config

PI, EXEC = RuntimeId("pi"), RuntimeId("codex_exec")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    file = places.config_file()
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "specs" / "deep").mkdir(parents=True)
    return folder


def test_without_any_file_everything_is_as_proctor_has_it(project: Path, own: Path) -> None:
    config = load_config(project)
    assert config == Config(home=project / "proctor.toml")
    assert config.is_enabled(PI) == Setting(value=True, source="built in")
    assert config.rollout_state(PI, default=RolloutState.INTERNAL) == Setting(
        value=RolloutState.INTERNAL, source="built in"
    )
    assert config.default_runtime(default=PI) == Setting(value=PI, source="built in")
    assert not config.allows_plugin(PI)


def test_the_nearest_file_upwards_is_read_over_the_users_own_key_by_key(project: Path, own: Path) -> None:
    (project.parent / "proctor.toml").write_text("not even TOML, and never read")
    (project / "proctor.toml").write_text(
        'plugins = ["pi"]\ndefault_runtime = "codex_exec"\n\n[rollout.pi]\nenabled = false\n[rollout . "codex_exec"]\n'
        'state = "default"\n'
    )
    own.write_text(
        'plugins = ["other"]\ndefault_runtime = "pi"\nrollout.pi.state = "internal"\nrollout.pi.enabled = true\n'
        'rollout.codex_exec = {state = "locked", enabled = false}\n'
    )
    config = load_config(project / "specs" / "deep")
    assert (config.allows_plugin(PI), config.allows_plugin(RuntimeId("other")), config.allows_plugin(EXEC)) == (
        True,
        True,
        False,
    )
    assert config.default_runtime(default=PI) == Setting(value=EXEC, source="proctor.toml:2")
    assert config.is_enabled(PI) == Setting(value=False, source="proctor.toml:5")
    assert config.rollout_state(PI, default=RolloutState.DEFAULT) == Setting(
        value=RolloutState.INTERNAL, source="config.toml:3"
    )
    assert config.rollout_state(EXEC, default=RolloutState.LOCKED) == Setting(
        value=RolloutState.DEFAULT, source="proctor.toml:7"
    )
    assert config.is_enabled(EXEC) == Setting(value=False, source="config.toml:5")


@pytest.mark.parametrize(
    ("text", "code", "line", "key", "says"),
    [
        ("# mine\nplugin = []\n", "spec.unknown-key", 2, "plugin", "Did you mean `plugins`?"),
        ("[rollout.pi]\n\nenable = false\n", "spec.unknown-key", 3, "rollout.pi.enable", "Did you mean `enabled`?"),
        ('[rollout.pi]\nstate = "lockd"\n', "spec.type", 2, "rollout.pi.state", "Did you mean `locked`?"),
        ('[rollout.pi]\nenabled = "no"\n', "spec.type", 2, "rollout.pi.enabled", "Write false."),
        ('plugins = "pi"\n', "spec.type", 1, "plugins", 'Write a list: ["pi"].'),
        ("\nplugins = [2026-01-01]\nplugins = 1\n", "config.syntax", 3, None, "Cannot overwrite"),
        ("plugins = [\n", "config.syntax", 1, None, "Invalid value"),
        ("rollout = 1\n", "spec.type", 1, "rollout", "expected a mapping"),
        ("[[rollout]]\na = 1\n[[rollout]]\na = 2\n", "spec.type", 1, "rollout", "found a list"),
        ("[rollout]\npi = [1]\n", "spec.type", 2, "rollout.pi", "found a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_what_was_meant(
    project: Path, text: str, code: str, line: int, key: str | None, says: str
) -> None:
    file = project / "proctor.toml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        load_config(project)
    error = refused.value
    assert (error.code, error.file, error.line, error.key) == (code, str(file), line, key)
    assert says in f"{error.what} {error.suggestion}"


def test_all_faults_of_a_file_are_told_at_once(project: Path) -> None:
    (project / "proctor.toml").write_text("plugin = []\n[rollout.pi]\nenable = false\n")
    with pytest.raises(CollectedInputError) as refused:
        load_config(project)
    assert [(each.line, each.key) for each in refused.value.errors] == [(1, "plugin"), (3, "rollout.pi.enable")]


@pytest.mark.parametrize("data", [b"\n\xff = 1\n", b"a = " + b"[" * 5000, b"a." * 3000 + b"a = 1"])
def test_a_hostile_file_is_a_fault_of_its_form(project: Path, data: bytes) -> None:
    (project / "proctor.toml").write_bytes(data)
    with pytest.raises(InputError) as refused:
        load_config(project)
    assert refused.value.code == "config.syntax"


@pytest.mark.requirement("surface.docs")
def test_the_file_that_the_documents_show_is_one_with_every_key(project: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/choose-agents.md").read_text()
    [shown] = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (project / "proctor.toml").write_text(shown)
    config = load_config(project)
    check_config(config)
    assert config.allows_plugin(PI)
    keys = [*ConfigFile.__struct_fields__, *RolloutSettings.__struct_fields__, *RetentionSettings.__struct_fields__]
    assert [key for key in keys if key not in shown] == []
    assert [word for word in RolloutState if f"`{word}`" not in page] == []


def test_an_invitation_is_a_line_that_works_once_it_is_followed(project: Path, own: Path) -> None:
    file = project / "proctor.toml"
    assert load_config(project).plugin_hint(PI) == f'Add `plugins = ["pi"]` as the first line of {file}.'
    own.write_text("[rollout.pi]\nenabled = true\n")
    assert load_config(project).plugin_hint(PI) == f'Add `plugins = ["pi"]` as the first line of {own}.'
    file.write_text("[rollout.pi]\nenabled = true\n")
    file.write_text(f'plugins = ["pi"]\n{file.read_text()}')
    assert load_config(project).allows_plugin(PI)
    assert load_config(project).plugin_hint(EXEC) == f'Change line 1 of {file} to `plugins = ["pi", "codex_exec"]`.'
