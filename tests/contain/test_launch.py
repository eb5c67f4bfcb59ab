import os
import shutil
from pathlib import Path

import pytest

from proctor.contain.fences import Fences
from proctor.contain.ladder import Containment, Variant
from proctor.contain.launch import LaunchPlan, new_marker, wrap
from proctor.contain.prefix import bwrap_prefix, cgroup_prefix, unshare_prefix, warden_prefix
from proctor.errors import MachineError


def by(variant: Variant, *tools: str) -> Containment:
    return Containment(variant=variant, tools=tools, catches=(), misses=())


CONTAINMENT = by(Variant.BWRAP, "/b/bwrap")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "bin/tool"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_is_looked_up_on_the_childs_own_path_and_then_wrapped(tool: Path, tmp_path: Path) -> None:
    env = {"PATH": str(tool.parent), "A": "1"}

    assert wrap(CONTAINMENT, ["tool", "--flag"], env=env, cwd=tmp_path, marker="m-1") == LaunchPlan(
        argv=(*bwrap_prefix("/b/bwrap"), str(tool), "--flag"),
        bare_argv=(str(tool), "--flag"),
        env={"PATH": str(tool.parent), "A": "1", "PROCTOR_SPAWN": "m-1"},
        cwd=tmp_path,
        marker="m-1",
        containment=CONTAINMENT,
    )


def test_a_relative_program_is_one_of_the_childs_folder_not_of_ours(tool: Path, tmp_path: Path) -> None:
    plan = wrap(CONTAINMENT, ["./tool"], env={}, cwd=tool.parent, marker="m")

    assert plan.bare_argv == (str(tool),)


def test_a_link_to_a_program_is_kept_as_a_link(tool: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tool)

    assert wrap(CONTAINMENT, [str(link)], env={}, cwd=tmp_path, marker="m").bare_argv == (str(link),)


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program"])
def test_a_missing_program_is_told_before_anything_is_spawned(program: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError) as refused:
        wrap(CONTAINMENT, [program], env=dict(os.environ), cwd=tmp_path, marker="m")

    assert refused.value.code == "machine.spawn-failed"
    assert "no-such-program" in refused.value.what or "/no/such/program" in refused.value.what


def test_a_file_that_may_not_be_executed_is_no_program(tool: Path, tmp_path: Path) -> None:
    tool.chmod(0o644)

    with pytest.raises(MachineError):
        wrap(CONTAINMENT, [str(tool)], env={}, cwd=tmp_path, marker="m")


def test_without_a_path_the_systems_own_is_searched(tmp_path: Path) -> None:
    plan = wrap(CONTAINMENT, ["sh"], env={}, cwd=tmp_path, marker="m")

    assert plan.bare_argv == (shutil.which("sh", path=os.defpath),)


@pytest.mark.parametrize("marker", ["", "a/b", "..\n", "a b", "x" * 129])
def test_a_marker_that_could_not_name_a_file_is_refused(marker: str, tool: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a marker"):
        wrap(CONTAINMENT, [str(tool)], env={}, cwd=tmp_path, marker=marker)


def test_new_markers_differ_and_are_accepted(tool: Path, tmp_path: Path) -> None:
    markers = {new_marker() for _ in range(100)}

    assert len({wrap(CONTAINMENT, [str(tool)], env={}, cwd=tmp_path, marker=each).marker for each in markers}) == 100


def test_each_way_has_its_own_prefix(tool: Path, tmp_path: Path) -> None:
    def prefix(containment: Containment) -> tuple[str, ...]:
        plan = wrap(containment, [str(tool)], env={}, cwd=tmp_path, marker="m")
        assert plan.argv[-1:] == plan.bare_argv
        return plan.argv[:-1]

    is_root = os.geteuid() == 0
    assert prefix(by(Variant.BUNDLED_BWRAP, "/b/bwrap")) == bwrap_prefix("/b/bwrap")
    assert prefix(by(Variant.UNSHARE, "/b/sp", "/b/un")) == unshare_prefix("/b/sp", "/b/un", is_root=is_root)
    assert prefix(by(Variant.CGROUP, "/b/sh", "/cg/p")) == cgroup_prefix("/b/sh", Path("/cg/p/m"))
    assert prefix(by(Variant.WARDEN, "/b/python")) == warden_prefix("/b/python")


def test_only_in_a_cgroup_has_a_plan_one_and_it_is_named_by_the_marker(tool: Path, tmp_path: Path) -> None:
    def cgroup(containment: Containment) -> Path | None:
        return wrap(containment, [str(tool)], env={}, cwd=tmp_path, marker="m").cgroup

    assert (cgroup(by(Variant.CGROUP, "/b/sh", "/cg/p")), cgroup(CONTAINMENT)) == (Path("/cg/p/m"), None)


@pytest.mark.parametrize("variant", [Variant.CGROUP, Variant.WARDEN])
def test_a_way_that_holds_processes_only_refuses_to_fence(variant: Variant, tool: Path, tmp_path: Path) -> None:
    with pytest.raises(MachineError) as refused:
        wrap(by(variant, "/b/one", "/b/two"), [str(tool)], env={}, cwd=tmp_path, marker="m", fences=Fences())

    assert (refused.value.code, refused.value.what) == (
        "machine.no-fences",
        f"the containment `{variant}` cannot restrict files or network",
    )


def test_a_wrapper_is_known_by_how_its_line_ends_whatever_it_begins_with(tool: Path, tmp_path: Path) -> None:
    plan = wrap(by(Variant.UNSHARE, "/b/sp", "/b/un"), [str(tool), "-"], env={}, cwd=tmp_path, marker="m")
    is_wrapper = plan.wrapper_test()

    def line(*words: str) -> bytes:
        return "".join(f"{word}\0" for word in words).encode()

    assert is_wrapper(line(*plan.argv))
    assert is_wrapper(line(*plan.argv[plan.argv.index("/b/un") :])), "setpriv has become unshare"
    assert not is_wrapper(line(*plan.bare_argv))
    assert is_wrapper(line("/bin/sh", *plan.argv)), "a wrapper that is a script"
    assert is_wrapper(line("/b/other", *plan.argv[1:])), "a wrapper that runs another in its place"
    assert not is_wrapper(line("/bin/sh", *plan.bare_argv)), "a script's line is its interpreter's"
    assert not is_wrapper(line("/bin/sh", "--", *plan.bare_argv)), "with an argument of the script's first line"
    assert not is_wrapper(line("renamed itself"))
