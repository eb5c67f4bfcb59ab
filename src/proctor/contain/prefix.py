"""Command lines of the wrapper programs, which are put before an agent's argv to contain it."""

import os
from pathlib import Path
from typing import Final

from proctor.contain.fences import Fence, Fences, Overlay
from proctor.spec.fence import Network

FENCER: Final = Path(__file__).with_name("fencer.py")
WARDEN: Final = Path(__file__).with_name("warden.py")

# The shell joins the cgroup and then executes the agent, so that no part of the agent runs outside the cgroup.
_JOIN: Final = 'echo $$ >"$1" || exit 126; shift; exec "$@"'
_JOIN_NAME: Final = "proctor-join"
# How a wrapper's error messages begin.
WRAPPERS: Final = ("bwrap: ", "setpriv: ", "unshare: ", "proctor-fencer: ", f"{_JOIN_NAME}: ", "proctor-warden: ")

_FLAGS: Final = {Fence.WRITABLE: "--bind", Fence.READ_ONLY: "--ro-bind", Fence.HIDDEN: "--tmpfs"}


def bwrap_prefix(bwrap: str) -> tuple[str, ...]:
    # Without a fresh /proc an agent's sandboxed shell breaks silently.
    return (bwrap, "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--")


def overlay_test_prefix(bwrap: str, *, folder: Path) -> tuple[str, ...]:
    """Return a prefix that mounts both kinds of overlay that views use, in an empty folder. Creates their sources."""
    lower, changes, work, place = (folder / name for name in ("lower", "changes", "work", "place"))
    for each in (lower, changes, work, place):
        each.mkdir()
    temporary = ("--overlay-src", str(lower), "--tmp-overlay", str(lower))
    kept = ("--overlay-src", str(lower), "--overlay", str(changes), str(work), str(place))
    plain = bwrap_prefix(bwrap)
    return (*plain[:-1], *temporary, *kept, plain[-1])


def fenced_bwrap_prefix(bwrap: str, *, fences: Fences, cwd: Path, is_root: bool) -> tuple[str, ...]:
    # A fresh /dev, because root could write to a disk device despite read-only mounts. A read-only /proc, because root
    # needs no capability to change settings of the whole machine below /proc/sys.
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    for path, fence in fences.rules():
        argv += [_FLAGS[fence], str(path)] if fence is Fence.HIDDEN else [_FLAGS[fence], str(path), str(path)]
    if fences.overlay is not None:
        argv += _mount_overlay(fences.overlay)
    argv += ["--unshare-pid", "--unshare-ipc"]
    if fences.network is Network.NONE:
        argv.append("--unshare-net")
    if is_root:
        # bwrap lets root keep its capabilities, with which a process could mount everything writable again.
        argv += ["--cap-drop", "ALL"]
    return (*argv, "--die-with-parent", "--chdir", str(cwd), "--")


def _mount_overlay(overlay: Overlay) -> list[str]:
    argv = [word for layer in overlay.layers for word in ("--overlay-src", str(layer))]
    if overlay.changes is None:
        return [*argv, "--tmp-overlay", str(overlay.place)]
    return [*argv, "--overlay", str(overlay.changes), str(overlay.work), str(overlay.place)]


def unshare_prefix(setpriv: str, unshare: str, *, is_root: bool) -> tuple[str, ...]:
    return (*_unshare(setpriv, unshare, is_root=is_root), "--")


def fenced_unshare_prefix(
    setpriv: str, unshare: str, *, fences: Fences, python: str, cwd: Path, is_root: bool
) -> tuple[str, ...]:
    argv = [*_unshare(setpriv, unshare, is_root=is_root), "--ipc"]
    if fences.network is Network.NONE:
        argv.append("--net")
    if not is_root:
        # fencer.py needs them to mount, and drops them before it executes the program.
        argv.append("--keep-caps")
    argv += ["--", python, "-I", "-S", str(FENCER), fences.network.value, str(cwd)]
    for path, fence in fences.rules():
        argv += [fence.value, str(path)]
    return (*argv, "--")


def _unshare(setpriv: str, unshare: str, *, is_root: bool) -> tuple[str, ...]:
    # --kill-child acts only when unshare itself dies. setpriv's death signal makes unshare die with Proctor, even after
    # kill -9 and if the agent ignores EOF. With --map-root-user agents refuse their folders as not owned by the user.
    user = () if is_root else ("--user", "--map-current-user")
    return (
        *(setpriv, "--pdeathsig", "KILL", "--"),
        *(unshare, *user, "--pid", "--fork", "--kill-child", "--mount-proc"),
    )


def cgroup_prefix(shell: str, cgroup: Path) -> tuple[str, ...]:
    return (shell, "-c", _JOIN, _JOIN_NAME, str(cgroup / "cgroup.procs"))


def warden_prefix(python: str) -> tuple[str, ...]:
    return (python, "-I", "-S", str(WARDEN), str(os.getpid()))
