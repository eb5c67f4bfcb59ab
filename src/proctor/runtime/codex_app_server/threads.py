"""Which session owns a thread. A thread is bound when its first frame arrives, and never rebound by mistake."""

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
        # Threads without an owner, which `bind` must not give to a new one.
        self._past: set[str] = set()

    def owner(self, thread: str) -> Owner | None:
        return self._owners.get(thread)

    def bind(self, thread: str | None, owner: Owner | None) -> None:
        """Bind a thread on its first frame. Without an owner it stays unowned unless it is claimed."""
        if thread is None or thread in self._owners:
            return
        if owner is None:
            self._past.add(thread)
        elif thread not in self._past:
            self._owners[thread] = owner

    def claim(self, thread: str, owner: Owner) -> bool:
        """Bind a thread whose id is known in advance. Return False if it already has an owner."""
        if thread in self._owners:
            return False
        self._owners[thread] = owner
        return True

    def of(self, owner: Owner) -> list[str]:
        """Return the owner's thread, and the threads that its agent started."""
        return [thread for thread, each in self._owners.items() if each is owner]

    def forget(self, owner: Owner) -> None:
        for thread in self.of(owner):
            del self._owners[thread]
            self._past.add(thread)

    def owners(self) -> list[Owner]:
        """Return each owner once."""
        return list({id(owner): owner for owner in self._owners.values()}.values())
