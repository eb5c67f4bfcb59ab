"""The part of a report that is equal for campaigns with the same results."""

from typing import Any

# Identity, files, times and the attempts that do not count differ between campaigns.
_OWN = {"campaignId", "specFile", "specDigest", "planDigest", "name", "runs", "effort", "attempts"}


def but_for_times(value: Any) -> Any:
    """Return a report without the fields that differ between runs.

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
