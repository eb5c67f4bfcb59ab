"""`approvals: ask` on the command line: a person at a real terminal, the real agent, and nobody at all."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.lab import Lab, jsonl, mission, say_done
from tests.terminal import DEADLINE_S, at_a_terminal


def asking_spec(lab: Lab, *names: str) -> Path:
    missions = [
        mission(name, {"run": {"command": f"echo {name} > made.txt", "escalate": True}}, say_done()) for name in names
    ]
    return lab.write_spec(missions, flow={"approvals": "ask"})


def answers(lab: Lab) -> list[tuple[str, str]]:
    rows = [row for paths in lab.attempts().values() for row in jsonl(paths.transcript)]
    return [(row["text"], row["status"]) for row in rows if row["kind"] == "approval" and row["status"] != "asked"]


@pytest.mark.real_agent
@pytest.mark.requirement("runtime.approvals.answered")
def test_questions_are_shown_plainly_one_at_a_time_and_each_gets_its_own_answer(lab: Lab) -> None:
    with at_a_terminal(lab, "run", str(asking_spec(lab, "one", "two"))) as terminal:
        terminal.type("y\n")  # before there is a question: no answer to any
        first = terminal.wait_for(r"\d+ s left\) ")
        assert first.count("The agent requests approval: command") == 1
        assert re.search(r"  command  /bin/bash -c 'echo (one|two) > made.txt'\n", first)
        assert re.search(r"  in       \S+/workspace\n", first)
        assert "  because  The script asks for it.\n" in first
        terminal.type("what?\n")
        assert "The agent requests" not in terminal.wait_for(r"\d+ s left\) ")
        terminal.type("n\n")
        second = terminal.wait_for(r"\d+ s left\) ")
        assert "denied" in second
        assert second.count("The agent requests approval: command") == 1
        terminal.type("y\n")
        terminal.wait_for("accepted")
        terminal.process.wait(timeout=DEADLINE_S)
    assert sorted(answers(lab)) == [("accept by callback", "accept"), ("decline by callback", "decline")]
    lab.assert_all_evidence_is_valid()


@pytest.mark.real_agent
def test_a_question_that_nobody_answers_goes_with_the_run(lab: Lab) -> None:
    with at_a_terminal(lab, "run", str(asking_spec(lab, "one"))) as terminal:
        terminal.wait_for(r"\d+ s left\) ")
        for number in (signal.SIGTERM, signal.SIGINT):
            terminal.process.send_signal(number)
        assert terminal.process.wait(timeout=DEADLINE_S) == 130
        terminal.wait_for("no answer: denied")
    assert answers(lab) == [("none by cancelled", "none")]
    lab.assert_all_evidence_is_valid()


def test_without_a_terminal_nothing_is_run_and_the_message_says_what_to_do(lab: Lab) -> None:
    said = lab.proctor("run", str(asking_spec(lab, "one")), "--json")
    told = json.loads(said.stdout)["error"]
    assert (said.returncode, told["code"], told["key"]) == (2, "policy.no-approver", "flows[0].approvals")
    assert "`approvals: deny`, `accept` or `workspace`" in told["todo"]
    assert not lab.root.exists()
