"""Context engines by entry point: ours are always there, a plugin runs only where the config names it."""

from pathlib import Path

import pytest

from proctor.context.engine import ContextEngine, EngineSetup
from proctor.context.registry import engine_by_id, offers
from proctor.errors import EngineError, InputError, MachineError, ProctorError
from proctor.ids import RuntimeId, SessionKey
from tests.plugins import install

LIKE_NONE = """
from msgspec.structs import replace
from proctor.context.engines import none


class Like(none.NullEngine):
    info = replace(none.INFO, id="{id}")


def create(setup):
    return Like(setup)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages on the path; the current folder is the project."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    return folder


def allow(*plugins: str) -> None:
    Path("proctor.toml").write_text(f"plugins = {list(plugins)}\n".replace("'", '"'))


def create(engine_id: str, folder: Path, **options: object) -> ContextEngine:
    return engine_by_id(engine_id)(EngineSetup(session=SessionKey("s"), folder=folder, options=options))


def refusal(engine_id: str, folder: Path) -> ProctorError:
    with pytest.raises(ProctorError) as refused:
        create(engine_id, folder)
    return refused.value


@pytest.mark.requirement("context.engines")
def test_built_in_engines_are_found_by_their_ids_and_need_no_config(site: Path) -> None:
    assert set(offers()) >= {"none", "window", "lossless"}
    assert [create(each, site).info.id for each in ("none", "window")] == ["none", "window"]


def test_unknown_engine_gets_the_nearest_id(site: Path) -> None:
    error = refusal("widow", site)
    assert (type(error), error.code, error.suggestion) == (InputError, "engine.unknown", "Did you mean `window`?")
    assert "the installed engines are:" in error.what


@pytest.mark.requirement("context.engines")
def test_engine_plugin_is_listed_and_not_imported_until_the_config_names_it(site: Path) -> None:
    marker = site / "was-imported"
    source = f"open({str(marker)!r}, 'w').close()\n{LIKE_NONE.format(id='tau')}"
    install(site, "tau", points={}, engines={"tau": "listed_engine:create"}, modules={"listed_engine": source})
    assert offers()[RuntimeId("tau")].distributions == ("tau",)
    error = refusal("tau", site)
    assert (type(error), error.code) == (InputError, "runtime.not-allowed")
    assert error.suggestion == f'Add `plugins = ["tau"]` as the first line of {Path("proctor.toml").absolute()}.'
    assert not marker.exists()
    allow("tau")
    assert create("tau", site).info.id == "tau"


@pytest.mark.parametrize(
    ("module", "source", "error", "says"),
    [
        ("raising_engine", "raise RuntimeError('no luck')", MachineError, "RuntimeError: no luck"),
        ("constant_engine", "create = 7", MachineError, "it is not a function that takes an EngineSetup"),
        ("failing_engine", "def create(setup): return 1 / 0", EngineError, "its creation raised ZeroDivisionError"),
        ("leaving_engine", "import sys\ndef create(setup): sys.exit(1)", EngineError, "its creation raised SystemExit"),
        ("hollow_engine", "def create(setup): return object()", MachineError, "it has no `commit_turn`, and none of"),
        ("misnamed_engine", LIKE_NONE.format(id="rho"), MachineError, "its `info.id` is 'rho'"),
        (
            "unclosed_engine",
            LIKE_NONE.format(id="tau") + "Like.close = None",
            MachineError,
            "its `close` is not callable",
        ),
        (
            "plain_engine",
            LIKE_NONE.format(id="tau") + "Like.info = {}",
            MachineError,
            "its `info` is not an EngineInfo",
        ),
        (
            "untyped_engine",
            LIKE_NONE.format(id="tau") + "Like.info = replace(Like.info, version=1)",
            MachineError,
            "its `info` is wrong: Expected `str`, got `int` - at `$.version`",
        ),
    ],
)
def test_broken_engine_plugin_is_reported_with_what_is_wrong(
    site: Path, module: str, source: str, error: type[ProctorError], says: str
) -> None:
    install(site, "tau", points={}, engines={"tau": f"{module}:create"}, modules={module: source})
    allow("tau")
    raised = refusal("tau", site)
    assert isinstance(raised, error)
    assert raised.code == ("engine.failed" if error is EngineError else "runtime.broken")
    assert says in raised.what


def test_two_packages_that_offer_one_engine_are_both_named(site: Path) -> None:
    install(site, "one", points={}, engines={"window": "one_engine:create"}, modules={})
    error = refusal("window", site)
    assert (error.code, error.what) == (
        "runtime.ambiguous",
        "window is offered by one and proctor-harness; uninstall one of them",
    )
