"""`proctor feedback`: what a command that an attempt runs claims of its task, on record when this returns."""

import os
import socket

import msgspec

from proctor.errors import Exit, InputError, MachineError
from proctor.protocol.hand_in import FEEDBACK_VARIABLE, MAX_MESSAGE_BYTES, Feedback, Note, Receipt
from proctor.surface.cli.command import Command, argument

ANSWER_S = 30.0


def feedback(*, is_done: bool | None, answer: str | None, result: str | None) -> int:
    """Claim how the task went, from the command that an attempt runs; the last claim counts.

    A claim is not a fact: only probes verify. It is on record when this command ends with 0.
    """
    if is_done is None:
        raise InputError("usage", "say --ok or --fail", suggestion="proctor feedback --help")
    try:
        given = None if result is None else msgspec.json.decode(result.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InputError("usage", f"--json: {error}") from error
    return hand_in(Feedback(done=is_done, answer=answer, result=given))


def hand_in(message: Feedback | Note) -> int:
    """InputError where it is refused, MachineError where there is nobody to take it."""
    place = os.environ.get(FEEDBACK_VARIABLE)
    if not place:
        raise MachineError("run.no-attempt", f"{FEEDBACK_VARIABLE} is not set")
    data = msgspec.json.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise InputError("usage", f"over {MAX_MESSAGE_BYTES} bytes")
    folder, name = os.path.split(place)
    try:
        # From beside it: the path of a socket may have 107 bytes, and this one may be longer.
        os.chdir(folder or ".")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(name)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answer:
                receipt = msgspec.json.decode(answer.read(), type=Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise MachineError("run.no-attempt", f"{place}: {error}") from error
    if not receipt.ok:
        raise InputError("usage", f"refused: {receipt.what}")
    return Exit.OK


COMMANDS = {
    "feedback": Command(
        call=feedback,
        example='proctor feedback --ok --answer "4"',
        arguments=(
            argument("--ok", dest="is_done", action="store_const", const=True, default=None, help="The task is done."),
            argument("--fail", dest="is_done", action="store_const", const=False, help="The task could not be done."),
            argument("--answer", metavar="TEXT", default=None, help="The answer in a few words."),
            argument("--json", dest="result", metavar="RESULT", default=None, help="A result, as a JSON value."),
        ),
    )
}
