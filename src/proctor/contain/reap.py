"""Reaping: kill the processes that dead Proctor processes left running, found by their spawn intents."""

import os
import select
import signal
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from proctor.clock import SYSTEM_CLOCK
from proctor.contain import cgroup
from proctor.contain.identity import ProcessIdentity, descendants, find_marked, identify, is_alive, pin, send_signal
from proctor.contain.intent import owner_folders, read_intents, remove_owner, take_lock
from proctor.errors import MachineError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapResult:
    """One spawn of a dead Proctor process, after reaping."""

    owner: str
    """The name of the owner's intent folder, which begins with its pid."""
    marker: str
    argv: tuple[str, ...]
    killed: tuple[int, ...]
    """The pids that were still alive and were sent SIGKILL."""
    is_gone: bool
    """Whether no process of the spawn is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillResult:
    """What `kill_trees` did."""

    killed: Mapping[str, tuple[int, ...]]
    """The host pids that were sent SIGKILL, by marker."""
    survived: frozenset[str]
    """The markers of spawns of which a process was still alive at the deadline."""


def reap_leftovers(spawns: Path, *, timeout_s: float = 5.0) -> tuple[ReapResult, ...]:
    """Kill what dead Proctor processes left running and remove their intents.

    Only folders whose lock is free are touched, so the processes of a live Proctor are safe. Waits until the processes
    are dead, at most `timeout_s` seconds. Raises MachineError if the intents cannot be read.
    """
    with ExitStack() as locks:
        abandoned = {}
        try:
            for folder in owner_folders(spawns):
                if (lock := take_lock(folder)) is not None:
                    locks.callback(os.close, lock)
                    abandoned[folder] = read_intents(folder)
        except OSError as error:
            raise MachineError("machine.unwritable", f"cannot read spawn intents: {error}", file=str(spawns)) from error
        leftovers = [intent for intents in abandoned.values() for intent in intents]
        cgroups = {intent.marker: Path(intent.cgroup) for intent in leftovers if intent.cgroup is not None}
        deaths = kill_trees(
            {intent.marker: intent.identities for intent in leftovers}, cgroups=cgroups, timeout_s=timeout_s
        )
        for path in cgroups.values():
            cgroup.remove(path, with_parent=True)
        for folder, intents in abandoned.items():
            if deaths.survived.isdisjoint(intent.marker for intent in intents):
                remove_owner(folder)
        return tuple(
            ReapResult(
                owner=folder.name,
                marker=intent.marker,
                argv=intent.argv,
                killed=deaths.killed.get(intent.marker, ()),
                is_gone=intent.marker not in deaths.survived,
            )
            for folder, intents in abandoned.items()
            for intent in intents
        )


def kill_trees(
    spawns: Mapping[str, Iterable[ProcessIdentity]],
    *,
    cgroups: Mapping[str, Path] = MappingProxyType({}),
    attempt: str | None = None,
    timeout_s: float,
) -> KillResult:
    """Send SIGKILL to all processes of the given spawns until none is left, for at most `timeout_s` seconds.

    `spawns` maps markers to known processes. Also killed are descendants of these, processes with a marker in their
    environment, members of the `cgroups`, and the descendants of both. Never kills the calling process: if it belongs
    to such a spawn itself, its own descendants are spared too. With `attempt`, a process is found by its marker only if
    its environment also names this attempt, so that other attempts of a shared agent are spared.
    """
    killed: dict[str, list[int]] = {}
    survived: frozenset[str] = frozenset()
    until = SYSTEM_CLOCK.steady_s() + timeout_s
    while targets := _find_targets(spawns, cgroups, attempt):
        for identity, marker in targets.items():
            if identity.pid not in killed.setdefault(marker, []):
                killed[marker].append(identity.pid)
        for path in cgroups.values():
            if not cgroup.contains_us(path):
                cgroup.kill(path)
        _kill(targets, until_s=until)
        if SYSTEM_CLOCK.steady_s() >= until:
            survived = frozenset(marker for identity, marker in targets.items() if is_alive(identity))
            break
    return KillResult(killed={marker: tuple(pids) for marker, pids in killed.items()}, survived=survived)


def _find_targets(
    spawns: Mapping[str, Iterable[ProcessIdentity]], cgroups: Mapping[str, Path], attempt: str | None
) -> dict[ProcessIdentity, str]:
    roots = {marker: [each for each in known if is_alive(each)] for marker, known in spawns.items()}
    for marker, path in cgroups.items():
        roots.setdefault(marker, []).extend(cgroup.members(path))
    if spawns:
        for marker, root in find_marked(spawns, attempt=attempt):
            roots[marker].append(root)
    targets: dict[ProcessIdentity, str] = {}
    for marker, its_roots in roots.items():
        found = (each for root in its_roots for each in (root, *map(identify, descendants(root.pid))))
        tree = {each.pid: each for each in found if each is not None}
        # Read after the tree, so that a child started in between is spared, too.
        ours = {os.getpid(), *descendants(os.getpid())} if os.getpid() in tree else frozenset()
        targets |= {each: marker for pid, each in tree.items() if pid not in ours and is_alive(each)}
    return targets


def _kill(targets: Iterable[ProcessIdentity], *, until_s: float) -> None:
    deaths = select.poll()
    with ExitStack() as pins:
        waiting = 0
        for identity in targets:
            if (pidfd := pin(identity)) is None:
                continue
            pins.callback(os.close, pidfd)
            # A process that may not be signalled is also waited for, and is then reported as a survivor.
            with suppress(PermissionError):
                send_signal(pidfd, signal.SIGKILL)
            # A pidfd is readable once its process is dead, even if its parent has not collected it.
            deaths.register(pidfd, select.POLLIN)
            waiting += 1
        while waiting and (left_s := until_s - SYSTEM_CLOCK.steady_s()) > 0:
            for pidfd, _ in deaths.poll(left_s * 1000):
                deaths.unregister(pidfd)
                waiting -= 1
