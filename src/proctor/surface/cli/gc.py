"""`proctor gc` and `proctor pin`."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.campaign.retention import RetentionRule
from proctor.clock import SYSTEM_CLOCK
from proctor.config.load import load_config
from proctor.config.retention import parse_age_s
from proctor.errors import Exit, InputError
from proctor.evidence.disk import replace_file
from proctor.evidence.layout import RootPaths
from proctor.report.format_values import legible, plural
from proctor.spec.size import parse_size_bytes
from proctor.surface.cli.campaign_status import CAMPAIGN_HELP
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.live_lines import age
from proctor.surface.cli.output import Output
from proctor.surface.cli.select_campaign import find_campaign
from proctor.surface.gc import GcResult, clear, plan_clearing


def gc(*, older_than: str | None, larger_than: str | None, is_dry: bool, root: Path | None, as_json: bool) -> int:
    """Delete old evidence by age or size.

    Considers campaigns with their runs, other runs, and scratch folders kept with --keep-scratch
    or `keep`. A session and its runs are kept until the session is deleted.
    First deletes everything older than AGE, then the oldest until at most SIZE is left. Evidence that
    is pinned, running, signed, or named by a statement in the evidence root is kept. Without
    --older-than and --larger-than, the [retention] table of proctor.toml applies. Proctor never
    deletes evidence on its own. Exits 3 if something could not be deleted.
    """
    output = Output(is_json=as_json)
    paths, now_ms = RootPaths(evidence_root(root)), SYSTEM_CLOCK.wall_ms()
    rule = _rule(older_than, larger_than)
    result = (plan_clearing if is_dry else clear)(paths, rule, now_ms=now_ms)
    if as_json:
        output.json(result)
    else:
        output.show(render_gc(result), is_wrapped=False)
    return Exit.INFRASTRUCTURE if result.refused else Exit.OK


def _rule(older_than: str | None, larger_than: str | None) -> RetentionRule:
    if older_than is None and larger_than is None:
        settings = load_config(Path.cwd()).retention
        older_than, larger_than = settings.older_than, settings.larger_than
    if older_than is None and larger_than is None:
        what = "no limit: neither --older-than nor --larger-than is given, and proctor.toml has no [retention]"
        raise InputError("usage", what, suggestion="proctor gc --older-than 30d --dry-run")
    return RetentionRule(
        older_than_s=None if older_than is None else _parse("--older-than", parse_age_s, older_than),
        larger_than_bytes=None if larger_than is None else _parse("--larger-than", parse_size_bytes, larger_than),
    )


def _parse(flag: str, parse: Callable[[str], int], written: str) -> int:
    try:
        return parse(written)
    except ValueError as error:
        raise InputError("usage", f"{flag}: {error}") from error


def render_gc(result: GcResult) -> RenderableType:
    word = "would delete" if result.is_dry else "deleted"
    # Not a table, which would cut long names and reasons off.
    rows = [
        (
            word if unit.is_deleted else "kept",
            f"{unit.kind} {legible(unit.name)}",
            size(unit.size_bytes),
            f"{age(unit.age_ms)} old",
            unit.why,
        )
        for unit in result.units
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = [
        "  ".join((*(f"{field:{width}}" for field, width in zip(row, widths, strict=False)), row[-1])) for row in rows
    ]
    freed, kept = size(result.freed_bytes), size(result.kept_bytes)
    summary = [f"{freed} would be freed, {kept} would be kept." if result.is_dry else f"{freed} freed, {kept} kept."]
    if result.swept:
        done = "would be deleted" if result.is_dry else "deleted"
        summary.append(f"Scratch of {plural(len(result.swept), 'dead run')} {done}.")
    if result.finished:
        summary.append(f"Deleted what an interrupted gc had left: {', '.join(result.finished)}.")
    if result.refused:
        summary.append(f"Could not be deleted: {', '.join(result.refused)}.")
    return Group(*map(Text, (*lines, *summary)))


def size(number_bytes: int) -> str:
    """
    >>> size(0), size(4096), size(5_300_000_000)
    ('0 kB', '4 kB', '5.3 GB')
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if number_bytes >= scale:
            return f"{number_bytes / scale:.1f} {unit}"
    return f"{number_bytes / 1000:.0f} kB"


def pin(*, campaign: str, is_off: bool, root: Path | None, as_json: bool) -> int:
    """Protect a campaign and its runs from `proctor gc`.

    --off removes the protection.
    """
    output = Output(is_json=as_json)
    paths = find_campaign(campaign, root=RootPaths(evidence_root(root)))
    if is_off:
        paths.pin.unlink(missing_ok=True)
    else:
        replace_file(paths.pin, b"")
    name = paths.folder.name
    if as_json:
        output.json({"campaignId": name, "isPinned": not is_off})
    else:
        text = f"{legible(name)} is no longer pinned." if is_off else f"{legible(name)} is pinned."
        undo = "" if is_off else f"  Undo: {CommandFormatter.of(root).command('pin', name, '--off')}"
        output.show(Text(text + undo), is_wrapped=False)
    return 0


COMMANDS = {
    "gc": Command(
        call=gc,
        example="proctor gc --older-than 30d --larger-than 5GB --dry-run",
        arguments=(
            argument("--older-than", metavar="AGE", help="Delete what is older than AGE: 90s, 12h, 30d, 4w."),
            argument(
                "--larger-than", metavar="SIZE", help="Delete the oldest until at most SIZE is left, such as 5GB."
            ),
            argument(
                "--dry-run",
                dest="is_dry",
                action="store_true",
                help="List what would be deleted or kept, and why; delete nothing.",
            ),
            ROOT,
            JSON,
        ),
    ),
    "pin": Command(
        call=pin,
        example="proctor pin quickstart",
        arguments=(
            argument("campaign", metavar="CAMPAIGN", help=CAMPAIGN_HELP),
            argument("--off", dest="is_off", action="store_true", help="Remove the protection."),
            ROOT,
            JSON,
        ),
    ),
}
