"""More of the defects of the harness before us, by their numbers: those of a native agent, seen on the real Codex."""

import pytest

from proctor.errors import InputError
from proctor.event.outcome import Outcome
from tests.lab import Lab, jsonl, mission, report_of, runner_ref_of, say_done

pytestmark = pytest.mark.real_agent

PIECES = 400


def test_r2_of_20_streams_at_once_some_lost_their_end_or_a_part_and_none_does(lab: Lab) -> None:
    words = {"say": {"text": "a b", "chunk_chars": 1, "repeat": PIECES}}
    lab.run(lab.write_spec([mission("flood", words)], repeats=20, schedule={"parallel": 20}))

    for paths in lab.attempts().values():
        report = report_of(paths)
        assert (report.outcome, report.metrics.unrecognized) == (Outcome.COMPLETED, 0)
        [said] = [row["text"] for row in jsonl(paths.transcript) if row["kind"] == "message"]
        assert said == "a b" * PIECES
    assert len(lab.attempts()) == 20
    lab.assert_all_evidence_is_valid()


@pytest.mark.requirement("runtime.approvals.answered")
def test_r5_what_the_agent_asked_was_never_answered_and_it_stalled_and_here_it_goes_on(lab: Lab) -> None:
    asks = mission("asks", {"run": {"command": "true", "escalate": True}}, say_done("refused"))
    lab.run(lab.write_spec([asks]))

    [paths] = lab.attempts().values()
    assert (report_of(paths).outcome, report_of(paths).claimed) == (Outcome.COMPLETED, True)
    assert [row["status"] for row in jsonl(paths.transcript) if row["kind"] == "approval"] == ["asked", "decline"]


@pytest.mark.requirement("evidence.trace")
def test_r7_every_frame_counted_as_a_tool_call_and_here_calls_bytes_and_tokens_are_those_of_the_agent(
    lab: Lab,
) -> None:
    usage = {"usage": {"input": 100, "output": 10}}
    works = mission(
        "works",
        {"say": {"text": "six pieces ", "chunk_chars": 2}, "run": "printf 12345", **usage},
        {"run": "exit 3", **usage},
        {**say_done(), **usage},
    )
    lab.run(lab.write_spec([works]))

    [paths] = lab.attempts().values()
    metrics = report_of(paths).metrics
    assert (metrics.tool_calls, metrics.tool_failures, metrics.tool_output_bytes) == (2, 1, 5)
    assert metrics.total_tokens == 330
    calls = jsonl(paths.tool_calls)
    assert [(call["kind"], call["exitCode"]) for call in calls] == [("command", 0), ("command", 3)]
    assert all(call["durationMs"] is not None for call in calls)


@pytest.mark.requirement("evidence.redaction")
def test_r13_tokens_known_by_their_shape_were_kept_in_prompt_and_answer_and_here_in_no_file(lab: Lab) -> None:
    body = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    tokens = [
        f"sk-proj-{body}",
        f"sk-ant-api03-{body}",
        f"ghs_{body}",
        f"AIza{body[:35]}",
        f"password={body[:16]}",
        f"sk-{body}",
    ]
    told = " then ".join(tokens)
    steps = ({"say": f"It is {told}.", "run": f"echo '{told}'"}, say_done(tokens[0]))
    with pytest.raises(InputError, match="looks like a secret"):
        lab.run(lab.write_spec([mission("leaks", *steps, prompt=told)]))
    lab.run(lab.write_spec([mission("leaks", *steps)]))

    [paths] = lab.attempts().values()
    kept = {file.name: file.read_text() for file in paths.folder.iterdir()}
    assert [(name, token) for name, text in kept.items() for token in tokens if token.split("=")[-1] in text] == []
    assert all("[redacted:" in kept[name] for name in ("frames.jsonl", "transcript.jsonl", "feedback.json"))


@pytest.mark.requirement("runtime.strategy.fallback")
def test_r17_an_unknown_runtime_ended_the_chain_and_here_the_next_one_runs_and_the_reason_is_kept(lab: Lab) -> None:
    lab.run(lab.write_spec([mission("m", say_done())], flow={"runtime": ["nonsense", "codex_app_server"]}))

    [paths] = lab.attempts().values()
    resolution = runner_ref_of(paths).facts["resolution"].value
    assert (report_of(paths).outcome, resolution["chosen"]) == (Outcome.COMPLETED, "codex_app_server")
    assert [(each["runtime"], each["code"]) for each in resolution["refused"]] == [("nonsense", "spec.unknown-runtime")]
