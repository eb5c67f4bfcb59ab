"""The probe kind `browser_smoke`: do steps in a page in Chromium, and compare what it shows after each.

The browser runs in the fence with the product and gets only the steps and the selectors to read. Proctor compares.
"""

from dataclasses import replace
from typing import Final

from proctor.evidence.artifacts import Judged
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import Verdict
from proctor.probe.page import PageStep, SeenLines, SeenPage, SeenStep, decode_file, describe_lines, forbidden, visit
from proctor.spec.page_probes import BrowserSmoke, BrowserStep
from proctor.spec.pattern import compile_pattern

_SHOWN_CHARS: Final = 100
_REASONS: Final = 3


async def judge(spec: BrowserSmoke, workspace: ProbeWorkspace) -> Judgement:
    """Do the steps and judge what the page showed."""
    visited = await visit(spec, workspace, [_request(step) for step in spec.steps], has_trace=True)
    judgement = replace(visited.judgement, judged=Judged.OUTSIDE)
    files = {"screenshot.png": visited.seen.screenshot, "trace.zip": visited.seen.trace}
    judgement = replace(judgement, artifacts={name: decode_file(text) for name, text in files.items() if text})
    if visited.is_over:
        return judgement
    wrong = [*_find_wrong_steps(spec, visited.seen), *forbidden(visited.seen), *_find_errors(spec, visited.seen)]
    if not wrong:
        count = len(spec.steps)
        summary = f"{count} {'step' if count == 1 else 'steps'} done, and no error on the page"
        return replace(judgement, verdict=Verdict.PASS, summary=summary)
    more = f" (and {len(wrong) - _REASONS} more)" if len(wrong) > _REASONS else ""
    return replace(judgement, summary=f"{'; '.join(wrong[:_REASONS])}{more}")


def _request(step: BrowserStep) -> PageStep:
    return PageStep(
        action=step.action,
        target=step.target,
        value=step.value or "",
        selector=step.selector,
        read=tuple(step.shows),
    )


def _find_wrong_steps(spec: BrowserSmoke, seen: SeenPage) -> list[str]:
    """Return what is wrong after the steps, up to the first that could not be done."""
    wrong = list[str]()
    for at, step in enumerate(spec.steps):
        name = f"step {at + 1} ({step.action} {step.target[:_SHOWN_CHARS]})"
        if at >= len(seen.steps):
            return wrong or [f"{name} was not done"]
        observed = seen.steps[at]
        if observed.problem is not None or len(observed.elements) != len(step.shows):
            return [*wrong, f"{name}: {observed.problem or 'nothing was read'}"]
        wrong += [f"{name}: {each}" for each in _compare(step, observed)]
    return wrong


def _compare(step: BrowserStep, observed: SeenStep) -> list[str]:
    wrong = list[str]()
    if step.title is not None and observed.title != step.title:
        wrong.append(f"the title is {observed.title[:_SHOWN_CHARS]!r}")
    for (selector, text), element in zip(step.shows.items(), observed.elements, strict=True):
        if element.count != 1:
            wrong.append(f"{selector} matches {element.count} elements")
        elif element.text.strip() != text.strip():
            wrong.append(f"{selector} shows {element.text.strip()[:_SHOWN_CHARS]!r}")
    return wrong


def _find_errors(spec: BrowserSmoke, seen: SeenPage) -> list[str]:
    """Return the errors that the page reported, apart from those that the spec allows."""
    allowed = [compile_pattern(pattern) for pattern in spec.console]

    def rest(lines: SeenLines) -> SeenLines:
        left = tuple(line for line in lines.first if not any(each.fullmatch(line) for each in allowed))
        # Lines that were not sent cannot be allowed.
        return SeenLines(first=left, total=len(left) + max(0, lines.total - len(lines.first)))

    kinds = (
        ("uncaught exception", seen.page_errors),
        ("console error", rest(seen.console)),
        ("failed request", rest(seen.requests)),
    )
    return [describe_lines(what, lines) for what, lines in kinds if lines.total > 0]
