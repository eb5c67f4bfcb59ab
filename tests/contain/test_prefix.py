import os
from pathlib import Path

from proctor.contain.fences import Fences, Hiding
from proctor.contain.prefix import (
    FENCER,
    WARDEN,
    bwrap_prefix,
    cgroup_prefix,
    fenced_bwrap_prefix,
    fenced_unshare_prefix,
    hiding_bwrap_prefix,
    hiding_unshare_prefix,
    unshare_prefix,
    warden_prefix,
)
from proctor.spec.fence import Network

CWD = Path("/home/ada/.cache/copy")
FENCES = Fences(
    writable=(CWD,), hidden=(Path("/home/ada"), Path("/tmp")), read_only=(Path("/home/ada/.venv/bin"), Path("/usr"))
)


def test_bwrap_gives_the_tree_its_own_pids_and_proc_and_ties_it_to_us() -> None:
    assert bwrap_prefix("/b/bwrap") == (
        *("/b/bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--"),
    )


def test_root_unshares_without_a_user_namespace() -> None:
    assert unshare_prefix("/b/setpriv", "/b/unshare", is_root=True) == (
        *("/b/setpriv", "--pdeathsig", "KILL", "--"),
        *("/b/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
    )


def test_others_unshare_in_a_user_namespace_that_keeps_their_own_id() -> None:
    assert unshare_prefix("/b/setpriv", "/b/unshare", is_root=False) == (
        *("/b/setpriv", "--pdeathsig", "KILL", "--"),
        *("/b/unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
    )


def test_in_a_cgroup_a_shell_joins_and_becomes_the_agent() -> None:
    assert cgroup_prefix("/bin/sh", Path("/cg/p/m")) == (
        *("/bin/sh", "-c", 'echo $$ >"$1" || exit 126; shift; exec "$@"', "proctor-join", "/cg/p/m/cgroup.procs"),
    )


def test_a_warden_knows_its_parent() -> None:
    assert warden_prefix("/b/python") == ("/b/python", "-I", "-S", str(WARDEN), str(os.getpid()))
    assert WARDEN.is_file()
    assert FENCER.is_file()


def test_bwrap_hides_before_it_gives_back_and_root_keeps_no_capability() -> None:
    assert fenced_bwrap_prefix("/b/bwrap", fences=FENCES, cwd=CWD, is_root=True) == (
        *("/b/bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
        *("--tmpfs", "/home/ada"),
        *("--bind", str(CWD), str(CWD)),
        *("--ro-bind", "/home/ada/.venv/bin", "/home/ada/.venv/bin"),
        *("--tmpfs", "/tmp"),
        *("--unshare-pid", "--unshare-ipc", "--unshare-net", "--cap-drop", "ALL", "--unshare-user-try"),
        *("--die-with-parent", "--chdir", str(CWD), "--"),
    )


def test_the_hosts_network_is_left_where_the_fences_say_so() -> None:
    open_ = Fences(network=Network.HOST)

    assert fenced_bwrap_prefix("/b/bwrap", fences=open_, cwd=CWD, is_root=False) == (
        *("/b/bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
        *("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--chdir", str(CWD), "--"),
    )
    assert "--net" not in fenced_unshare_prefix("s", "u", fences=open_, python="p", cwd=CWD, is_root=True)


def test_unshare_leaves_the_mounting_to_the_fencer_with_the_capabilities_it_takes() -> None:
    inner = (
        *("/b/python", "-I", "-S", str(FENCER), "none", str(CWD)),
        *("hidden", "/home/ada", "writable", str(CWD), "read-only", "/home/ada/.venv/bin", "hidden", "/tmp", "--"),
    )
    for is_root in (True, False):
        plain = unshare_prefix("/b/setpriv", "/b/unshare", is_root=is_root)[:-1]
        assert fenced_unshare_prefix(
            "/b/setpriv", "/b/unshare", fences=FENCES, python="/b/python", cwd=CWD, is_root=is_root
        ) == (*plain, "--ipc", "--net", *(() if is_root else ("--keep-caps",)), "--", *inner)


def test_hiding_mounts_over_folders_and_files_and_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    (script := tmp_path / "script.yaml").write_text("")
    hiding = Hiding(hidden=(Path("/spec"), script), writable=(CWD,), read_only=(Path("/spec/.venv"),))
    plain = bwrap_prefix("/b/bwrap")[:-1]

    assert hiding_bwrap_prefix("/b/bwrap", hiding=hiding, cwd=CWD) == (
        *plain,
        *("--tmpfs", "/spec", "--ro-bind", "/spec/.venv", "/spec/.venv", "--ro-bind", "/dev/null", str(script)),
        *("--chdir", str(CWD), "--"),
    )
    for is_root in (True, False):
        plain = unshare_prefix("/b/setpriv", "/b/unshare", is_root=is_root)[:-1]
        assert hiding_unshare_prefix(
            "/b/setpriv", "/b/unshare", hiding=hiding, python="/b/python", cwd=CWD, is_root=is_root
        ) == (
            *(*plain, *(() if is_root else ("--keep-caps",)), "--"),
            *("/b/python", "-I", "-S", str(FENCER), "unchanged", str(CWD)),
            *("hidden", "/spec", "read-only", "/spec/.venv", "hidden", str(script), "--"),
        )
