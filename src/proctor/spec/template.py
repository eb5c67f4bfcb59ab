"""Prompt templates: text with `{{tokens}}`, filled in one pass, so that tokens inside a prompt are not replaced."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from proctor.errors import InputError
from proctor.ids import FlowId, MissionId
from proctor.spec.collect_errors import raise_collected
from proctor.spec.model import MissionSpec
from proctor.spec.suggest import suggest

TOKENS: Final = ("prompt", "mission", "flow", "campaign", "tags", "index")

_TOKEN = re.compile(r"\{\{(?:[ \t]*([^{}\n]*?)[ \t]*\}\})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A parsed template. `parts` alternates between text and token names, and begins and ends with text."""

    parts: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> str:
        """Replace each token with its value.

        >>> parse_template("[{{flow}}] {{ prompt }}", file="t").fill({"flow": "{{prompt}}", "prompt": "Fix it."})
        '[{{prompt}}] Fix it.'
        """
        return "".join(values[part] if at % 2 else part for at, part in enumerate(self.parts))


def parse_template(text: str, *, file: str) -> Template:
    """Parse a template. Raises InputError with every unknown or unclosed token and its line."""
    if errors := tuple(_find_errors(text, file=file)):
        raise_collected(errors)
    return Template(parts=tuple(_TOKEN.split(text)))


def _find_errors(text: str, *, file: str) -> Iterator[InputError]:
    names = set()
    line, counted = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        name = match[1]
        names.add(name)
        if name is None:
            what = "`{{` opens a token that is not closed on its line"
            yield InputError("spec.template", what, file=file, line=line, suggestion="Close it with `}}`.")
        elif name not in TOKENS:
            hint = suggest(name, TOKENS, noun="Tokens")
            yield InputError("spec.template", f"unknown token `{{{{{name}}}}}`", file=file, line=line, suggestion=hint)
    if "prompt" not in names and all(name in TOKENS for name in names):
        what = "the template has no `{{prompt}}`, so that all missions would have the same prompt"
        yield InputError("spec.template", what, file=file, line=1, suggestion="Add `{{prompt}}`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompt of each mission in each flow. `positions` count all missions of the campaign, whichever are selected,
    so that a selection changes no prompt."""

    campaign: str = ""
    templates: Mapping[FlowId, Template] = field(default_factory=dict)
    positions: Mapping[MissionId, int] = field(default_factory=dict)

    def of(self, mission: MissionSpec, flow: FlowId) -> str:
        """Return the prompt of a mission in a flow."""
        template = self.templates.get(flow)
        if template is None:
            return mission.prompt
        return template.fill(
            {
                "prompt": mission.prompt,
                "mission": mission.id,
                "flow": flow,
                "campaign": self.campaign,
                "tags": ", ".join(mission.tags),
                "index": str(self.positions[mission.id]),
            }
        )


AS_WRITTEN: Final = Prompts()
