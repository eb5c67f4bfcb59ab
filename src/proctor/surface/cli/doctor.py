"""`proctor doctor`."""

from pathlib import Path

import msgspec

from proctor.campaign.examine_programs import with_examiner
from proctor.errors import Exit
from proctor.surface.cli.command import JSON, ROOT, Command, root_or_default
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output
from proctor.surface.cli.tables import render_findings
from proctor.surface.health import check_health


def doctor(*, root: Path | None, as_json: bool) -> int:
    """Check this machine and the evidence root, and clean up after dead runs.

    Runs each agent program for its version and protocol, and reports one that is too old or
    incompatible. Ends processes and deletes scratch folders that dead runs left behind. Evidence and running
    Proctors are never touched. Exits 0 if nothing failed (warnings do not count), 3 if a check of
    something that Proctor needs has failed.
    """
    output = Output(is_json=as_json)
    formatter = CommandFormatter.of(root)
    checked = with_examiner(lambda examine: tuple(check_health(root_or_default(root), examine=examine)))
    findings = tuple(
        msgspec.structs.replace(each, todo=None if each.todo is None else formatter.spell(each.todo))
        for each in checked
    )
    code = Exit.INFRASTRUCTURE if any(each.status == "fail" for each in findings) else Exit.OK
    if as_json:
        output.json({"exit": code, "checks": findings})
    else:
        output.show(render_findings(findings), is_wrapped=False)
    return code


COMMANDS = {"doctor": Command(call=doctor, example="proctor doctor", arguments=(ROOT, JSON))}
