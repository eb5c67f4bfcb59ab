"""The fixtures that the tests in `tests/` use."""

from tests.conftest import _own_folders, lab

__all__ = ["_own_folders", "lab"]
