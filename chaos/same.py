"""What two reports have in common when their campaigns came to the same."""

from typing import Any

# Which campaign it is and of which files, when it was tried and how often: another's own.
_OWN = {"campaignId", "specFile", "specDigest", "planDigest", "name", "runs", "effort"}


def but_for_times(value: Any) -> Any:
    """What a report says of results, and nothing of which run they are of.

    >>> but_for_times({"campaignId": "a", "score": {"passed": 1, "toolMs": 3}, "runs": [1]})
    {'score': {'passed': 1}}
    """
    match value:
        case dict():
            return {
                key: but_for_times(each) for key, each in value.items() if key not in _OWN and not key.endswith("Ms")
            }
        case list():
            return [but_for_times(each) for each in value]
        case _:
            return value
