"""`proctor campaign report` and `proctor campaign publish-check`."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.errors import InputError, disk_error
from proctor.evidence.layout import RootPaths
from proctor.report.campaign import report_campaign
from proctor.report.campaign_state import read_trials
from proctor.report.campaign_text import campaign_markdown, next_steps, render_campaign
from proctor.report.find import root_of
from proctor.report.publish import Reason
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output, spell
from proctor.surface.cli.select_campaign import find_campaign

# What renders or derives is imported where it is used: a report of many attempts as JSON needs none of it.


def report(
    *, ref: str | None, format_: str, output_file: Path | None, is_strict: bool, root: Path | None, as_json: bool
) -> int:
    """What came of a campaign, also of one that runs or was cut off.

    Only what is the agent's own is scored; other failures are shown in their buckets. It is read from
    the ledger; --strict examines the evidence of every result too, and what is damaged does not count.
    Exits as the worst result says: 0 all passed, 1 some failed or a gate blocks, 3 infrastructure,
    4 something is missing or unverified, 5 evidence is invalid.
    """
    if output_file is not None and not os.path.isdir(output_file.parent):  # noqa: PTH112
        raise InputError("usage", f"--output: there is no folder {output_file.parent}")
    place = find_campaign(ref, root=RootPaths(evidence_root(root)))
    damage = None
    if is_strict:
        from proctor.surface.examine import damage_of

        damage = damage_of(place)
    found = read_trials(place, root=root_of(place), damage=damage)
    told = report_campaign(found, damage=damage)
    format_ = "json" if as_json else format_
    output = Output(is_json=format_ == "json")
    if format_ == "text" and output_file is None:
        output.show(render_campaign(told))
        # In lines of any length, so that they can be copied.
        output.text("".join(f"  next  {CommandFormatter.of(root).spell(step)}\n" for step in next_steps(told)))
        return told.exit
    match format_:
        case "json":
            text = spell(told)
        case "md":
            text = campaign_markdown(told)
        case "junit":
            from proctor.report.junit import render_junit

            text = render_junit(found, told)
        case _:
            text = output.plain(render_campaign(told))
    if output_file is None:
        output.text(text)
    else:
        try:
            output_file.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise disk_error(error, path=output_file) from error
    return told.exit


def publish_check(*, ref: str | None, root: Path | None, as_json: bool) -> int:
    """Say whether a campaign's results may be shown to others.

    They may where it is no canary and not running, every trial of the plan it was made from has a
    result, something was required and verified, all gates are open, and all evidence holds when
    everything is derived again. Exits 0 only then; 1 where a gate blocks, 4 where something is missing,
    5 where evidence is invalid.
    """
    from proctor.surface.publish import check_publication

    output = Output(is_json=as_json)
    place = find_campaign(ref, root=RootPaths(evidence_root(root)))
    found = check_publication(place)
    if as_json:
        output.json(found)
        return found.exit
    calling = CommandFormatter.of(root)
    if found.ok:
        output.text(f"{found.campaign_id} may be published.\n")
        return found.exit
    output.text(f"{found.campaign_id} may not be published:\n")
    from proctor.surface.cli.blocks import HangingRows

    output.show(HangingRows(list(_told(found.reasons[:MAX_REASONS], calling=calling))), is_wrapped=False)
    if len(found.reasons) > MAX_REASONS:
        output.text(f"  … and {len(found.reasons) - MAX_REASONS:,} more; --json gives all\n")
    return found.exit


def _told(reasons: Sequence[Reason], *, calling: CommandFormatter) -> Iterator[tuple[str, str]]:
    """Those of one code together, with what to do about them below."""
    for code in dict.fromkeys(reason.code for reason in reasons):
        of_it = [reason for reason in reasons if reason.code == code]
        yield from (("" if at else code, reason.what) for at, reason in enumerate(of_it))
        if of_it[0].todo:
            yield "  to do", calling.spell(of_it[0].todo)


MAX_REASONS = 20

CAMPAIGN = argument(
    "ref", metavar="ID", nargs="?", help="A campaign's id, a beginning of it, its name or folder; else the latest."
)

COMMANDS = {
    "campaign report": Command(
        call=report,
        example="proctor campaign report --format md --output results.md",
        arguments=(
            CAMPAIGN,
            argument(
                "--format",
                dest="format_",
                choices=("text", "json", "md", "junit"),
                default="text",
                help="What to write: text, JSON, Markdown or JUnit XML.",
            ),
            argument("--output", dest="output_file", metavar="FILE", type=Path, help="Write it there, not to stdout."),
            argument(
                "--strict", dest="is_strict", action="store_true", help="Derive and check all evidence that counts."
            ),
            ROOT,
            JSON,
        ),
    ),
    "campaign publish-check": Command(
        call=publish_check,
        example="proctor campaign publish-check --json",
        arguments=(CAMPAIGN, ROOT, JSON),
    ),
}
