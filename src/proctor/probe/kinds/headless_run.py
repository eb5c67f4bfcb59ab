"""The probe kind `headless_run`: run a command and compare its exit code and, if specified, its complete stdout."""

from dataclasses import replace

from proctor.evidence.artifacts import Judged
from proctor.probe.command import format_bytes, judge_command
from proctor.probe.kind import MAX_OUTPUT_BYTES, Judgement, ProbeWorkspace
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.duration import parse_duration_s
from proctor.transport.process import ProcessResult


async def judge(spec: HeadlessRun, workspace: ProbeWorkspace) -> Judgement:
    """Run the command of `spec` in the workspace and judge its result."""
    expected = None if spec.stdout is None else spec.stdout.encode()

    def find_wrong(finished: ProcessResult) -> str | None:
        if expected is None or finished.stdout == expected:
            return None
        return f"printed {format_bytes(finished.stdout, workspace, is_cut=finished.stdout_cut)}"

    judgement = await judge_command(
        spec.command,
        workspace,
        exit_code=spec.exit,
        timeout_s=parse_duration_s(spec.timeout),
        find_wrong=find_wrong,
        # One byte more than expected, so that longer output never looks equal.
        max_output_bytes=max(MAX_OUTPUT_BYTES, len(expected or b"") + 1),
    )
    return replace(judgement, judged=Judged.INSIDE if expected is None else Judged.OUTSIDE)
