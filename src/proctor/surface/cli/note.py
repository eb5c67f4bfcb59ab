"""`proctor note`."""

from proctor.protocol.hand_in import Note
from proctor.surface.cli.command import Command, argument
from proctor.surface.cli.feedback import hand_in


def note(*, text: str) -> int:
    """Record a note in the transcript, from inside an attempt.

    Works only in a command that an attempt runs. Exits 0 once the note is recorded, 2 if it is
    refused, 3 outside of an attempt.
    """
    return hand_in(Note(text=text))


COMMANDS = {
    "note": Command(
        call=note,
        example='proctor note "the tests pass, the lint does not yet"',
        arguments=(argument("text", metavar="TEXT", help="The note."),),
    )
}
