"""`proctor feedback`, and how it and `proctor note` send a message to the attempt that they run in."""

import os
import socket

import msgspec

from proctor import decoding
from proctor.errors import Exit, InputError, MachineError
from proctor.protocol.hand_in import FEEDBACK_VARIABLE, MAX_MESSAGE_BYTES, Feedback, Note, Receipt
from proctor.surface.cli.command import Command, argument

ANSWER_S = 30.0


def feedback(*, is_done: bool | None, answer: str | None, result: str | None) -> int:
    """Report whether the task is done, from inside an attempt.

    Works only in a command that an attempt runs. The report is recorded as the agent's claim; only
    probes verify it. If it is sent several times, the last claim counts. Exits 0 once the claim is
    recorded, 2 if it is refused, 3 outside of an attempt.
    """
    if is_done is None:
        raise InputError("usage", "--ok or --fail is required", suggestion="proctor feedback --help")
    try:
        given = None if result is None else decoding.decode(result.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError("usage", f"--json: {error}") from error
    hand_in(Feedback(done=is_done, answer=answer, result=given))
    return Exit.OK


def hand_in(message: Feedback | Note) -> None:
    """Send a message to the attempt that this process runs in, and return once it is recorded.

    Raises InputError if it is refused, and MachineError if no attempt receives it.
    """
    path = os.environ.get(FEEDBACK_VARIABLE)
    if not path:
        raise MachineError("run.no-attempt", f"{FEEDBACK_VARIABLE} is not set")
    data = msgspec.json.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise InputError("usage", f"the message has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
    folder, name = os.path.split(path)
    try:
        # By its name alone: a socket's path is limited to 107 bytes, and this one may be longer.
        os.chdir(folder or ".")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(name)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answer:
                receipt = decoding.decode(answer.read(), Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise MachineError("run.no-attempt", f"{path}: {error}") from error
    if not receipt.ok:
        raise InputError("usage", f"refused: {receipt.what}")


COMMANDS = {
    "feedback": Command(
        call=feedback,
        example='proctor feedback --ok --answer "4"',
        arguments=(
            argument("--ok", dest="is_done", action="store_const", const=True, default=None, help="The task is done."),
            argument("--fail", dest="is_done", action="store_const", const=False, help="The task could not be done."),
            argument("--answer", metavar="TEXT", default=None, help="The answer, in a few words."),
            argument("--json", dest="result", metavar="RESULT", default=None, help="The result, as a JSON value."),
        ),
    )
}
