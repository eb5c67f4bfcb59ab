"""Prompt templates: filled in one pass, a flow's instead of the campaign's, and refused where a token is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.ids import FlowId
from proctor.plan.expand import Contents, expand
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.load import SpecOverrides, load_spec
from proctor.spec.template import TOKENS, parse_template
from tests.spec.good import write

Told: TypeAlias = Callable[[Callable[[], object]], list[Any]]

SPEC = """\
version: 1
campaign: night
missions:
  - {id: a, prompt: "Say {{flow}}.", script: say.yaml}
  - {id: b, prompt: Fix it., script: say.yaml, tags: [quick, slow]}
flows:
  - {id: plain, runtime: [one]}
  - {id: terse, runtime: [one], template: terse.txt}
template: careful.txt
"""


@pytest.fixture
def path(folder: Path) -> Path:
    (folder / "careful.txt").write_text("{{ campaign }} {{index}}/{{mission}} on {{flow}} [{{tags}}]\n{{prompt}}\n")
    (folder / "terse.txt").write_text("{{prompt}} Be brief.")
    return write(folder, SPEC)


@pytest.mark.requirement("campaign.matrix")
def test_a_prompt_goes_through_the_flows_template_or_the_campaigns(path: Path) -> None:
    loaded = load_spec(path)
    assert {(m.id, f.id): loaded.mission_for(m, f.id).prompt for m in loaded.missions for f in loaded.spec.flows} == {
        ("a", "plain"): "night 1/a on plain []\nSay {{flow}}.\n",
        ("a", "terse"): "Say {{flow}}. Be brief.",
        ("b", "plain"): "night 2/b on plain [quick, slow]\nFix it.\n",
        ("b", "terse"): "Fix it. Be brief.",
    }
    assert sorted(loaded.sources) == ["careful.txt", "terse.txt"]


def test_a_selection_changes_neither_prompts_nor_trials(path: Path) -> None:
    def trials(select: SelectSpec) -> dict[str, str]:
        loaded = load_spec(path, overrides=SpecOverrides(select=select))
        contents = Contents(scripts=loaded.script_digests, workspaces={})
        plan = expand(loaded.spec, missions=loaded.missions, digests=contents, prompts=loaded.prompts)
        return {trial.id: trial.digest for trial in plan.trials}

    everything, second = trials(SelectSpec()), trials(SelectSpec(range="2"))
    assert second == {id_: digest for id_, digest in everything.items() if id_.startswith("b.")} != {}


def test_another_template_makes_other_trials_of_the_flows_that_use_it(path: Path, folder: Path) -> None:
    def trials() -> dict[str, str]:
        loaded = load_spec(path)
        contents = Contents(scripts=loaded.script_digests, workspaces={})
        plan = expand(loaded.spec, missions=loaded.missions, digests=contents, prompts=loaded.prompts)
        return {trial.id: trial.digest for trial in plan.trials}

    before = trials()
    (folder / "terse.txt").write_text("{{prompt}} Be very brief.")
    after = trials()
    assert {id_ for id_ in before if before[id_] != after[id_]} == {"a.terse.r1", "b.terse.r1"}


@pytest.mark.parametrize(
    ("text", "line", "what", "suggestion"),
    [
        ("one\n{{promt}}", 2, "unknown token `{{promt}}`", "Did you mean `prompt`?"),
        ("{{prompt}} {{x}}", 1, "unknown token `{{x}}`", "Tokens: prompt, mission, flow, campaign, tags, index."),
        ("{{prompt}} {{}}", 1, "unknown token `{{}}`", "Tokens: prompt, mission, flow, campaign, tags, index."),
        ("{{prompt}}\n\n{{flow\n}}", 3, "`{{` opens a token that is not closed on its line", "Close it with `}}`."),
        ("{{prompt}} {{", 1, "`{{` opens a token that is not closed on its line", "Close it with `}}`."),
        (
            "{{mission}}",
            1,
            "the template has no `{{prompt}}`, so that all missions would have the same prompt",
            "Add `{{prompt}}`.",
        ),
    ],
)
def test_a_token_that_is_none_is_told_with_its_line(
    path: Path, folder: Path, told: Told, text: str, line: int, what: str, suggestion: str
) -> None:
    (folder / "terse.txt").write_text(text)
    assert told(lambda: load_spec(path)) == [("spec.template", line, None, what, suggestion)]


class Watched(str):
    """Text that knows how many of its characters were looked at for lines."""

    counted = 0

    def count(self, what: str, start: Any = 0, end: Any = None, /) -> int:
        self.counted += (len(self) if end is None else end) - start
        return super().count(what, start, end)


def test_lines_are_counted_once_however_many_tokens_there_are() -> None:
    text = Watched("{{prompt}}\n" * 1000)
    assert parse_template(text, file="t").fill({"prompt": "a"}) == "a\n" * 1000
    assert text.counted <= len(text)


def test_every_fault_of_every_template_is_told_and_a_missing_one_at_its_key(
    path: Path, folder: Path, told: Told
) -> None:
    (folder / "terse.txt").write_bytes(b"{{a}}\n{{b}}\n{{prompt}}")
    (folder / "careful.txt").rename(folder / "carefull.txt")
    assert [(code, line, key) for code, line, key, _, _ in told(lambda: load_spec(path))] == [
        ("spec.missing-file", 9, "template"),
        ("spec.template", 1, None),
        ("spec.template", 2, None),
    ]


@given(
    st.lists(st.one_of(st.sampled_from(TOKENS).map(lambda name: "{{" + name + "}}"), st.text("a{}\n ")), max_size=6),
    st.fixed_dictionaries({name: st.text("a{} pro", max_size=8) for name in TOKENS}),
)
def test_filling_is_one_pass(parts: list[str], values: dict[str, str]) -> None:
    texts = [part if part.startswith("{{") and part[2:-2] in TOKENS else part.replace("{", "(") for part in parts]
    text = "".join([*texts, "{{prompt}}"])
    wanted = "".join(values[part[2:-2]] if part.startswith("{{") else part for part in [*texts, "{{prompt}}"])
    assert parse_template(text, file="t").fill(values) == wanted


def test_a_flow_without_a_template_is_asked_what_is_written(folder: Path) -> None:
    loaded = load_spec(write(folder, SPEC.replace(", template: terse.txt", "").replace("template: careful.txt\n", "")))
    assert [loaded.prompts.of(each, FlowId("plain")) for each in loaded.missions] == ["Say {{flow}}.", "Fix it."]
