"""The only code that talks to a spawned agent: its pipes, its end, and nothing of it left afterwards."""

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO, NamedTuple

import anyio
import anyio.lowlevel

from proctor.contain import cgroup
from proctor.contain.identity import Identity
from proctor.contain.intent import IntentBook
from proctor.contain.launch import LaunchPlan
from proctor.contain.prefix import WRAPPERS
from proctor.errors import HangupError, MachineError
from proctor.transport.tree import ExitStatus, Patience, ProcessTree

__all__ = ["AgentProcess", "ExitStatus", "Finished", "Patience", "open_process", "run_once"]

_CHUNK_BYTES = 65536
_APPEAR_S = 1.0
_DRAIN_S = 1.0
# What a wrapper exits with when it cannot set up its namespace or execute the program.
_FAILED_START = (1, 126, 127)


class _Pipes(NamedTuple):
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


class AgentProcess:
    """One contained process. Made by `open_process` only."""

    def __init__(self, tree: ProcessTree, pipes: _Pipes, *, stderr_head: bytes) -> None:
        self._tree = tree
        self._pipes = pipes
        self._stderr_head = stderr_head
        self._sending = anyio.Lock(fast_acquire=True)

    @property
    def wrapper(self) -> Identity:
        return self._tree.wrapper

    @property
    def agent(self) -> Identity | None:
        """None if it was over before it could be seen."""
        return self._tree.agent

    async def receive(self) -> bytes:
        """The next bytes of stdout, empty at its end."""
        return await _read(self._pipes.stdout)

    async def receive_err(self) -> bytes:
        """The next bytes of stderr, empty at its end."""
        head, self._stderr_head = self._stderr_head, b""
        return head or await _read(self._pipes.stderr)

    async def send(self, data: bytes) -> None:
        """Write all of it. A send that is cancelled half-way leaves half a message: the channel is then of no use."""
        stdin = self._pipes.stdin
        async with self._sending:
            rest = memoryview(data)
            while rest:
                if stdin.closed:
                    raise HangupError("peer.hangup", "its stdin is closed")
                try:
                    rest = rest[os.write(stdin.fileno(), rest) :]
                except BlockingIOError:
                    with suppress(anyio.ClosedResourceError):
                        await anyio.wait_writable(stdin)
                except BrokenPipeError as error:
                    raise HangupError("peer.hangup", "it no longer reads its stdin") from error

    async def close_stdin(self) -> None:
        _close(self._pipes.stdin)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        """How the process itself ended, or none if it has not within `deadline_s`. Its pipes may still hold bytes."""
        return await self._tree.wait(deadline_s=deadline_s)

    async def stop(self) -> ExitStatus:
        """Close stdin, then SIGTERM to the agent, then SIGKILL to all; returns when the whole tree has ended."""
        _close(self._pipes.stdin)
        return await self._tree.stop()


@asynccontextmanager
async def open_process(
    plan: LaunchPlan, *, intents: IntentBook, patience: Patience | None = None
) -> AsyncIterator[AgentProcess]:
    """Spawn, and on leaving stop: nothing of the tree outlives the block, however it ends."""
    intent = intents.declare(plan.marker, argv=plan.bare_argv, cgroup=plan.cgroup)
    try:
        if plan.cgroup is not None:
            cgroup.make(plan.cgroup)
        tree, pipes = _spawn(plan, patience=patience or Patience())
    except MachineError:
        if plan.cgroup is not None:
            cgroup.remove(plan.cgroup)
        intents.settle(plan.marker)
        raise
    try:
        await tree.appear()
        intents.identify(intent, wrapper=tree.wrapper, agent=tree.agent)
        yield AgentProcess(tree, pipes, stderr_head=_refuse_failed_start(tree, pipes))
    finally:
        try:
            # Shielded so that a cancelled caller cannot leak the tree; every wait inside is bounded.
            with anyio.CancelScope(shield=True):
                _close(pipes.stdin)
                await tree.stop()
        except BaseException:
            # A bare Task.cancel(), such as Ctrl-C makes, passes the shield.
            tree.put_down()
            raise
        finally:
            tree.release()
            for pipe in pipes:
                _close(pipe)
            if tree.is_gone:
                intents.settle(plan.marker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A process that was run to its end; `exit` is none if the end was our deadline."""

    exit: ExitStatus | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    stdout_cut: bool
    stderr_cut: bool


async def run_once(
    plan: LaunchPlan, *, intents: IntentBook, timeout_s: float, max_output_bytes: int, stdin: bytes = b""
) -> Finished:
    """Run to the end or the deadline, whichever is first, keeping the first bytes of each output."""
    until = anyio.current_time() + timeout_s
    stdout, stderr = _Head(max_output_bytes), _Head(max_output_bytes)
    # No grace: what is still there at the deadline is killed.
    patience = Patience(appear_s=min(timeout_s, _APPEAR_S), eof_s=0, term_s=0)
    async with open_process(plan, intents=intents, patience=patience) as process, anyio.create_task_group() as pumps:
        pumps.start_soon(stdout.drain, process.receive)
        pumps.start_soon(stderr.drain, process.receive_err)
        pumps.start_soon(_feed, process, stdin)
        exit_status = await process.wait(deadline_s=until - anyio.current_time())
        await process.stop()
        # With the tree gone the pipes are at their end, unless one was handed to a process outside of it.
        pumps.cancel_scope.deadline = anyio.current_time() + _DRAIN_S
    return Finished(
        exit=exit_status,
        stdout=bytes(stdout.kept),
        stderr=bytes(stderr.kept),
        timed_out=exit_status is None,
        stdout_cut=stdout.is_cut,
        stderr_cut=stderr.is_cut,
    )


class _Head:
    """The first bytes of a stream; the rest is read too, so that the writer never blocks, and dropped."""

    def __init__(self, limit_bytes: int) -> None:
        self.kept = bytearray()
        self.is_cut = False
        self._limit_bytes = limit_bytes

    async def drain(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        while chunk := await receive():
            room = self._limit_bytes - len(self.kept)
            self.kept += chunk[:room]
            self.is_cut = self.is_cut or len(chunk) > room


async def _feed(process: AgentProcess, stdin: bytes) -> None:
    # A program may well end without reading what it was given.
    with suppress(HangupError):
        await process.send(stdin)
    await process.close_stdin()


def _spawn(plan: LaunchPlan, *, patience: Patience) -> tuple[ProcessTree, _Pipes]:
    # On the event loop's own thread, which outlives the block: the death signal fires when the spawning *thread* ends.
    try:
        popen = subprocess.Popen(
            plan.argv,
            env=plan.env,
            cwd=plan.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        what = f"{plan.bare_argv[0]} cannot be started in {plan.cwd}: {error.strerror}"
        raise MachineError("machine.spawn-failed", what) from error
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    pipes = _Pipes(popen.stdin, popen.stdout, popen.stderr)
    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)
    try:
        return ProcessTree(popen, plan=plan, patience=patience), pipes
    except OSError as error:
        with popen:
            popen.kill()
        what = f"{plan.bare_argv[0]} cannot be watched: {error.strerror}"
        raise MachineError("machine.spawn-failed", what) from error


def _refuse_failed_start(tree: ProcessTree, pipes: _Pipes) -> bytes:
    """A wrapper that could not do its part must not pass for an agent that failed. Gives back what it read."""
    if tree.agent is not None or tree.exit is None or tree.exit.code not in _FAILED_START:
        return b""
    try:
        head = os.read(pipes.stderr.fileno(), _CHUNK_BYTES)
    except BlockingIOError:
        return b""
    said = head.decode(errors="replace").partition("\n")[0]
    # unshare speaks of "sigprocmask" when its child was killed: that one did start.
    if said.startswith(WRAPPERS) and "sigprocmask" not in said:
        raise MachineError("machine.spawn-failed", said)
    return head


async def _read(pipe: IO[bytes]) -> bytes:
    await anyio.lowlevel.checkpoint()
    while not pipe.closed:
        try:
            return os.read(pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            with suppress(anyio.ClosedResourceError):
                await anyio.wait_readable(pipe)
    return b""


def _close(pipe: IO[bytes]) -> None:
    if not pipe.closed:
        anyio.notify_closing(pipe)
        pipe.close()
