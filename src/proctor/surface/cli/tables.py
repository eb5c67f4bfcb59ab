"""Render the list of runtimes and the findings of `proctor doctor` for a terminal."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from proctor.config.model import RolloutRequirement
from proctor.report.format_values import legible
from proctor.surface.cli.blocks import pairs
from proctor.surface.finding import DoctorFinding
from proctor.surface.programs import Program

_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def render_programs(programs: Sequence[Program]) -> RenderableType:
    parts: list[RenderableType] = []
    for each in programs:
        title = Text(legible(each.id), style="bold").append(f"   {', '.join(each.transports)}", style="dim")
        parts += [title, pairs(_facts(each)), Text()]
    return Group(*parts[:-1]) if parts else Text("No runtime is installed.")


def _facts(each: Program) -> list[tuple[str, RenderableType]]:
    rollout, origin = each.rollout, "built in" if each.is_built_in else "plugin"
    named = "" if each.is_built_in else ", named in the config" if each.is_named else ", not named in any config"
    required = "" if rollout.requires is RolloutRequirement.DECLARED else f", must be {rollout.requires}"
    state = f"{rollout.state} ({rollout.state_by}){required}"
    rows: list[tuple[str, RenderableType]] = [
        ("from", Text(legible(f"{', '.join(each.distributions)}: {origin}{named}"))),
        ("rollout", Text(state if rollout.is_enabled else f"switched off ({rollout.enabled_by}); {state}")),
    ]
    if each.capabilities is not None:
        capabilities = msgspec.structs.asdict(each.capabilities)
        rows.append(("profile", Text(each.profile or "")))
        rows.append(("can", Text(", ".join(name.replace("_", " ") for name, can in capabilities.items() if can))))
        rows.append(
            ("cannot", Text(", ".join(name.replace("_", " ") for name, can in capabilities.items() if not can)))
        )
    if each.program is not None:
        pinned = {True: "yes: matches its package's RECORD", False: "NO: differs from its package's RECORD", None: "no"}
        rows += [
            ("program", Text(legible(each.program.path))),
            ("found by", Text(each.program.source)),
            ("version", Text(each.program.version or "unknown")),
            *(() if each.program.launcher is None else (("runs", Text(legible(each.program.real_path))),)),
            ("sha256", Text(each.program.sha256)),
            ("pinned", Text(pinned[each.is_locked], style="bold red" if each.is_locked is False else "")),
        ]
    if each.problem is not None:
        rows += [
            ("program", Text(legible(each.problem.what), style="red")),
            ("to do", Text(legible(each.problem.todo))),
            ("code", Text(each.problem.code)),
        ]
    return rows


def render_findings(findings: Sequence[DoctorFinding]) -> RenderableType:
    """Render findings, wrapped between words only: a long path gets a separate line. Print it unwrapped."""
    bad = [each.name for each in findings if each.status == "fail"]
    verdict = Text(f"Failed: {', '.join(bad)}", style="bold red") if bad else Text("No check failed", style="green")
    return Group(_Findings(findings), Text(), verdict)


@dataclass(frozen=True, slots=True)
class _Findings:
    findings: Sequence[DoctorFinding]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        name_width = max(len(legible(each.name)) for each in self.findings)
        status_width = max(len(each.status) for each in self.findings)
        indent = " " * (status_width + 2 + name_width + 2)
        width = max(options.max_width - len(indent), 20)
        for each in self.findings:
            style = _STYLE[each.status]
            texts = [(each.what, ""), *((line, "dim") for line in each.more), (each.todo or "", style)]
            lines = [
                Text(part, style=line_style)
                for line, line_style in texts
                for part in textwrap.wrap(legible(line), width, break_long_words=False, break_on_hyphens=False)
            ]
            head = Text.assemble((f"{each.status:{status_width}}", style), f"  {legible(each.name):{name_width}}  ")
            for at, line in enumerate(lines):
                yield Text.assemble(indent if at else head, line)
