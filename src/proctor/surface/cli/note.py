"""`proctor note`: what a command that an attempt runs wants in the transcript, on record when this returns."""

from proctor.protocol.hand_in import Note
from proctor.surface.cli.command import Command, argument
from proctor.surface.cli.feedback import hand_in


def note(*, text: str) -> int:
    """Put a note into the transcript, from the command that an attempt runs."""
    return hand_in(Note(text=text))


COMMANDS = {
    "note": Command(
        call=note,
        example='proctor note "the tests pass, the lint does not yet"',
        arguments=(argument("text", metavar="TEXT", help="What is to be on record."),),
    )
}
