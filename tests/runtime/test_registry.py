"""Runtimes by entry point: ours are always there, a plugin runs only where the config names it."""

from pathlib import Path

import pytest

from proctor.config.load import load_config
from proctor.errors import InputError, MachineError, ProctorError
from proctor.ids import RuntimeId
from proctor.runtime.registry import built_in_ids, offers, runtime_by_id, runtime_ids
from tests.plugins import LIKE_CODEX, install

CODEX, TAU = RuntimeId("codex_app_server"), RuntimeId("tau")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on the path; the current folder is the project."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    return folder


def name(*plugins: str) -> None:
    Path("proctor.toml").write_text(f"plugins = {list(plugins)}\n".replace("'", '"'))


def refusal(runtime_id: RuntimeId) -> ProctorError:
    with pytest.raises(ProctorError) as refused:
        runtime_by_id(runtime_id)
    return refused.value


@pytest.mark.requirement("runtime.strategy.ids")
def test_a_runtime_is_found_by_its_id_and_an_unknown_id_gets_the_nearest() -> None:
    assert CODEX in built_in_ids()
    assert runtime_by_id(CODEX).id == CODEX
    error = refusal(RuntimeId("codex_app_sever"))
    assert (type(error), error.code) == (InputError, "spec.unknown-runtime")
    assert error.suggestion == "Did you mean `codex_app_server`?"


@pytest.mark.requirement("runtime.strategy.ids")
def test_a_plugin_is_listed_but_nothing_of_it_runs_until_the_config_names_it(site: Path) -> None:
    marker = site / "was-imported"
    source = f"open({str(marker)!r}, 'w').close()\n{LIKE_CODEX.format(id='tau')}"
    install(site, "proctor-tau", points={"tau": "listed_plugin:RUNTIME"}, modules={"listed_plugin": source})
    assert (offers()[TAU].distributions, offers()[TAU].is_built_in) == (("proctor-tau",), False)
    assert TAU not in runtime_ids()
    error = refusal(TAU)
    assert (type(error), error.code) == (InputError, "runtime.not-allowed")
    assert error.suggestion == f'Add `plugins = ["tau"]` as the first line of {Path("proctor.toml").absolute()}.'
    assert not marker.exists()
    Path("proctor.toml").write_text('plugins = ["tau"]')
    assert TAU in runtime_ids()
    assert not marker.exists(), "listing imports nothing"
    assert (runtime_by_id(TAU).id, marker.exists()) == (TAU, True)


@pytest.mark.requirement("runtime.strategy.ids")
@pytest.mark.parametrize("runtime_id", [TAU, CODEX])
def test_two_packages_that_offer_one_id_are_both_named(site: Path, runtime_id: RuntimeId) -> None:
    points = {str(runtime_id): "one_plugin:RUNTIME"}
    install(site, "one", points=points, modules={"one_plugin": LIKE_CODEX.format(id=runtime_id)})
    if runtime_id != CODEX:
        install(site, "other", points=points, modules={})
    name(runtime_id)
    error = refusal(runtime_id)
    both = "one and other" if runtime_id == TAU else "one and proctor-harness"
    assert (type(error), error.code) == (MachineError, "runtime.ambiguous")
    assert error.what == f"{runtime_id} is offered by {both}; uninstall one of them"


@pytest.mark.parametrize(
    ("module", "source", "says"),
    [
        ("absent_plugin", None, "ModuleNotFoundError: No module named 'absent_plugin'"),
        ("raising_plugin", "raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("leaving_plugin", "import sys; sys.exit(7)", "SystemExit: 7"),
        ("empty_plugin", "", "AttributeError: module 'empty_plugin' has no attribute 'RUNTIME'"),
        ("wrong_plugin", "RUNTIME = object()", "it has no `id`"),
        ("lying_plugin", LIKE_CODEX.format(id="codex"), "its `id` is 'codex'"),
        (
            "unclaimed_plugin",
            LIKE_CODEX.format(id="tau") + "Like.capabilities = {}\n",
            "its `capabilities` is not a Capabilities struct",
        ),
        ("hollow_plugin", LIKE_CODEX.format(id="tau") + "Like.open_host = 1\n", "its `open_host` is not callable"),
        (
            "moody_plugin",
            LIKE_CODEX.format(id="tau") + "Like.capabilities = property(lambda self: 1 / 0)\n",
            "ZeroDivisionError: division by zero",
        ),
    ],
)
@pytest.mark.requirement("runtime.strategy.ids")
def test_a_plugin_that_is_no_runtime_is_told_as_that(site: Path, module: str, source: str | None, says: str) -> None:
    modules = {} if source is None else {module: source}
    install(site, "proctor-tau", points={"tau": f"{module}:RUNTIME"}, modules=modules)
    name("tau")
    error = refusal(TAU)
    assert (type(error), error.code) == (MachineError, "runtime.broken")
    assert error.what == f"tau ({module}:RUNTIME, from proctor-tau): {says}"


def test_a_config_given_is_the_one_that_counts(site: Path, tmp_path: Path) -> None:
    install(
        site, "given", points={"given": "given_plugin:RUNTIME"}, modules={"given_plugin": LIKE_CODEX.format(id="given")}
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "proctor.toml").write_text('plugins = ["given"]')
    given = RuntimeId("given")
    assert runtime_by_id(given, load_config(tmp_path / "elsewhere")).id == given
    assert refusal(given).code == "runtime.not-allowed"
