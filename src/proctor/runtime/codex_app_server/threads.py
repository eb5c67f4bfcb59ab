"""Whose thread is it? Bound when it is first heard of, and never anybody else's by mistake."""

from typing import Generic, TypeVar

Owner = TypeVar("Owner")


class Threads(Generic[Owner]):
    """Threads and their owners.

    >>> threads = Threads[str]()
    >>> threads.bind("t", "ada")
    >>> threads.bind("t", "bob")
    >>> threads.owner("t")
    'ada'
    """

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        # Threads that are nobody's any more, so that no newcomer is taken for their owner.
        self._past: set[str] = set()

    def owner(self, thread: str) -> Owner | None:
        return self._owners.get(thread)

    def bind(self, thread: str | None, owner: Owner | None) -> None:
        """A thread is heard of; with no owner it is nobody's for good, unless it is claimed."""
        if thread is None or thread in self._owners:
            return
        if owner is None:
            self._past.add(thread)
        elif thread not in self._past:
            self._owners[thread] = owner

    def claim(self, thread: str, owner: Owner) -> bool:
        """Take up a thread that is known by name. False where somebody has it."""
        if thread in self._owners:
            return False
        self._owners[thread] = owner
        return True

    def of(self, owner: Owner) -> list[str]:
        """Its own thread, and those that its agent started."""
        return [thread for thread, each in self._owners.items() if each is owner]

    def forget(self, owner: Owner) -> None:
        for thread in self.of(owner):
            del self._owners[thread]
            self._past.add(thread)

    def owners(self) -> list[Owner]:
        """Everyone once, though they may have more than one thread."""
        return list({id(owner): owner for owner in self._owners.values()}.values())
