"""`proctor attempt cancel`."""

from collections.abc import Sequence
from pathlib import Path

from proctor.campaign.control import CancelRequest, request_cancel
from proctor.errors import InputError
from proctor.evidence.layout import RootPaths
from proctor.ids import AttemptId, CampaignId
from proctor.report.find import find_attempt_row
from proctor.report.row import AttemptRow
from proctor.surface.cli.campaign_cancel import owner_of_running, running_campaigns
from proctor.surface.cli.command import JSON, ROOT, Command, argument, evidence_root
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.output import Output


def cancel(*, ref: str, reason: str | None, root: Path | None, as_json: bool) -> int:
    """Cancel one attempt of a running campaign, and leave the others running.

    The attempt is sealed as cancelled by the operator, with your user and process id and the reason.
    It is not scored, and every report shows it. `campaign resume` tries its trial again; the
    campaign can then not be published. Returns without waiting for the end of the attempt. Exits 2
    if no such attempt is running.
    """
    output, formatter = Output(is_json=as_json), CommandFormatter.of(root)
    root_paths = RootPaths(evidence_root(root))
    row, campaign_id = _running_attempt(ref, root=root_paths)
    campaign = root_paths.campaign(campaign_id)
    pid = owner_of_running(campaign).pid
    answer = request_cancel(campaign, pid=pid, request=CancelRequest(attempt=row.attempt_id, reason=reason))
    if answer.refusal == "invalid":
        raise InputError("usage", "--reason is too long, or not text")
    if answer.refusal == "spawned":
        raise InputError("policy.not-operator", f"process {pid}, which runs {campaign_id}, started this process")
    if answer.refusal is not None:
        raise _is_over(row)
    if as_json:
        output.json({"attemptId": row.attempt_id, "runId": row.run_id, "campaignId": campaign_id, "pid": pid})
        return 0
    output.text(f"{row.attempt_id}: being cancelled; {campaign_id} continues without it\n")
    output.text(f"See how it ended with: {formatter.command('attempt', 'explain', row.ref)}\n")
    return 0


def _running_attempt(ref: str, *, root: RootPaths) -> tuple[AttemptRow, CampaignId]:
    """Return the row of a running attempt, and its campaign. Raises InputError if it is not running."""
    try:
        row = find_attempt_row(ref, root=root)
    except InputError as error:
        if error.code != "evidence.not-found":
            raise
        raise InputError("attempt.not-running", error.what, suggestion=_listed(_running(root))) from error
    if row.state == "partial" and row.campaign_id is not None:
        what = f"{row.ref} was cut off, and {row.campaign_id} is not running"
        raise InputError("campaign.not-running", what, suggestion=f"proctor campaign resume {row.campaign_id}")
    if row.state != "running":
        raise _is_over(row)
    if row.campaign_id is None:
        what = f"{row.ref} belongs to a session"
        raise InputError(
            "attempt.not-running", what, suggestion="Interrupt the turn in the process that has the session open."
        )
    return row, row.campaign_id


def _is_over(row: AttemptRow) -> InputError:
    how = "has ended" if row.outcome is None else f"has ended: {row.outcome}"
    return InputError("attempt.over", f"{row.ref} {how}", suggestion=f"proctor attempt explain {row.ref}")


def _running(root: RootPaths) -> list[AttemptId]:
    from proctor.report.campaign_state import list_attempts

    live = {campaign.folder.name for campaign in running_campaigns(root)}
    return [row.attempt_id for row in list_attempts(root).rows if row.state == "running" and row.campaign_id in live]


def _listed(running: Sequence[AttemptId]) -> str:
    return f"Running now: {', '.join(running)}." if running else "No attempt is running; see `proctor campaign list`."


COMMANDS = {
    "attempt cancel": Command(
        call=cancel,
        example='proctor attempt cancel fix.codex.r1.1 --reason "hangs in its test server"',
        arguments=(
            argument("ref", metavar="ID", help="Id of the attempt, RUN/ATTEMPT, or a unique prefix."),
            argument("--reason", metavar="TEXT", default=None, help="Why; recorded with the attempt."),
            ROOT,
            JSON,
        ),
    ),
}
