"""The reference cases of context engines, each by the tests of this folder that show it.

The numbers are those of the list of cases; 28, subagents, is not built. The letters are defects of the engine that
the contract grew from, which were reproduced there.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
CASES = {
    1: "equal inputs give equal bytes, also with other orders of keys, hash seeds and line ends",
    2: "nothing in a message leaves its quote, and what is rendered is parsed again",
    3: "only whole messages are dropped, a call with its result, and the newest question last",
    4: "results are left out in every shape",
    5: "the prompt is dropped by its id, and an equal text with another id stays",
    6: "an empty history gives the prompt verbatim",
    7: "the request is never cut",
    8: "an addition is in the developer text only",
    9: "the lifecycle has one order",
    10: "a turn that did not complete is neither committed nor maintained",
    11: "a turn that the mirror cannot take is committed, and its repair is a duplicate",
    12: "a kill between any two steps commits each completed turn once",
    13: "a commit that fails three times is an audit row, and the policy decides what follows",
    14: "a known key with other messages is an error",
    15: "an assembly that raises, hangs or is wrong is up to the policy",
    16: "cancelling is no failure",
    17: "quarantine applies to assembly and compaction alike",
    18: "a new epoch, policy or catalog of tools starts a thread, and a growing tail does not",
    19: "an overflow is retried once on a new thread, and the binding says nothing that was not sent",
    20: "a native compaction removes what the thread lost, and a refused one nothing",
    21: "the owning engine's compaction is primary, and the agent's failure a detail",
    22: "a successor in another session is refused",
    23: "a hook that fails after a commit undoes nothing",
    24: "a reset clears the binding in one transaction, and a stale holder clears nothing",
    25: "a thread that is gone is replaced",
    26: "tokens of the agent's own prompt are not compactable, and compaction ends",
    27: "one maintenance runs at a time, and a stuck one is bounded",
    29: "what follows web content is tainted",
    30: "a row that Proctor writes is never the last entry of a turn",
}
DEFECTS = {
    "a: quoted history can close its quote": "test_text.py::test_case_2_a_forged_frame_stays_in_its_quote",
    "b: the order of keys reaches the text": "test_text.py::test_case_1_order_of_keys_does_not_change_a_quote",
    "c: results in one of two shapes are not left out": "test_text.py::test_case_4_results_are_left_out_in_every_shape",
    "d: a cut leaves text without its speaker": "test_project.py::test_case_3_whole_messages_are_dropped_and_named",
    "e: forged lines look like another speaker's": (
        "test_text.py::test_case_2_every_line_but_the_headers_has_the_prefix"
    ),
    "f: an equal prompt is repeated or lost": "test_project.py::test_case_5_an_equal_text_with_another_id_is_kept",
    "g: a marker ends a turn that is then never committed": (
        "test_engine_cases.py::test_case_30_row_that_proctor_writes_is_never_the_last_entry_of_a_turn"
    ),
    "h: a new thread counts as given what it was not": (
        "test_engine_cases.py::test_case_25_thread_that_is_gone_is_replaced_with_everything_in_it"
    ),
}


@cache
def numbered_tests() -> dict[int, set[str]]:
    """The tests of this folder that begin with the number of a case."""
    found: dict[int, set[str]] = defaultdict(set)
    for file in FOLDER.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and (match := re.match(r"test_case_(\d+)_", node.name)):
                found[int(match[1])].add(f"{file.relative_to(FOLDER)}::{node.name}")
    return found


def test_reference_cases_are_numbered_without_a_gap_but_28() -> None:
    assert {*CASES} == {*range(1, 31)} - {28}
    assert {*numbered_tests()} == {*CASES}, "a case has no test, or a test no case"


@pytest.mark.parametrize("defect", DEFECTS)
def test_reproduced_defect_has_its_test(defect: str) -> None:
    assert DEFECTS[defect] in set().union(*numbered_tests().values())
