"""How a case of a suite says that it did not pass, or could not be run."""


class UnprovenError(Exception):
    """The case ran and did not pass."""


class NotApplicableError(Exception):
    """The case cannot be run on this subject."""


def must(condition: bool, message: str) -> None:
    """Raise UnprovenError with the message unless the condition is true."""
    if not condition:
        raise UnprovenError(message)
