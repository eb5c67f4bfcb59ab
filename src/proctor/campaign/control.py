"""The control socket of a running campaign: an operator cancels one attempt through it."""

import os
import pwd
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.abc
import msgspec

from proctor import canonical, decoding, places
from proctor.campaign.stops import StopSignals
from proctor.contain.identity import is_spawned_by
from proctor.contain.intent import CONTROL_SUFFIX, owner_folders
from proctor.errors import InputError, MachineError, unwrap_single
from proctor.event.row import CancelRequested, Operator
from proctor.evidence.layout import CampaignPaths
from proctor.ids import AttemptId

MAX_REQUEST_BYTES: Final = 16 * 1024
REQUEST_S: Final = 2.0
"""How long the campaign waits for a request, in seconds."""
ANSWER_S: Final = 10.0
"""How long the operator waits for the answer, in seconds."""

Refusal = Literal["invalid", "spawned", "over"]
"""`invalid`: not a request. `spawned`: it comes from a process of the campaign. `over`: the attempt is not running, or
its turn has ended."""


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator sends."""

    attempt: AttemptId
    reason: str | None = None


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the campaign answers: why it refuses, or None if the attempt is being stopped."""

    refusal: Refusal | None


# ── the campaign's side ──


@asynccontextmanager
async def open_control(folder: Path, campaign: CampaignPaths, stops: StopSignals) -> AsyncIterator[None]:
    """Answer requests while the block runs, on a socket in the folder of this process's spawn intents.

    The reaper removes what a killed process leaves in that folder. Without a socket the campaign runs all the same.
    """
    try:
        held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through the descriptor, because the path of a socket is limited to 107 bytes.
            listener = await anyio.create_unix_listener(f"/proc/self/fd/{held}/{_socket_name(campaign)}", mode=0o600)
        finally:
            os.close(held)
    except OSError:
        yield
        return
    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(_serve, listener, stops)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise unwrap_single(group) from group
    finally:
        with suppress(OSError):
            (folder / _socket_name(campaign)).unlink()


async def _serve(listener: anyio.abc.SocketListener, stops: StopSignals) -> None:
    # One at a time: a silent connection delays other operators of the same user by REQUEST_S.
    with suppress(OSError):
        while True:
            async with await listener.accept() as stream:
                with (
                    anyio.move_on_after(REQUEST_S),
                    suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError),
                ):
                    await _answer(stream, stops)


async def _answer(stream: anyio.abc.SocketStream, stops: StopSignals) -> None:
    data = bytearray()
    with suppress(anyio.EndOfStream):
        while len(data) <= MAX_REQUEST_BYTES:
            data += await stream.receive()
    operator = _operator(stream.extra_attributes[anyio.abc.SocketAttribute.raw_socket]())
    refusal = _decide(bytes(data), operator, stops)
    await stream.send(msgspec.json.encode(CancelAnswer(refusal=refusal)))


def _decide(data: bytes, operator: Operator, stops: StopSignals) -> Refusal | None:
    try:
        request = decoding.decode(data, CancelRequest)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "invalid"
    # An agent must not be able to leave its verdict, or that of its neighbours, by cancelling.
    if is_spawned_by(os.getpid(), pid=operator.pid):
        return "spawned"
    cause = CancelRequested(why=request.reason or "no reason given", by=operator)
    return None if stops.cancel(request.attempt, cause) else "over"


def _operator(connection: socket.socket) -> Operator:
    """Return who is at the other end, as the kernel says (SO_PEERCRED, unix(7))."""
    layout = struct.Struct("3i")
    pid, uid, _ = layout.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = None
    return Operator(user=user, uid=uid, pid=pid)


# ── the operator's side ──


def request_cancel(campaign: CampaignPaths, *, pid: int, request: CancelRequest) -> CancelAnswer:
    """Ask the process that runs the campaign to cancel an attempt, and return its answer.

    Raises InputError if the process has no control socket, and MachineError if it does not answer.
    """
    name = _socket_name(campaign)
    spawns = places.spawns_dir()
    folders = [each for each in owner_folders(spawns) if each.name.startswith(f"{pid}-") and (each / name).exists()]
    if not folders:
        what = f"{campaign.folder.name} is run by process {pid}, which has no control socket in {spawns}"
        raise InputError(
            "campaign.not-running", what, suggestion="Use the same XDG_STATE_HOME as the process that runs it."
        )
    try:
        held = os.open(folders[0], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError("campaign.not-running", f"{campaign.folder.name} has just ended") from error
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(f"/proc/self/fd/{held}/{name}")
            connection.sendall(msgspec.json.encode(request))
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answer:
                return decoding.decode(answer.read(), CancelAnswer)
    except (OSError, msgspec.DecodeError) as error:
        what = f"process {pid}, which runs {campaign.folder.name}, does not answer: {error}"
        raise MachineError("campaign.silent", what) from error
    finally:
        os.close(held)


def _socket_name(campaign: CampaignPaths) -> str:
    digest = canonical.digest_bytes(os.fsencode(campaign.folder.resolve()))
    return f"{digest.partition(':')[2][:16]}{CONTROL_SUFFIX}"
