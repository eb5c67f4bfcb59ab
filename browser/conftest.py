"""The same folders as the tests have."""

from tests.conftest import _own_folders

__all__ = ["_own_folders"]
