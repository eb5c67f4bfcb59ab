"""Scripts read as they are written, and are refused with the place of every fault."""

from pathlib import Path

import pytest

from proctor.errors import CollectedInputError, InputError
from proctor.model.script import Action, Call, Fault, Patch, Run, Say, Script, Step, Usage, load_script
from proctor.model.wire import Pause, Reasoning, Text

WHOLE = """\
version: 1
steps:
  - think: "The name is wrong."
    run: "cat greet.py"
    usage: {input: 10, cached: 4}
  - patch: {file: greet.py, old: 'print("Bob")', new: 'print("Ada")'}
  - do: [{say: "one"}, {delay: 50ms}, {run: {command: "echo two", escalate: true, wait: 1s}}]
  - call: {tool: lookup, arguments: {q: [1, null]}}
  - tries:
      - {fault: {status: 429, retry_after: 1, body: {error: {code: slow_down}}}, delay: 1}
      - {fault: hang}
      - {say: {text: "tok ", repeat: 100000}, fault: {cut_after: 7}}
  - say: {text: "Done.", chunk_chars: 2}
"""


def load(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    return load_script(path)


def test_a_script_is_what_was_written(tmp_path: Path) -> None:
    assert load(tmp_path, WHOLE) == Script(
        version=1,
        steps=[
            Step(think="The name is wrong.", run="cat greet.py", usage=Usage(input=10, cached=4)),
            Step(patch=Patch(file="greet.py", old='print("Bob")', new='print("Ada")')),
            Step(
                do=[
                    Action(say="one"),
                    Action(delay="50ms"),
                    Action(run=Run(command="echo two", escalate=True, wait="1s")),
                ]
            ),
            Step(call=Call(tool="lookup", arguments={"q": [1, None]})),
            Step(
                tries=[
                    Step(fault=Fault(status=429, retry_after=1, body={"error": {"code": "slow_down"}}), delay=1),
                    Step(fault="hang"),
                    Step(say=Say(text="tok ", repeat=100000), fault=Fault(cut_after=7)),
                ]
            ),
            Step(say=Say(text="Done.", chunk_chars=2)),
        ],
    )


def test_intents_come_in_the_order_of_do_or_else_in_a_fixed_one(tmp_path: Path) -> None:
    text = "version: 1\nsteps: [{run: b, say: a, think: t, delay: 2s}, {do: [{run: b}, {delay: 50ms}, {say: a}]}]"
    mixed, ordered = load(tmp_path, text).steps
    assert list(mixed.intents()) == [Pause(delay_s=2), Reasoning(text="t"), Text(text="a"), Run(command="b")]
    assert list(ordered.intents()) == [Run(command="b"), Pause(delay_s=0.05), Text(text="a")]


def test_the_last_try_stands_for_all_that_follow() -> None:
    first, second = Step(fault="hang"), Step(say="Here.")
    step = Step(tries=[first, second])
    assert [step.for_try(number) for number in range(4)] == [first, second, second, second]
    assert second.for_try(3) == second


@pytest.mark.parametrize(
    ("step", "code", "key", "said"),
    [
        ("{sya: hi}", "spec.unknown-key", "steps[0].sya", "Did you mean `say`?"),
        ("{say: {txt: hi}}", "spec.unknown-key", "steps[0].say.txt", "Did you mean `text`?"),
        ("{say: 3}", "spec.type", "steps[0].say", "Put it in quotes."),
        ("{say: ''}", "spec.type", "steps[0].say", "length >= 1"),
        ("{say: {text: a, repeat: 0}}", "spec.type", "steps[0].say.repeat", ">= 1"),
        ("{run: [ls]}", "spec.type", "steps[0].run", "found a list"),
        ("{delay: soon}", "spec.type", "steps[0]", "not a duration"),
        ("{run: {command: ls, wait: soon}}", "spec.type", "steps[0].run", "not a duration"),
        ("{patch: {file: a}}", "spec.type", "steps[0].patch", "`old` with `new`"),
        ("{patch: {file: a, old: b}}", "spec.type", "steps[0].patch", "`old` with `new`"),
        ("{patch: {file: a, content: b, delete: true}}", "spec.type", "steps[0].patch", "`old` with `new`"),
        ('{patch: {file: "a\\nb", content: c}}', "spec.type", "steps[0].patch.file", "matching regex"),
        ("{patch: {content: b}}", "spec.missing-key", "steps[0].patch.file", "`file` is missing"),
        ("{fault: hnag}", "spec.type", "steps[0].fault", "Did you mean `hang`?"),
        ("{fault: {status: 200}}", "spec.type", "steps[0].fault.status", ">= 400"),
        ("{fault: {status: 500, cut_after: 1}}", "spec.type", "steps[0].fault", "one of `status`, `cut_after`"),
        ("{fault: {cut_after: 1, failed: {code: a}}}", "spec.type", "steps[0].fault", "one of `status`"),
        ("{fault: {failed: {}}}", "spec.missing-key", "steps[0].fault.failed.code", "`code` is missing"),
        ("{fault: {cut_after: 1, retry_after: 1}}", "spec.type", "steps[0].fault", "need `status`"),
        ("{fault: {status: 500}, say: a}", "spec.type", "steps[0]", "may only have `delay`"),
        ("{fault: hang, usage: {input: 1}}", "spec.type", "steps[0]", "may only have `delay`"),
        ("{do: [{say: a}], say: b}", "spec.type", "steps[0]", "a step with `do` must not have"),
        ("{do: [{say: a, run: b}]}", "spec.type", "steps[0].do[0]", "needs exactly one of"),
        ("{do: [{}]}", "spec.type", "steps[0].do[0]", "needs exactly one of"),
        ("{do: []}", "spec.type", "steps[0].do", "length >= 1"),
        ("{tries: [{say: a}], say: b}", "spec.type", "steps[0]", "must not have other keys"),
        ("{tries: [{tries: [{say: a}]}]}", "spec.type", "steps[0]", "must not have `tries`"),
        ("{usage: {input: 3}}", "spec.type", "steps[0]", "at least one of"),
        ("{}", "spec.type", "steps[0]", "at least one of"),
    ],
)
def test_a_bad_step_is_refused_with_its_place(tmp_path: Path, step: str, code: str, key: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, f"version: 1\nsteps:\n  - {step}\n")
    error = caught.value
    assert (error.code, error.file, error.line, error.key) == (code, str(tmp_path / "script.yaml"), 3, key)
    assert said in f"{error.what} {error.suggestion}"


def test_all_faults_of_a_script_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CollectedInputError) as caught:
        load(tmp_path, "version: 1\nstep: []\nsteps:\n  - say: 1\n  - {}\n")
    found = [(error.line, error.key) for error in caught.value.errors]
    assert found == [(2, "step"), (4, "steps[0].say"), (5, "steps[1]")]


def test_a_script_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="length >= 1"):
        load(tmp_path, "version: 1\nsteps: []\n")
