"""The same folders and laboratory as the tests have."""

from tests.conftest import _own_folders, lab

__all__ = ["_own_folders", "lab"]
