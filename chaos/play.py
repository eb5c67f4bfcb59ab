"""One seed: a campaign run in rounds, each with faults, until it is done in spite of them."""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.cast import Cast
from chaos.player import Broken, PlayerRow
from chaos.processes import agents
from proctor.contain.intent import LOCK
from proctor.evidence.layout import CampaignPaths, RootPaths

ROOT = Path(__file__).parent.parent
ROUND_S = 120.0
MOST_ROUNDS = 80
_ROWS = 60
DISK_BYTES = 96 * 1024 * 1024

LIVE = {"agent killed": 6, "server killed": 5, "agent paused": 2, "proctor paused": 2, "second proctor": 1}
"""Faults in running processes, with their relative frequency."""
STREAM = ("cut", "torn", "delayed")
ENDINGS = ("proctor killed", "proctor killed", "proctor killed", "disk full")
DEAD = ("lock left", "line torn")
"""Faults in the files that a killed Proctor left."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The folder of one seed. With `has_disk`, its evidence is on a small disk that can be filled."""

    folder: Path
    spec: Path
    env: Mapping[str, str]
    has_disk: bool

    @property
    def root(self) -> Path:
        return self.folder / "evidence"

    def campaign(self) -> CampaignPaths | None:
        """Return the campaign, if it has begun. One that was killed before its plan was written has not."""
        return next((each for each in RootPaths(self.root).campaigns() if each.plan.exists()), None)


@dataclass(slots=True, kw_only=True)
class Played:
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    claims_s: list[float] = field(default_factory=list)
    """Times from the start of a resume to its first attempt."""
    problems: list[str] = field(default_factory=list)


@contextmanager
def open_stage(cast: Cast, folder: Path) -> Iterator[Stage]:
    (folder / "evidence").mkdir(parents=True)
    disk = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "chaos", str(folder / "evidence")]
    has_disk = subprocess.run(disk, capture_output=True, check=False).returncode == 0
    try:
        env = {**os.environ, **cast.environment(folder)}
        yield Stage(folder=folder, spec=cast.write(folder), env=env, has_disk=has_disk)
    finally:
        if has_disk:
            subprocess.run(["umount", "--lazy", str(folder / "evidence")], check=True)


def start_player(
    module: str, *words: str, folder: Path, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a module that prints a PlayerRow for each step. Its stderr is added to a file in the folder."""
    with (folder / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )


def rows_of(player: "subprocess.Popen[bytes]") -> Iterator[PlayerRow]:
    """Yield a player's rows as they arrive, until it ends. Raises TimeoutError if it does not end."""
    end_s = time.monotonic() + ROUND_S
    assert player.stdout is not None
    out, text = player.stdout.fileno(), b""
    while True:
        readable, _, _ = select.select([out], [], [], max(0.0, end_s - time.monotonic()))
        if not readable:
            raise TimeoutError(f"not ended within {ROUND_S:g} s")
        if not (chunk := os.read(out, 65536)):
            return
        *lines, text = (text + chunk).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line, type=PlayerRow)


class Player:
    """A Proctor process that runs or resumes the campaign. It is killed on exit from the block."""

    def __init__(self, stage: Stage, breaks: list[Broken]) -> None:
        words = (str(stage.spec), str(stage.root), msgspec.json.encode(breaks).decode())
        self.process = start_player("chaos.player", *words, folder=stage.folder, env=stage.env)

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def rows(self) -> Iterator[PlayerRow]:
        """Yield its rows as they arrive, until it ends. Raises TimeoutError if it does not end."""
        return rows_of(self.process)


class Seed:
    """Runs one seed. All randomness comes from one generator, so that a seed is as repeatable as the machine allows."""

    def __init__(self, seed: int, stage: Stage, *, faults: int) -> None:
        self.chance = random.Random(seed)
        self.stage = stage
        self.left = faults
        self.played = Played(seed=seed)

    def play(self) -> Played:
        """Run rounds until the campaign is done. The rounds after the last fault have no faults."""
        played = self.played
        while played.rounds < MOST_ROUNDS:
            played.rounds += 1
            try:
                how = self._round()
            except TimeoutError as error:
                played.problems.append(f"round {played.rounds}: {error}")
                return played
            if how == "done":
                return played
        played.problems.append(f"not done after {MOST_ROUNDS} rounds")
        return played

    def _hit(self, name: str) -> None:
        self.played.faults[name] += 1
        self.left -= 1

    def _round(self) -> str | None:
        """Run one round. Return how the run ended, or None if it was killed."""
        ends_at, ending, due = self._plan_round()
        breaks, began_s, how = self._breaks(), time.monotonic(), None
        is_resuming = self.played.rounds > 1
        with Player(self.stage, breaks) as player:
            for number, row in enumerate(player.rows(), 1):
                match row.what:
                    case "started" if is_resuming:
                        self.played.claims_s.append(row.at_s - began_s)
                        is_resuming = False
                    case "broke":
                        self._hit(f"stream {row.how}")
                    case "ended":
                        how = row.how
                if due and number >= due[0] and self._do_live(player):
                    due.pop(0)
                if ends_at is not None and number >= ends_at:
                    self._wait_a_moment()
                    if ending == "disk full":
                        self._starve(player)
                    else:
                        player.process.kill()
                        self._hit("proctor killed")
                    break
        if how is None:
            self._do_dead()
        return how

    def _plan_round(self) -> tuple[int | None, str, list[int]]:
        """Return after which row the player is ended and how, and after which rows live faults happen."""
        if self.left <= 0:
            return None, "", []
        ends_at = self.chance.randrange(1, _ROWS)
        due = sorted(self.chance.randrange(ends_at) for _ in range(self.chance.randrange(5)))
        return ends_at, self.chance.choice(ENDINGS), due

    def _breaks(self) -> list[Broken]:
        if self.left <= 0:
            return []
        chance = self.chance
        return [
            Broken(channel=chance.randrange(1, 7), line=chance.randrange(1, 13), how=chance.choice(STREAM))
            for _ in range(chance.randrange(4))
        ]

    def _wait_a_moment(self) -> None:
        time.sleep(self.chance.random() * 0.03)

    # ── faults ──

    def _do_live(self, player: Player) -> bool:
        """Inject a fault into a running process. Return False if there is no process to hit at this moment."""
        kind = self.chance.choices(list(LIVE), weights=list(LIVE.values()))[0]
        self._wait_a_moment()
        pid = player.process.pid
        found = agents(self.stage.folder, player=pid)
        hit = [each for each in found if each.is_server == (kind == "server killed")]
        if kind == "agent killed":
            hit = [each for each in hit if not each.may_kill_itself]
        match kind:
            case "agent killed" | "server killed" | "agent paused" if not hit:
                return False
            case "agent killed" | "server killed":
                with suppress(ProcessLookupError):
                    os.kill(self.chance.choice(hit).pid, signal.SIGKILL)
            case "agent paused":
                _pause(self.chance.choice(hit).pid)
            case "proctor paused":
                _pause(pid)
            case "second proctor":
                if self.stage.campaign() is None:
                    return False
                self._refuse_second(player)
        self._hit(kind)
        return True

    def _refuse_second(self, first: Player) -> None:
        """Start a second Proctor on the same campaign. It must be refused."""
        with Player(self.stage, []) as second:
            first_row = next(((row.what, row.of) for row in second.rows()), None)
        # If the first has ended meanwhile, the second may run the rest.
        if first_row != ("error", "machine.locked") and first.process.poll() is None:
            self.played.problems.append(f"two Proctors ran one campaign: {first_row}")

    def _starve(self, player: Player) -> None:
        """Fill the disk for a while. Without a small disk, forbid the player's files to grow instead."""
        ballast = self.stage.root / "ballast"
        if self.stage.has_disk:
            with ballast.open("wb") as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
        else:
            with suppress(ProcessLookupError):
                resource.prlimit(player.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        self._hit("disk full")
        try:
            player.process.wait(timeout=1 + self.chance.random())
        except subprocess.TimeoutExpired:
            player.process.kill()
            self._hit("proctor killed")
        finally:
            player.process.wait()
            ballast.unlink(missing_ok=True)

    def _do_dead(self) -> None:
        """Inject a fault into the files that the killed Proctor left."""
        campaign = self.stage.campaign()
        if self.left <= 0 or campaign is None:
            return
        match self.chance.choice((*DEAD, None)):
            case "lock left":
                # The lock of a dead process whose pid belongs to another process by now.
                (campaign.folder / LOCK).write_text(json.dumps({"pid": 1, "startTicks": 0, "bootId": "none"}))
                self._hit("lock left")
            case "line torn":
                unsealed = [
                    paths.frames
                    for run in RootPaths(self.stage.root).runs()
                    for paths in run.attempts()
                    if paths.frames.exists() and not paths.seal.exists()
                ]
                if unsealed:
                    with self.chance.choice(unsealed).open("ab") as file:
                        file.write(b'{"seq":9999,"atMs":1')
                    self._hit("line torn")


def _pause(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
