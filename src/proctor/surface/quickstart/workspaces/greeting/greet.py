"""Greets Ada, or should."""


def greet(name: str) -> str:
    return "Hello, world"


print(greet("Ada"))
