"""Start a contained process, exchange bytes with it, and stop its whole process tree at the end.

This is the only module that starts agents and probes.
"""

import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, NamedTuple

import anyio
import anyio.lowlevel

from proctor.contain import cgroup
from proctor.contain.identity import ProcessIdentity, descendants, find_holders
from proctor.contain.intent import IntentLog
from proctor.contain.launch import LaunchPlan
from proctor.contain.prefix import WRAPPERS
from proctor.errors import HangupError, MachineError
from proctor.transport.tree import ExitStatus, ProcessTree, StopDeadlines

__all__ = ["AgentProcess", "ExitStatus", "ProcessResult", "StopDeadlines", "open_process", "run_once"]

_CHUNK_BYTES = 65536
_APPEAR_S = 1.0
_DRAIN_S = 1.0
_STEP_S = 1.0
_HEAD_BYTES = 4096
# The exit codes of a wrapper that could not set up its containment or execute the program.
_FAILED_START = (1, 126, 127)


class _Pipes(NamedTuple):
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


class AgentProcess:
    """One contained process and its pipes. Made by `open_process` only."""

    def __init__(self, tree: ProcessTree, pipes: _Pipes) -> None:
        self._tree = tree
        self._pipes = pipes
        self._unread_stderr = b""
        self._stderr_head = b""
        self._sending = anyio.Lock(fast_acquire=True)

    @property
    def wrapper(self) -> ProcessIdentity:
        return self._tree.wrapper

    @property
    def agent(self) -> ProcessIdentity | None:
        """The agent inside the wrapper; None if it ended before it could be seen."""
        return self._tree.agent

    def writers(self) -> list[ProcessIdentity]:
        """Return the processes that may write the output: the agent and those descendants that share its stdout.

        If the agent is a launcher, the program that it started is the last one. Empty if none can be examined.
        """
        if self.agent is None or self._pipes.stdout.closed:
            return []
        stdout = f"pipe:[{os.fstat(self._pipes.stdout.fileno()).st_ino}]"
        return find_holders((self.agent.pid, *descendants(self.agent.pid)), stdout=stdout)

    async def receive(self) -> bytes:
        """Return the next bytes of stdout, empty at its end."""
        return await _read(self._pipes.stdout)

    async def receive_err(self) -> bytes:
        """Return the next bytes of stderr, empty at its end."""
        chunk, self._unread_stderr = self._unread_stderr, b""
        chunk = chunk or await _read(self._pipes.stderr)
        self._stderr_head += chunk[: _HEAD_BYTES - len(self._stderr_head)]
        return chunk

    async def send(self, data: bytes) -> None:
        """Write all of `data` to stdin. Raises HangupError if stdin is closed on either side.

        Cancelling a send may leave a partial message in the pipe. The process must not be sent anything after that.
        """
        stdin = self._pipes.stdin
        async with self._sending:
            rest = memoryview(data)
            while rest:
                if stdin.closed:
                    raise HangupError("peer.hangup", "the agent's stdin is closed")
                try:
                    rest = rest[os.write(stdin.fileno(), rest) :]
                except BlockingIOError:
                    with suppress(anyio.ClosedResourceError):
                        await anyio.wait_writable(stdin)
                except BrokenPipeError as error:
                    raise HangupError("peer.hangup", "the agent no longer reads its stdin") from error

    async def close_stdin(self) -> None:
        _close(self._pipes.stdin)

    async def wait(self, *, deadline_s: float) -> ExitStatus | None:
        """Wait at most `deadline_s` seconds for the process itself to end. Return None if it still runs then.

        Does not wait for other processes of the tree or for the pipes, which may still hold bytes.
        """
        return await self._tree.wait(deadline_s=deadline_s)

    async def stop(self) -> ExitStatus:
        """Stop the whole tree in bounded time: close stdin, then send SIGTERM to the agent, then SIGKILL to all."""
        _close(self._pipes.stdin)
        return await self._tree.stop()

    def find_failed_start(self) -> MachineError | None:
        """Return the error if the wrapper ended without having run the agent, so that it does not look like one."""
        ended = self._tree.exit
        if self._tree.agent is not None or ended is None or ended.code not in _FAILED_START:
            return None
        if not self._stderr_head:
            with suppress(BlockingIOError):
                self._unread_stderr = os.read(self._pipes.stderr.fileno(), _CHUNK_BYTES)
        head = self._stderr_head or self._unread_stderr
        first_line = head.decode(errors="replace").partition("\n")[0]
        # unshare mentions "sigprocmask" when its child was killed. In that case the agent did start.
        is_wrappers = first_line.startswith(WRAPPERS) and "sigprocmask" not in first_line
        return MachineError("machine.spawn-failed", first_line) if is_wrappers else None


@asynccontextmanager
async def open_process(
    plan: LaunchPlan, *, intents: IntentLog, deadlines: StopDeadlines | None = None
) -> AsyncIterator[AgentProcess]:
    """Start a process, and stop its whole tree on leaving the block, however the block ends.

    Raises MachineError if the process cannot be started or its wrapper fails to set up the containment. If the wrapper
    fails only after a while, that is raised when the block is left, also instead of the block's own exception.
    """
    intent = intents.declare(plan.marker, argv=plan.bare_argv, cgroup=plan.cgroup)
    try:
        if plan.cgroup is not None:
            cgroup.make(plan.cgroup)
        tree, pipes = _spawn(plan, deadlines=deadlines or StopDeadlines())
    except MachineError:
        if plan.cgroup is not None:
            cgroup.remove(plan.cgroup)
        intents.settle(plan.marker)
        raise
    process = AgentProcess(tree, pipes)
    try:
        async with _stopped_at_end(process, tree):
            await tree.wait_for_agent()
            intents.identify(intent, wrapper=tree.wrapper, agent=tree.agent)
            _refuse_failed_start(process)
            yield process
        _refuse_failed_start(process)
    except MachineError:
        raise
    except Exception:
        _refuse_failed_start(process)
        raise
    finally:
        tree.release()
        for pipe in pipes:
            _close(pipe)
        if tree.is_gone:
            intents.settle(plan.marker)


@asynccontextmanager
async def _stopped_at_end(process: AgentProcess, tree: ProcessTree) -> AsyncIterator[None]:
    try:
        yield
    finally:
        try:
            # Shielded so that a cancelled caller cannot leak the tree; every wait inside is bounded.
            with anyio.CancelScope(shield=True):
                await process.stop()
        except BaseException:
            # Task.cancel(), which Ctrl-C causes, is not stopped by the shield.
            tree.kill_now()
            raise


def _refuse_failed_start(process: AgentProcess) -> None:
    if (failure := process.find_failed_start()) is not None:
        raise failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """The result of a process that ended or reached its deadline."""

    exit: ExitStatus | None
    """How it ended; None if it was stopped at the deadline."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    stdout_cut: bool
    """Whether `stdout` is only the beginning of what was written."""
    stderr_cut: bool
    """Whether `stderr` is only the beginning of what was written."""


async def run_once(
    plan: LaunchPlan,
    *,
    intents: IntentLog,
    timeout_s: float,
    max_output_bytes: int,
    stdin: bytes = b"",
    stdout_to: Callable[[bytes], None] | None = None,
) -> ProcessResult:
    """Run a process until it ends or `timeout_s` seconds have passed, then kill what is left of its tree.

    Keeps the first `max_output_bytes` of stdout and of stderr. `stdout_to` receives all of stdout as it is read, and
    must return soon. Raises MachineError as `open_process` does, and if the
    process was not started within that time.
    """
    until = anyio.current_time() + timeout_s
    stdout, stderr = _Head(max_output_bytes, also_to=stdout_to), _Head(max_output_bytes)
    # Processes that still run at the deadline are killed at once.
    deadlines = StopDeadlines(appear_s=min(timeout_s, _APPEAR_S), eof_s=0, term_s=0)
    async with open_process(plan, intents=intents, deadlines=deadlines) as process, anyio.create_task_group() as pumps:
        pumps.start_soon(stdout.drain, process.receive)
        pumps.start_soon(stderr.drain, process.receive_err)
        pumps.start_soon(_feed, process, stdin)
        exit_status = await _wait_in_steps(process, timeout_s=until - anyio.current_time())
        await process.stop()
        # The tree has ended, so the pipes are at their end, unless one was passed to a process outside the tree.
        pumps.cancel_scope.deadline = anyio.current_time() + _DRAIN_S
    if exit_status is None and process.agent is None:
        what = f"the containment did not start {plan.bare_argv[0]} within {timeout_s:g} s"
        raise MachineError("machine.spawn-failed", what)
    return ProcessResult(
        exit=exit_status,
        stdout=bytes(stdout.data),
        stderr=bytes(stderr.data),
        timed_out=exit_status is None,
        stdout_cut=stdout.is_cut,
        stderr_cut=stderr.is_cut,
    )


async def _wait_in_steps(process: AgentProcess, *, timeout_s: float) -> ExitStatus | None:
    """Wait for the end of a process in short steps. Time in which Proctor does not run lengthens a step uncounted."""
    exit_status = None
    while exit_status is None and timeout_s > 0:
        exit_status = await process.wait(deadline_s=min(timeout_s, _STEP_S))
        timeout_s -= _STEP_S
    return exit_status


class _Head:
    """The first bytes of a stream. The rest is read and dropped, so that the writer never blocks."""

    def __init__(self, limit_bytes: int, *, also_to: Callable[[bytes], None] | None = None) -> None:
        self.data = bytearray()
        self._also_to = also_to
        self.is_cut = False
        self._limit_bytes = limit_bytes

    async def drain(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        while chunk := await receive():
            room = self._limit_bytes - len(self.data)
            self.data += chunk[:room]
            self.is_cut = self.is_cut or len(chunk) > room
            if self._also_to is not None:
                self._also_to(chunk)


async def _feed(process: AgentProcess, stdin: bytes) -> None:
    # A program may end without reading its input.
    with suppress(HangupError):
        await process.send(stdin)
    await process.close_stdin()


def _spawn(plan: LaunchPlan, *, deadlines: StopDeadlines) -> tuple[ProcessTree, _Pipes]:
    _keep_exit_statuses()
    # On the event loop's thread, which outlives the block: the death signal fires when the spawning *thread* ends.
    try:
        with _default_signals():
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
        what = f"cannot start {plan.bare_argv[0]} in {plan.cwd}: {error.strerror}"
        raise MachineError("machine.spawn-failed", what) from error
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    pipes = _Pipes(popen.stdin, popen.stdout, popen.stderr)
    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)
    try:
        return ProcessTree(popen, plan=plan, deadlines=deadlines), pipes
    except OSError as error:
        with popen:
            popen.kill()
        what = f"cannot watch the process of {plan.bare_argv[0]}: {error.strerror}"
        raise MachineError("machine.spawn-failed", what) from error


def _keep_exit_statuses() -> None:
    """Undo an ignored SIGCHLD, with which the kernel discards exit statuses and Popen reports success for every one."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except ValueError as error:
            what = "SIGCHLD is ignored, so exit statuses are lost, and only the main thread can change that"
            raise MachineError("machine.spawn-failed", what) from error


@contextmanager
def _default_signals() -> Iterator[None]:
    """Give a process started in the block the default action for the signals that are ignored here.

    Signals are ignored under nohup, by cron and by shells for their background jobs. An executed program inherits that,
    but no handler. So while the process is started, a handler that does nothing ignores them in their place: no signal
    reaches Proctor that did not before. Handlers can be set on the main thread only.
    """
    is_possible = threading.current_thread() is threading.main_thread()
    # Python ignores SIGPIPE and SIGXFSZ itself, and Popen resets them.
    candidates = signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ} if is_possible else ()
    ignored = [number for number in candidates if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(_: int, __: FrameType | None) -> None:
    pass


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
