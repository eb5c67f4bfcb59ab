"""Decoding on several threads at once."""

import subprocess
import sys

import pytest

# msgspec evaluates the annotation of `Inner` while it prepares `Outer`. The first thread stays there for a moment, in
# which the second one decodes: it must wait for the first. Without the lock, this process dies with SIGSEGV.
_TWO_THREADS = """
import threading
import msgspec
from proctor import decoding

half_prepared, never = threading.Event(), threading.Event()

def integer():
    half_prepared.set()
    never.wait(0.5)
    return int

class Inner(msgspec.Struct):
    value: "integer()"

class Outer(msgspec.Struct):
    inner: Inner

def first():
    decoding.decode(b'{"inner": {"value": 1}}', Outer)

thread = threading.Thread(target=first)
thread.start()
assert half_prepared.wait(10)
print(USE)
thread.join()
"""


@pytest.mark.proctor_process
@pytest.mark.parametrize(
    "use",
    ["""decoding.decode(b'{"inner": {"value": 2}}', Outer)""", """decoding.convert({"inner": {"value": 2}}, Outer)"""],
)
def test_type_can_be_used_first_by_two_threads_at_once(use: str) -> None:
    code = _TWO_THREADS.replace("USE", use)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "Outer(inner=Inner(value=2))\n"), done.stderr
