"""What a campaign says of expectations, hooks, durations and limits is checked before anything runs, line by line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from proctor.spec.load import load_spec
from tests.spec.good import write

Told: TypeAlias = Callable[[Callable[[], object]], list[Any]]

SPEC = """\
version: 1
campaign: night
missions:
  - id: a
    prompt: A
    script: say.yaml
    expect:
      matches: ^4
      result: {has: [/a], non_empty: [/a]}
      trace: {max_failures: 0}
      workspace: {changed: [src/*.py], only: []}
    hooks: {before: [ls], timeout: 5s}
flows: [{id: native, runtime: [one]}]
limits: {mission: 1h, campaign: 8h}
schedule: {runtimes: {one: 2}, providers: {scripted: 1}, start_interval: 1s, backoff: 1s, longest_wait: 1h}
hooks: {after: ls, timeout: 1m}
"""
NO_DURATION = "`soon` is not a duration: write it like 90s, 2m, 500ms or 1h"


def test_all_of_it_may_be_said(folder: Path) -> None:
    assert [each.id for each in load_spec(write(folder, SPEC)).missions] == ["a"]


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "what"),
    [
        ("matches: ^4", "matches: (", 8, "missions[0].expect.matches", "`(` is not a valid RE2 pattern: missing ): ("),
        ("has: [/a]", "has: [a]", 9, "missions[0].expect.result.has[0]", "`a` is not a JSON pointer"),
        ("has: [/a]", "has: [/a~]", 9, "missions[0].expect.result.has[0]", "`/a~` is not a JSON pointer"),
        (
            "{max_failures: 0}",
            "{}",
            10,
            "missions[0].expect.trace",
            "`trace` is empty, so it checks nothing",
        ),
        (
            "{max_failures: 0}",
            "{max_failures: -1}",
            10,
            "missions[0].expect.trace.max_failures",
            "expected an integer >= 0, found -1",
        ),
        (
            "[src/*.py]",
            "[/src/*.py]",
            11,
            "missions[0].expect.workspace.changed[0]",
            "`/src/*.py` is not a path inside the workspace, such as `src/*.py`",
        ),
        (
            "only: []",
            "only: [../*]",
            11,
            "missions[0].expect.workspace.only[0]",
            "`../*` is not a path inside the workspace, such as `src/*.py`",
        ),
        (
            "only: []",
            'only: ["[z-a]"]',
            11,
            "missions[0].expect.workspace.only[0]",
            "`[z-a]` is not a valid glob: in `[z-a]` z comes after a",
        ),
        (
            "only: []",
            'untouched: ["a[!]"]',
            11,
            "missions[0].expect.workspace.untouched[0]",
            "`a[!]` is not a valid glob: `[!]` contains no character",
        ),
        ("timeout: 5s", "timeout: soon", 12, "missions[0].hooks.timeout", NO_DURATION),
        ("mission: 1h", "mission: soon", 14, "limits.mission", NO_DURATION),
        ("campaign: 8h", "campaign: soon", 14, "limits.campaign", NO_DURATION),
        ("runtimes: {one: 2}", "runtimes: {on: 2}", 15, "schedule.runtimes.on", "no flow uses `on`"),
        ("{scripted: 1}", "{openai: 1}", 15, "schedule.providers.openai", "no flow uses `openai`"),
        ("start_interval: 1s", "start_interval: soon", 15, "schedule.start_interval", NO_DURATION),
        ("backoff: 1s", "backoff: soon", 15, "schedule.backoff", NO_DURATION),
        ("longest_wait: 1h", "longest_wait: soon", 15, "schedule.longest_wait", NO_DURATION),
        ("timeout: 1m", "timeout: soon", 16, "hooks.timeout", NO_DURATION),
    ],
)
def test_what_is_wrong_is_told_at_its_line(
    folder: Path, told: Told, old: str, new: str, line: int, key: str, what: str
) -> None:
    found = told(lambda: load_spec(write(folder, SPEC.replace(old, new))))
    assert [(each[1], each[2], each[3]) for each in found] == [(line, key, what)]
