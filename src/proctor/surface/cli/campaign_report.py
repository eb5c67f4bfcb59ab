"""`proctor campaign report` and `proctor campaign publish-check`."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from proctor.errors import InputError, disk_error
from proctor.evidence.layout import CampaignPaths, RootPaths
from proctor.report.campaign import CampaignReport, load_campaign
from proctor.report.find import root_of
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output, to_json
from proctor.surface.cli.select_campaign import find_campaign

if TYPE_CHECKING:
    from proctor.report.publish import Publication, Reason

# What renders or derives is imported where it is used: a report of many attempts as JSON needs none of it.


def report(
    *,
    ref: str | None,
    format_: str,
    with_attempts: bool,
    output_file: Path | None,
    is_strict: bool,
    root: Path | None,
    as_json: bool,
) -> int:
    """Show a campaign's report, even while it runs or after it was cut off.

    Reads only the ledger, the index of its attempts. --strict also examines the evidence of every
    attempt and the campaign's own files, and invalid evidence does not count. Failures for
    infrastructure reasons are never scored.
    Exits 0 if every result is as expected, 1 if one is not or a gate blocks, 3 on infrastructure
    failures, 4 if something is missing or could not be judged, 5 if evidence is invalid.
    """
    if output_file is not None and not os.path.isdir(output_file.parent):  # noqa: PTH112
        raise InputError("usage", f"--output: no such folder: {output_file.parent}")
    place = find_campaign(ref, root=RootPaths(evidence_root(root)))
    composed = _load(place, is_strict=is_strict)
    format_ = "json" if as_json else format_
    output = Output(is_json=format_ == "json")
    if format_ == "text" and output_file is None:
        from proctor.report.sections import next_steps
        from proctor.surface.cli.print_report import print_report

        formatter = CommandFormatter.of(root)
        steps = [("" if at else "next", formatter.spell(step)) for at, step in enumerate(next_steps(composed))]
        print_report(output, composed, title=place.folder.name, footer=steps)
        return composed.exit
    match format_:
        case "text":
            from proctor.surface.cli.print_report import plain_report

            text: str | bytes = plain_report(output, composed, title=place.folder.name)
        case "json":
            shown = (
                composed if with_attempts or is_strict else replace(composed, attempts=(), are_attempts_omitted=True)
            )
            text = to_json(shown, is_indented=output_file is not None or sys.stdout.isatty())
        case "md":
            from proctor.report.markdown import render_markdown

            text = render_markdown(composed)
        case _:
            from proctor.report.junit import render_junit

            text = render_junit(composed)
    if output_file is None:
        output.text(text)
    else:
        try:
            output_file.write_bytes(text.encode(errors="backslashreplace") if isinstance(text, str) else text)
        except OSError as error:
            raise disk_error(error, path=output_file) from error
    return composed.exit


def _load(campaign: CampaignPaths, *, is_strict: bool) -> CampaignReport:
    if not is_strict:
        return load_campaign(campaign, root=root_of(campaign))
    from proctor.surface.examine import load_report

    return load_report(campaign, is_strict=True)


def publish_check(*, ref: str | None, root: Path | None, as_json: bool) -> int:
    """Check whether a campaign's results may be published.

    They may if the campaign is complete and not a canary, every trial of its plan has a result, probes
    judged results, all gates are open, and all evidence is valid when everything is derived again.
    Exits 0 only then; 1 if a gate blocks, 4 if something is missing, 5 if evidence is invalid.
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
        output.text(f"{found.campaign_id} may be published{_as_scripted(found)}.\n")
        return found.exit
    output.text(f"{found.campaign_id} may not be published:\n")
    from proctor.surface.cli.blocks import HangingRows

    output.show(HangingRows(list(_reason_rows(found.reasons[:MAX_REASONS], calling=calling))), is_wrapped=False)
    if len(found.reasons) > MAX_REASONS:
        output.text(f"  … and {len(found.reasons) - MAX_REASONS:,} more; --json lists all\n")
    return found.exit


def _as_scripted(found: "Publication") -> str:
    if not found.has_models:
        return " as scripted results"
    some = ", ".join(found.scripted_flows)
    return f", with the results of {some} as scripted results" if some else ""


def _reason_rows(reasons: Sequence["Reason"], *, calling: CommandFormatter) -> Iterator[tuple[str, str]]:
    """Yield the reasons grouped by code, each group followed by what to do about it."""
    for code in dict.fromkeys(reason.code for reason in reasons):
        of_it = [reason for reason in reasons if reason.code == code]
        yield from (("" if at else code, reason.what) for at, reason in enumerate(of_it))
        if of_it[0].todo:
            yield "  to do", calling.spell(of_it[0].todo)


MAX_REASONS = 20

CAMPAIGN = argument(
    "ref",
    metavar="ID",
    nargs="?",
    help="A campaign's id or a unique prefix of it, its name, or its folder. Default: the latest.",
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
                help="Output format: text, JSON, Markdown or JUnit XML.",
            ),
            argument(
                "--attempts",
                dest="with_attempts",
                action="store_true",
                help="Add every attempt to the JSON, as --strict does.",
            ),
            argument(
                "--output", dest="output_file", metavar="FILE", type=Path, help="Write to FILE instead of stdout."
            ),
            argument(
                "--strict",
                dest="is_strict",
                action="store_true",
                help="Derive everything again from the evidence, and check it and the campaign's files.",
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
