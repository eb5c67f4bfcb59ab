"""What the tests of specs share."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from proctor.errors import CollectedInputError, InputError

Told: TypeAlias = tuple[str, int | None, str | None, str, str | None]


@pytest.fixture
def told() -> Callable[[Callable[[], object]], list[Told]]:
    """All that the action is refused for, as (code, line, key, what, suggestion)."""

    def ask(action: Callable[[], object]) -> list[Told]:
        with pytest.raises(InputError) as caught:
            action()
        error = caught.value
        each = error.errors if isinstance(error, CollectedInputError) else (error,)
        return [(one.code, one.line, one.key, one.what, one.suggestion) for one in each]

    return ask


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.py").write_text("print('no')\n")
    (tmp_path / "say.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    return tmp_path
