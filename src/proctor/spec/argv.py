"""The argv of a command as a spec writes it. Pure."""


def argv_of(command: list[str] | str) -> tuple[str, ...]:
    """A list is argv; a text is for a real shell: split into words, `echo a && false` would print its own `&&`.

    >>> argv_of("make db && ls"), argv_of(["make", "db"])
    (('bash', '-c', 'make db && ls'), ('make', 'db'))
    """
    return ("bash", "-c", command) if isinstance(command, str) else tuple(command)
