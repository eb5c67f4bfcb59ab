"""Convert a command of a spec to argv. Pure."""


def argv_of(command: list[str] | str) -> tuple[str, ...]:
    """Return the argv of a command. A string is run with `bash -c`, so that `&&` and pipes work.

    >>> argv_of("make db && ls"), argv_of(["make", "db"])
    (('bash', '-c', 'make db && ls'), ('make', 'db'))
    """
    return ("bash", "-c", command) if isinstance(command, str) else tuple(command)
