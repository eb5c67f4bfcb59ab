"""The refusal of a word that could mean more than one thing."""

from collections.abc import Sequence

from proctor.errors import InputError


class AmbiguousError(InputError):
    """`names` are what could have been meant, each of which means one thing, the latest first."""

    def __init__(self, word: str, names: Sequence[str], *, kind: str) -> None:
        super().__init__("evidence.ambiguous", f"{word!r} may mean {len(names)} {kind}s", suggestion=names[0])
        self.word = word
        self.names = tuple(names)
