import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contain.fences import Fence, Fences, fence_in, locate_hidden
from proctor.contain.installed import installed
from proctor.spec.fence import Network

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda names: Path("/", *names))


def fate(rules: list[tuple[Path, Fence]], path: Path) -> Fence:
    """What mounts made in this order leave of a path: each covers what lies below it."""
    last = Fence.READ_ONLY
    for each, fence in rules:
        if path.is_relative_to(each):
            last = fence
    return last


@given(writable=st.lists(PATHS), hidden=st.lists(PATHS), read_only=st.lists(PATHS), path=PATHS)
def test_the_deepest_rule_wins_whatever_the_order_and_none_is_idle(
    writable: list[Path], hidden: list[Path], read_only: list[Path], path: Path
) -> None:
    fences = Fences(writable=tuple(writable), hidden=tuple(hidden), read_only=tuple(read_only))
    named = {
        **dict.fromkeys(read_only, Fence.READ_ONLY),
        **dict.fromkeys(hidden, Fence.HIDDEN),
        **dict.fromkeys(writable, Fence.WRITABLE),
    }
    expected = next((named[each] for each in (path, *path.parents) if each in named), Fence.READ_ONLY)

    rules = fences.rules()

    assert fate(rules, path) is expected
    assert all(fate(rules[:at], rule[0]) is not rule[1] for at, rule in enumerate(rules))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def make(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def test_the_home_the_shared_folders_and_what_is_named_are_hidden_and_the_work_is_writable(
    home: Path, tmp_path: Path
) -> None:
    make(tmp_path, "evidence/x", "work/x")

    fences = fence_in([tmp_path / "work"], hidden=[tmp_path / "evidence", tmp_path / "nowhere"])

    assert fences.writable == (tmp_path / "work",)
    assert {home, tmp_path / "evidence", Path("/tmp"), Path("/run").resolve()} <= set(fences.hidden)
    assert (fences.read_only, fences.network) == ((), Network.NONE)
    assert Path("/") not in fences.hidden


def test_a_home_at_the_root_hides_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/")

    assert Path("/") not in fence_in([tmp_path]).hidden


def test_of_what_is_installed_in_the_home_programs_and_libraries_stay_and_the_rest_is_hidden(home: Path) -> None:
    make(home, "secret", ".local/bin/tool", ".local/lib/x", ".local/share/keyring", ".local/token")

    fences = fence_in([], search_path=f"{home}/.local/bin:/usr/bin:relative:{home}/nowhere")

    assert fences.read_only == (home / ".local/bin", home / ".local/lib")


def test_a_link_is_followed_to_where_its_program_is_installed(home: Path) -> None:
    make(home, "pythons/3.11/bin/python3.11", "pythons/3.11/lib/os.py", "pythons/secret", "notes/run.sh", "notes/diary")
    make(home, "venv/pyvenv.cfg", "venv/lib/x")
    (home / "venv/bin").mkdir()
    (home / "venv/bin/python").symlink_to(home / "pythons/3.11/bin/python3.11")
    (home / "venv/bin/run").symlink_to(home / "notes/run.sh")

    assert fence_in([], search_path=f"{home}/venv/bin").read_only == (
        home / "notes/run.sh",
        home / "pythons/3.11/bin",
        home / "pythons/3.11/lib",
        home / "venv/bin",
        home / "venv/lib",
        home / "venv/pyvenv.cfg",
    )


def test_a_folder_reached_by_a_link_is_found_where_it_was_named_and_where_it_lies(home: Path) -> None:
    make(home, "v20/bin/node", "v20/lib/x")
    (home / "current").symlink_to("v20")

    assert fence_in([], search_path=f"{home}/current/bin").read_only == (
        home / "current/bin",
        home / "current/lib",
        home / "v20/bin",
        home / "v20/lib",
    )


def test_links_that_stay_visible_are_followed_and_hidden_ones_stand_for_what_they_name(
    home: Path, tmp_path: Path
) -> None:
    make(home, "v20/bin/node")
    (home / "current").symlink_to("v20")
    (tmp_path / "way").symlink_to(home)

    assert locate_hidden({f"{tmp_path}/way/current/bin"}, [home]) == (home / "current/bin",)
    assert locate_hidden({str(tmp_path), "/usr/bin"}, [home]) == ()


def test_a_program_named_by_its_path_stays_and_its_neighbours_do_not(home: Path) -> None:
    make(home, "oracles/check.sh", "oracles/answers")

    assert fence_in([], program=str(home / "oracles/check.sh")).read_only == (home / "oracles/check.sh",)
    assert installed("", program="check.sh") == frozenset()


def test_with_the_hosts_network_its_resolver_stays_readable(home: Path) -> None:
    resolver = Path(os.path.realpath("/etc/resolv.conf"))
    is_hidden = resolver.exists() and any(resolver.is_relative_to(place) for place in fence_in([]).hidden)

    assert fence_in([], network=Network.HOST).read_only == ((resolver,) if is_hidden else ())
