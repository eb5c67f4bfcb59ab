"""The list of mutants is replayed by the tests that cite each requirement: caught, survived, or an error."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from tools.mutants import LIST, Mutant, MutantError, citing_tests, copy_checkout, load, main, mutate

CHECKOUT = Path(__file__).parents[2]
CALC = "def clamp(value: int, most: int) -> int:\n    return min(value, most)\n"
TESTS = """
import pytest
from calc import clamp

@pytest.mark.requirement("calc.bound")
def test_clamp_returns_at_most_the_bound():
    assert clamp(3, 2) == 2

@pytest.mark.real_agent
@pytest.mark.requirement("calc.bound")
def test_clamp_on_an_agent():
    assert clamp(1, 2) == 1

def test_that_cites_nothing():
    assert clamp(0, 0) == 1
"""
OFFLINE = "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])\n"


def entry(find: str, replace: str, *, row: str = "calc.bound") -> str:
    fields = {"row": row, "what": "x", "file": "src/calc.py", "find": find, "replace": replace}
    return "[[mutant]]\n" + "".join(f'{key} = "{value}"\n' for key, value in fields.items())


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one function and two tests that cite a requirement."""
    for name, text in {"src/calc.py": CALC, "tests/test_calc.py": TESTS, "tests/offline.py": OFFLINE}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tools").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def test_citing_tests_are_listed_without_an_agent_first(checkout: Path) -> None:
    assert citing_tests(checkout) == {
        "calc.bound": [
            "tests/test_calc.py::test_clamp_returns_at_most_the_bound",
            "tests/test_calc.py::test_clamp_on_an_agent",
        ]
    }


@pytest.mark.proctor_process
def test_mutant_is_caught_by_a_citing_test_or_survives(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The second one is only seen by the test that cites nothing and fails without it, too.
    mutants = [entry("min(value, most)", "value"), entry("min(value, most)", "min(value, 2)"), entry("gone", "x")]
    (checkout / LIST).write_text("\n".join([*mutants, entry("min", "max", row="calc.other")]))
    assert main([]) == 1
    said = capsys.readouterr().out
    assert "caught    calc.bound: x" in said
    assert "by tests/test_calc.py::test_clamp_returns_at_most_the_bound" in said
    assert "SURVIVED  calc.bound: x" in said
    assert "occurs 0 times, not once: 'gone'" in said
    assert "calc.other: no test cites this requirement" in said
    assert said.endswith("1 of 4 survived, 2 could not be judged\n")
    assert (checkout / "src/calc.py").read_text() == CALC, "the checkout itself is not changed"


def test_copy_of_a_checkout_has_links_to_folders(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (checkout / "link").symlink_to("src")
    copy = tmp_path_factory.mktemp("copy")
    copy_checkout(checkout, copy)
    assert (copy / "link/calc.py").read_text() == CALC


def test_text_that_occurs_twice_is_an_error() -> None:
    mutant = Mutant(row="a.b", what="x", file="f.py", find="a", replace="b")
    with pytest.raises(MutantError, match="occurs 2 times"):
        mutate(mutant, "a = a")


@pytest.mark.long
def test_list_covers_forty_requirements_that_tests_cite() -> None:
    mutants, cited = load(CHECKOUT / LIST), citing_tests(CHECKOUT)
    rows = {row["id"] for row in tomllib.loads((CHECKOUT / "tests/requirements.toml").read_text())["requirement"]}
    assert len({each.row for each in mutants}) >= 40
    assert [each.row for each in mutants if each.row not in rows or each.row not in cited] == []
    for each in mutants:
        mutate(each, (CHECKOUT / each.file).read_text())
