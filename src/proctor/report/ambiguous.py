"""The error for a name that matches more than one campaign or attempt."""

from collections.abc import Sequence

from proctor.errors import InputError


class AmbiguousError(InputError):
    """Raised if a word matches several campaigns or attempts. `names` are their unambiguous names, the latest first."""

    def __init__(self, word: str, names: Sequence[str], *, kind: str) -> None:
        super().__init__("evidence.ambiguous", f"{word!r} matches {len(names)} {kind}s", suggestion=names[0])
        self.word = word
        self.names = tuple(names)
