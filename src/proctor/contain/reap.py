"""Ending what a dead Proctor left running, and nothing else."""

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
from proctor.contain.identity import Identity, descendants, find_marked, identify, is_alive, pin, send_signal
from proctor.contain.intent import owner_folders, read_intents, remove_owner, take_lock
from proctor.errors import MachineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """One spawn of a dead owner: what was still alive of it, and whether it is gone now."""

    owner: str
    marker: str
    argv: tuple[str, ...]
    killed: tuple[int, ...]
    is_gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Host pids killed, and the markers of which something could not be."""

    killed: Mapping[str, tuple[int, ...]]
    survived: frozenset[str]


def reap_leftovers(spawns: Path, *, patience_s: float = 5.0) -> tuple[Reaped, ...]:
    """Kill what dead owners left and forget their intents. It waits for the deaths, at most `patience_s`."""
    with ExitStack() as locks:
        abandoned = {}
        try:
            for folder in owner_folders(spawns):
                if (lock := take_lock(folder)) is not None:
                    locks.callback(os.close, lock)
                    abandoned[folder] = read_intents(folder)
        except OSError as error:
            raise MachineError("machine.unwritable", f"leftovers cannot be read: {error}", file=str(spawns)) from error
        everyone = [intent for intents in abandoned.values() for intent in intents]
        cgroups = {intent.marker: Path(intent.cgroup) for intent in everyone if intent.cgroup is not None}
        deaths = kill_trees(
            {intent.marker: intent.identities for intent in everyone}, cgroups=cgroups, patience_s=patience_s
        )
        for path in cgroups.values():
            cgroup.remove(path, with_parent=True)
        for folder, intents in abandoned.items():
            if deaths.survived.isdisjoint(intent.marker for intent in intents):
                remove_owner(folder)
        return tuple(
            Reaped(
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
    spawns: Mapping[str, Iterable[Identity]], *, cgroups: Mapping[str, Path] = MappingProxyType({}), patience_s: float
) -> Deaths:
    """SIGKILL who is known of a spawn, descends from it, carries its marker or is in its cgroup, until none is left."""
    killed: dict[str, list[int]] = {}
    survived: frozenset[str] = frozenset()
    until = SYSTEM_CLOCK.steady_s() + patience_s
    while targets := _find_targets(spawns, cgroups):
        for identity, marker in targets.items():
            if identity.pid not in killed.setdefault(marker, []):
                killed[marker].append(identity.pid)
        for path in cgroups.values():
            cgroup.kill(path)
        _kill(targets, until_s=until)
        if SYSTEM_CLOCK.steady_s() >= until:
            survived = frozenset(marker for identity, marker in targets.items() if is_alive(identity))
            break
    return Deaths(killed={marker: tuple(pids) for marker, pids in killed.items()}, survived=survived)


def _find_targets(spawns: Mapping[str, Iterable[Identity]], cgroups: Mapping[str, Path]) -> dict[Identity, str]:
    roots = [(marker, each) for marker, known in spawns.items() for each in known if is_alive(each)]
    roots += [(marker, each) for marker, path in cgroups.items() for each in cgroup.members(path)]
    if spawns:
        roots += find_marked(spawns)
    targets = {}
    for marker, root in roots:
        for identity in (root, *map(identify, descendants(root.pid))):
            if identity is not None and is_alive(identity) and identity.pid != os.getpid():
                targets[identity] = marker
    return targets


def _kill(targets: Iterable[Identity], *, until_s: float) -> None:
    deaths = select.poll()
    with ExitStack() as pins:
        waiting = 0
        for identity in targets:
            if (pidfd := pin(identity)) is None:
                continue
            pins.callback(os.close, pidfd)
            # One we may not signal is waited for too, and told as a survivor.
            with suppress(PermissionError):
                send_signal(pidfd, signal.SIGKILL)
            # A pidfd is readable once its process is dead, collected or not.
            deaths.register(pidfd, select.POLLIN)
            waiting += 1
        while waiting and (left_s := until_s - SYSTEM_CLOCK.steady_s()) > 0:
            for pidfd, _ in deaths.poll(left_s * 1000):
                deaths.unregister(pidfd)
                waiting -= 1
