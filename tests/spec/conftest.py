"""What the tests of specs share."""

from collections.abc import Callable
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
