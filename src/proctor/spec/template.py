"""A prompt template: text with `{{tokens}}`, filled in one pass, so that what a prompt says is never read as one."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from proctor.errors import InputError
from proctor.ids import FlowId, MissionId
from proctor.spec.collected import raise_collected
from proctor.spec.model import MissionSpec
from proctor.spec.near import suggest

TOKENS: Final = ("prompt", "mission", "flow", "campaign", "tags", "index")

_TOKEN = re.compile(r"\{\{(?:[ \t]*([^{}\n]*?)[ \t]*\}\})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Made by `parse_template` only. Texts and tokens alternate, a text first and last."""

    parts: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> str:
        """
        >>> parse_template("[{{flow}}] {{ prompt }}", file="t").fill({"flow": "{{prompt}}", "prompt": "Fix it."})
        '[{{prompt}}] Fix it.'
        """
        return "".join(values[part] if at % 2 else part for at, part in enumerate(self.parts))


def parse_template(text: str, *, file: str) -> Template:
    """InputError, with every token that is none and its line."""
    if problems := tuple(_problems(text, file=file)):
        raise_collected(problems)
    return Template(parts=tuple(_TOKEN.split(text)))


def _problems(text: str, *, file: str) -> Iterator[InputError]:
    names = set()
    line, counted = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        name = found[1]
        names.add(name)
        if name is None:
            what = "`{{` opens a token that is not closed on its line"
            yield InputError("spec.template", what, file=file, line=line, suggestion="Close it by `}}`.")
        elif name not in TOKENS:
            hint = suggest(name, TOKENS, noun="Tokens")
            yield InputError("spec.template", f"`{{{{{name}}}}}` is no token", file=file, line=line, suggestion=hint)
    if "prompt" not in names and all(name in TOKENS for name in names):
        what = "nowhere does it say `{{prompt}}`, so all missions would be asked the same"
        yield InputError("spec.template", what, file=file, line=1, suggestion="Add `{{prompt}}`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What is asked of each mission in each flow. `places` count all missions of the campaign, whichever are selected,
    so that a selection changes no prompt."""

    campaign: str = ""
    templates: Mapping[FlowId, Template] = field(default_factory=dict)
    places: Mapping[MissionId, int] = field(default_factory=dict)

    def of(self, mission: MissionSpec, flow: FlowId) -> str:
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
                "index": str(self.places[mission.id]),
            }
        )


AS_WRITTEN: Final = Prompts()
