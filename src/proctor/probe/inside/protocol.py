"""How a program in the fence gets its request and returns its observations: JSON on stdin and stdout."""

# A workspace's Python may run this file, and may be older than Proctor's.
from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_DUMPABLE = 4


def answer(observe: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the request, observe, and write the observations. What else is printed goes to stderr.

    The first line of the request is a random word, with which the answer begins. A product that runs in another process
    cannot read it, and so cannot answer in place of this program.
    """
    # Otherwise the product could read the word, and write to the pipe, through /proc.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # The product inherits no descriptor of the answer.
    out = os.dup(1)
    os.dup2(2, 1)
    word = sys.stdin.buffer.readline()
    request = json.load(sys.stdin.buffer)
    data = json.dumps(observe(request)).encode()
    with os.fdopen(out, "wb") as stream:
        stream.write(word + data)


def text_of(data: bytes) -> str:
    """Return bytes as text that JSON can hold: each character is one byte. Proctor encodes it as Latin-1 again."""
    return data.decode("latin-1")
