"""Command lines of the wrapper programs, which are put before an agent's argv to contain it."""

import os
from pathlib import Path
from typing import Final

from proctor.contain.fences import Fence, Fences, Hiding, Overlay
from proctor.spec.fence import Network

FENCER: Final = Path(__file__).with_name("fencer.py")
WARDEN: Final = Path(__file__).with_name("warden.py")

# The shell joins the cgroup and then executes the agent, so that no part of the agent runs outside the cgroup.
_JOIN: Final = 'echo $$ >"$1" || exit 126; shift; exec "$@"'
_JOIN_NAME: Final = "proctor-join"
# How a wrapper's error messages begin.
WRAPPERS: Final = ("bwrap: ", "setpriv: ", "unshare: ", "proctor-fencer: ", f"{_JOIN_NAME}: ", "proctor-warden: ")

_FLAGS: Final = {Fence.WRITABLE: "--bind", Fence.READ_ONLY: "--ro-bind"}
NOTHING: Final = "/dev/null"
"""Mounted over a file that is hidden."""
ONLY_HIDING: Final = "unchanged"
"""The argument of fencer.py in place of a network: it hides paths, and changes neither network nor capabilities."""


def bwrap_prefix(bwrap: str) -> tuple[str, ...]:
    # Without a fresh /proc an agent's sandboxed shell breaks silently.
    return (bwrap, "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--")


def hiding_bwrap_prefix(bwrap: str, *, hiding: Hiding, cwd: Path) -> tuple[str, ...]:
    # Root keeps its capabilities: an agent's own sandbox needs them to mount.
    plain = bwrap_prefix(bwrap)
    return (*plain[:-1], *_mount_rules(hiding), "--chdir", str(cwd), plain[-1])


def _mount_rules(fences: Fences | Hiding) -> list[str]:
    argv = []
    for path, fence in fences.rules():
        if fence is not Fence.HIDDEN:
            argv += [_FLAGS[fence], str(path), str(path)]
        elif path.is_file():
            argv += ["--ro-bind", NOTHING, str(path)]
        else:
            argv += ["--tmpfs", str(path)]
    return argv


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
    argv += _mount_rules(fences)
    if fences.overlay is not None:
        argv += _mount_overlay(fences.overlay)
    argv += ["--unshare-pid", "--unshare-ipc"]
    if fences.network is Network.NONE:
        argv.append("--unshare-net")
    if is_root:
        # bwrap lets root keep its capabilities, with which a process could mount everything writable again.
        argv += ["--cap-drop", "ALL"]
        # Kernel keys belong to a user namespace, and would outlive the process. Other users always get a new one.
        argv.append("--unshare-user-try")
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
    return (*argv, "--", *_fencer(python, fences, fences.network.value, cwd=cwd))


def hiding_unshare_prefix(
    setpriv: str, unshare: str, *, hiding: Hiding, python: str, cwd: Path, is_root: bool
) -> tuple[str, ...]:
    caps = () if is_root else ("--keep-caps",)
    return (
        *_unshare(setpriv, unshare, is_root=is_root),
        *(*caps, "--"),
        *_fencer(python, hiding, ONLY_HIDING, cwd=cwd),
    )


def _fencer(python: str, fences: Fences | Hiding, network: str, *, cwd: Path) -> tuple[str, ...]:
    rules = [word for path, fence in fences.rules() for word in (fence.value, str(path))]
    return (python, "-I", "-S", str(FENCER), network, str(cwd), *rules, "--")


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
