"""The journals of scripted models that something else opens, such as a session, a pool or a campaign."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from proctor.model.journal import RECORDER, Journal, JournalItem, JournalRecorder

TEXT_BYTES: Final = 16 * 1024 * 1024


@contextmanager
def recorded_journals(*, text_bytes: int = TEXT_BYTES) -> Iterator[list[Journal]]:
    """Yield a list that receives the journal of every script that is played while the block runs, in order.

    ```
    with recorded_journals() as journals:
        async with proctor.session(script=steps) as session:
            await session.say("Hello?")
    assert journals[0].rows[-1].texts[-1] == "Hello?"
    ```

    Each session and each attempt plays one script; `Journal.key` is its attempt id. A journal can also be read after
    its session ended. The block covers scripted models that are opened inside it, by the same task or by tasks and
    threads that inherit its context. Each journal keeps `text_bytes` bytes of whole texts.
    """
    recorder = JournalRecorder(text_bytes=text_bytes)
    token = RECORDER.set(recorder)
    try:
        yield recorder.journals
    finally:
        RECORDER.reset(token)


def request_items(journals: Sequence[Journal]) -> list[tuple[JournalItem, ...]]:
    """Return the items of each request for a reply, script by script, and oldest first within a script."""
    return [row.items for journal in journals for row in journal.rows if row.digest is not None]
