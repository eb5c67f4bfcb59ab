"""`proctor note`."""

from proctor.errors import Exit
from proctor.protocol.hand_in import Note
from proctor.surface.cli.command import JSON, Command, argument
from proctor.surface.cli.feedback import hand_in
from proctor.surface.cli.output import Output


def note(*, text: str, as_json: bool) -> int:
    """Record a note in the transcript, from inside an attempt.

    Works only in a command that an attempt runs. Exits 0 once the note is recorded, 2 if it is
    refused, 3 outside of an attempt.
    """
    output, message = Output(is_json=as_json), Note(text=text)
    hand_in(message)
    if as_json:
        output.json({"recorded": True, "text": message.text})
    return Exit.OK


COMMANDS = {
    "note": Command(
        call=note,
        example='proctor note "the tests pass, the lint does not yet"',
        arguments=(argument("text", metavar="TEXT", help="The note."), JSON),
    )
}
