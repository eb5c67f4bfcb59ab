"""The probe kind `stdout_golden`: run commands and compare what they print with files that never enter the fence."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from proctor.evidence.artifacts import Judged
from proctor.probe.command import format_bytes, judge_command
from proctor.probe.kind import MAX_ARTIFACT_BYTES, MAX_OUTPUT_BYTES, Judgement, ProbeWorkspace
from proctor.probe.model import Verdict
from proctor.probe.tail import head
from proctor.probe.written import start_afresh
from proctor.spec.command_probes import Normalization, StdoutCase, StdoutGolden
from proctor.spec.duration import parse_duration_s
from proctor.transport.process import ProcessResult

_MAX_KEPT: Final = 10
"""Most failed cases whose output is kept."""
_CUT_CHARS: Final = 64 * 1024
_NAMED: Final = 3
# Control sequences such as colours, strings such as a window's title, and other escapes of one or more characters.
_ANSI: Final = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)


async def judge(spec: StdoutGolden, workspace: ProbeWorkspace) -> Judgement:
    """Run every case in a fresh view, and compare its output with its golden."""
    judgements = [
        await _judge_case(case, spec, workspace, is_first=number == 0) for number, case in enumerate(spec.cases)
    ]
    shown, wrong = judgements[-1], list[int]()
    for verdict in (Verdict.UNAVAILABLE, Verdict.FAIL):
        if found := [at for at, each in enumerate(judgements) if each.verdict is verdict]:
            shown, wrong = judgements[found[0]], found
    return replace(
        shown,
        summary=_summarize(judgements, wrong),
        judged=Judged.OUTSIDE,
        artifacts={
            f"case-{at + 1}-stdout.txt": _kept(each.finished, workspace)
            for at, each in [pair for pair in enumerate(judgements) if pair[1].verdict is Verdict.FAIL][:_MAX_KEPT]
            if each.finished is not None
        },
    )


async def _judge_case(case: StdoutCase, spec: StdoutGolden, workspace: ProbeWorkspace, *, is_first: bool) -> Judgement:
    golden = workspace.reference.sources[case.golden]
    expected = normalize(golden, spec.normalize)

    def find_wrong(finished: ProcessResult) -> str | None:
        is_cut = finished.stdout_cut
        if not is_cut and normalize(finished.stdout, spec.normalize) == expected:
            return None
        return f"printed {format_bytes(finished.stdout, workspace, is_cut=is_cut)}"

    return await judge_command(
        case.command,
        workspace,
        exit_code=case.exit,
        timeout_s=parse_duration_s(spec.timeout),
        find_wrong=find_wrong,
        # Output may be longer than its golden before both are normalized. The summary contains the limit if it is
        # exceeded, so the limit must not depend on the size of the golden.
        max_output_bytes=MAX_OUTPUT_BYTES if 2 * len(golden) < MAX_OUTPUT_BYTES else MAX_ARTIFACT_BYTES,
        stdin=case.stdin.encode(errors="surrogatepass"),
        view=workspace.view if is_first else await start_afresh(workspace),
    )


def normalize(data: bytes, how: Collection[Normalization]) -> bytes:
    r"""Return output without the differences that do not count.

    >>> normalize(b"\x1b[1mTotal \x1b[0m\r\n3\t\r\n", list(Normalization))
    b'Total\n3\n'
    >>> normalize(b"a \r\n", [Normalization.TRAILING_SPACE]), normalize(b"a \r\n", [])
    (b'a\r\n', b'a \r\n')
    """
    if Normalization.ANSI in how:
        data = _ANSI.sub(b"", data)
    if Normalization.LINE_ENDINGS in how:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if Normalization.TRAILING_SPACE in how:
        data = b"\n".join(_without_trailing_space(line) for line in data.split(b"\n"))
    return data


def _without_trailing_space(line: bytes) -> bytes:
    bare = line.removesuffix(b"\r")
    return bare.rstrip(b" \t") + line[len(bare) :]


def _summarize(judgements: Sequence[Judgement], wrong: Sequence[int]) -> str:
    count = f"{len(judgements)} case{'' if len(judgements) == 1 else 's'}"
    if not wrong:
        return f"{count} passed"
    first = judgements[wrong[0]]
    more = ", ".join(str(at + 1) for at in wrong[1 : _NAMED + 1])
    rest = f" and {len(wrong) - 1 - _NAMED} more" if len(wrong) > _NAMED + 1 else ""
    others = f"; also case {more}{rest}" if more else ""
    verb = "failed" if first.verdict is Verdict.FAIL else "could not be judged"
    return f"{len(wrong)} of {count} {verb}: case {wrong[0] + 1} {first.summary}{others}"


def _kept(finished: ProcessResult, workspace: ProbeWorkspace) -> bytes:
    """Return the output of a failed case. What is cut off may end in a part of a secret, which must be masked here."""
    if not finished.stdout_cut:
        return finished.stdout
    return head(finished.stdout, redactor=workspace.redactor, limit_chars=_CUT_CHARS, is_cut=True).encode()
