import errno
import io
import os
import py_compile
import signal
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from proctor.canonical import digest_bytes, encode
from proctor.contain.intent import IntentLog, open_intents
from proctor.contain.ladder import choose, survey
from proctor.errors import MachineError
from proctor.evidence.artifacts import Judged
from proctor.evidence.redact import Redactor
from proctor.evidence.secrets import Secret
from proctor.probe.gate import decide
from proctor.probe.kind import (
    MAX_ARTIFACT_BYTES,
    NO_REFERENCE,
    HiddenFiles,
    Judgement,
    ProbeKind,
    ProbeReference,
    ProbeWorkspace,
)
from proctor.probe.kinds import KINDS
from proctor.probe.model import ContainmentRecord, Fault, Phase, ProbeRow, Verdict, ViewKind, identify_probe, require
from proctor.probe.program import identify_programs
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.expect import ExpectedVerdict
from proctor.spec.fence import Contain, Network
from proctor.spec.probe_options import RepeatSpec
from proctor.workspace.snapshot import snapshot

Run = Callable[..., ProbeRow]


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    root = tmp_path / "subject"
    root.mkdir()
    (root / "greet.sh").write_text("echo Hello, Bob\n")
    return root


@pytest.fixture
def run(tmp_path: Path, subject: Path) -> Run:
    (tmp_path / "scratch").mkdir()

    def run_now(
        command: str | list[str],
        *,
        phase: Phase = Phase.FINAL,
        kinds: Any = KINDS,
        search_path: str | None = None,
        keep: Path | None = None,
        reference: ProbeReference = NO_REFERENCE,
        secrets: Sequence[Secret] = (),
        **options: Any,
    ) -> ProbeRow:
        async def main() -> ProbeRow:
            async with open_intents(tmp_path / "spawns") as intents:
                row = await run_probe(
                    HeadlessRun(command=command, **options),
                    index=0,
                    phase=phase,
                    subject=examine_subject(subject, snapshot(subject).digest, tree=snapshot(subject)),
                    scratch=tmp_path / "scratch",
                    containment=choose(survey()),
                    intents=intents,
                    redactor=Redactor(secrets),
                    kinds=kinds,
                    search_path=search_path,
                    keep=keep,
                    reference=reference,
                )
                assert list(intents.folder.glob("*.json")) == []
                return row

        row = anyio.run(main)
        assert list((tmp_path / "scratch").iterdir()) == []
        return row

    return run_now


def test_a_row_tells_everything_that_was_seen(run: Run, subject: Path) -> None:
    row = run("echo out; echo err >&2; exit 3", exit=3)
    assert msgspec.structs.replace(row, duration_ms=0) == ProbeRow(
        criterion="probe 1 (headless_run)",
        phase=Phase.FINAL,
        index=0,
        kind="headless_run",
        probe_digest=identify_probe(HeadlessRun(command="echo out; echo err >&2; exit 3", exit=3)),
        workspace_digest=snapshot(subject).digest,
        verdict=Verdict.PASS,
        summary="exited 3",
        argv=("bash", "-c", "echo out; echo err >&2; exit 3"),
        programs=identify_programs(
            ("bash", "-c", "echo out; echo err >&2; exit 3"), workspace=subject, search_path=os.environ["PATH"]
        ),
        exit_code=3,
        stdout_tail="out\n",
        stderr_tail="err\n",
        view=ViewKind.COPY,
        contained=ContainmentRecord(by=choose(survey()).variant, files=Contain.FENCED, network=Network.NONE),
        judged=Judged.INSIDE,
    )
    assert msgspec.json.decode(encode(row), type=ProbeRow) == row
    assert '"workspaceDigest"' in encode(row).decode()


@pytest.mark.requirement("probe.outside")
def test_headless_run_is_judged_outside_only_if_its_output_is_compared(run: Run) -> None:
    assert [run("echo x", stdout=stdout).judged for stdout in ("x\n", "y\n", None)] == [
        Judged.OUTSIDE,
        Judged.OUTSIDE,
        Judged.INSIDE,
    ]
    assert run(["no-such-tool-here"], stdout="x").judged is None


@pytest.mark.requirement("probe.kinds")
def test_a_string_is_given_to_a_real_shell_and_a_list_to_none(run: Run) -> None:
    assert run("echo a && false").verdict is Verdict.FAIL
    assert run(["echo", "a", "&&", "false"], stdout="a && false\n").verdict is Verdict.PASS


def test_a_mismatch_says_what_was_observed_and_never_what_was_expected(run: Run) -> None:
    row = run(["bash", "greet.sh"], stdout="Hello, Ada\n")
    assert (row.verdict, row.summary) == (Verdict.FAIL, "exited 0 and printed 'Hello, Bob\\n'")
    assert "Ada" not in encode(row).decode()


async def is_killed(spec: Any, bench: ProbeWorkspace) -> Judgement:
    """The kind itself, while somebody outside kills what it runs."""

    async def kill() -> None:
        while not (found := [pid for pid, name in _processes(cwd=bench.view.place) if name == "sleep"]):
            await anyio.lowlevel.checkpoint()
        os.kill(found[0], signal.SIGKILL)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            judged = await KINDS["headless_run"](spec, bench)
    return judged


def test_a_kill_never_passes_for_the_exit_code_that_was_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CONTAINMENT", "unshare")
    assert run("exit 1", exit=1).verdict is Verdict.PASS
    killed = run(["sleep", "300"], exit=1, kinds={"headless_run": is_killed})
    assert (killed.verdict, killed.exit_code) == (Verdict.UNAVAILABLE, 1)
    assert "cannot distinguish from death by a signal" in killed.summary


@pytest.mark.requirement("probe.kinds")
def test_stdout_is_compared_to_the_last_byte(run: Run) -> None:
    assert run("printf x", stdout="x").verdict is Verdict.PASS
    assert run("echo x", stdout="x").verdict is Verdict.FAIL
    assert run("true", stdout="").verdict is Verdict.PASS
    assert run("printf 'é\\xff'", stdout="é").verdict is Verdict.FAIL


@pytest.mark.requirement("probe.process")
def test_a_missing_tool_is_unavailable_and_a_missing_program_of_the_workspace_fails(run: Run, subject: Path) -> None:
    (subject / "plain").write_text("")
    told = [
        run(["no-such-tool-here"]),
        run(["/no/such/tool"]),
        run("true", search_path="/nowhere"),
        run(["./absent"]),
        run(["./plain"]),
    ]
    assert [(row.verdict, row.summary) for row in told] == [
        (Verdict.UNAVAILABLE, "no-such-tool-here is not on this machine"),
        (Verdict.UNAVAILABLE, "/no/such/tool is not on this machine"),
        (Verdict.UNAVAILABLE, "bash is not on this machine"),
        (Verdict.FAIL, "./absent is not in the workspace"),
        (Verdict.FAIL, "./plain is not executable"),
    ]


@pytest.mark.requirement("probe.process")
def test_only_an_allow_list_of_variables_reaches_a_probe(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "do-not-tell-this")
    monkeypatch.setenv("BASH_ENV", "/dev/null")
    row = run(["env"])
    names = {line.partition("=")[0] for line in row.stdout_tail.splitlines()}
    assert {name for name in names if not name.startswith("PROCTOR_")} == {
        *("PATH", "HOME", "TMPDIR", "LANG", "PYTHONDONTWRITEBYTECODE"),
    }
    assert "do-not-tell-this" not in encode(row).decode()


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_a_probe_that_hangs_fails_and_its_whole_tree_is_gone(run: Run, tmp_path: Path) -> None:
    row = run("sleep 300 & setsid env -i sleep 301 & echo begun; wait", timeout="1500ms")
    assert (row.verdict, row.summary, row.timed_out) == (Verdict.FAIL, "did not end within 1.5 s", True)
    assert row.stdout_tail == "begun\n"
    assert _processes(cwd=tmp_path) == []


def _processes(*, cwd: Path) -> list[tuple[int, str]]:
    """Those at work in this folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "cwd").readlink()).startswith(str(cwd)):
                found.append((int(process.name), (process / "comm").read_text().strip()))
        except OSError:
            continue
    return found


@pytest.mark.requirement("probe.process")
def test_endless_output_is_bounded_and_the_cut_is_stated(run: Run) -> None:
    row = run("head -c 20000000 /dev/zero | tr '\\0' x; printf '\\xff\\xfe' >&2")
    assert row.verdict is Verdict.PASS
    assert row.stdout_tail.startswith("[1044480 bytes before this left out]\nxxx")
    assert row.stdout_tail.endswith("xxx\n[output after this left out]")
    assert len(row.stdout_tail) < 5000
    assert row.stderr_tail == "\ufffd\ufffd"


def test_a_row_of_before_containment_was_recorded_reads_as_not_knowing_it(run: Run) -> None:
    row = run("true")
    old = {key: value for key, value in msgspec.to_builtins(row).items() if key != "contained"}
    assert msgspec.convert(old, ProbeRow) == msgspec.structs.replace(row, contained=None)


@pytest.mark.requirement("probe.gate")
def test_a_probe_works_on_a_copy_and_what_an_open_one_does_to_its_subject_is_seen(run: Run, subject: Path) -> None:
    clean = run("rm -r * && touch made && mkdir -m 0 locked")
    assert (clean.verdict, clean.mutated) == (Verdict.PASS, False)
    before = snapshot(subject).digest
    dirty = run(f"touch {subject}/made", contain=Contain.NONE)
    assert (dirty.verdict, dirty.mutated, dirty.workspace_digest) == (Verdict.PASS, True, before)
    decision = decide(
        require([HeadlessRun(command=f"touch {subject}/made", contain=Contain.NONE)]),
        [dirty],
        workspace_digest=before,
        base_digest=before,
    )
    assert decision.verified is ExpectedVerdict.NO


def test_links_and_pipes_an_agent_left_do_not_stop_a_probe(run: Run, subject: Path) -> None:
    (subject / "python").symlink_to("/usr/bin/env")
    os.mkfifo(subject / "pipe")
    row = run("test -L python && test ! -e pipe && bash greet.sh", stdout="Hello, Bob\n")
    assert (row.verdict, row.mutated) == (Verdict.PASS, False)


@pytest.mark.requirement("probe.gate")
@pytest.mark.parametrize("prefix", ["", "/usr/.."])
def test_link_to_content_that_is_in_no_evidence_is_left_out(
    run: Run, subject: Path, tmp_path: Path, prefix: str
) -> None:
    (tmp_path / "evil.sh").write_text("echo Hello, Bob")
    (subject / "greet.sh").unlink()
    (subject / "greet.sh").symlink_to(f"{prefix}{tmp_path}/evil.sh")
    row = run("bash greet.sh", stdout="Hello, Bob\n")
    assert row.verdict is Verdict.FAIL
    assert row.summary.endswith("left out, because they lead out of the workspace: greet.sh")


def test_a_workspace_that_cannot_be_copied_whole_cannot_be_judged(run: Run, subject: Path) -> None:
    with (subject / "huge").open("wb") as file:
        file.truncate(2**42)
    row = run("true")
    assert row.verdict is Verdict.UNAVAILABLE
    assert "the limit for a workspace" in row.summary
    (subject / "huge").unlink()
    (subject / "greet.sh").unlink()
    subject.rmdir()
    assert run("true").verdict is Verdict.UNAVAILABLE


async def raises(spec: Any, bench: ProbeWorkspace) -> Judgement:
    raise RuntimeError("it broke")


async def gives_nothing(spec: Any, bench: ProbeWorkspace) -> Any:
    return None


@pytest.mark.requirement("probe.gate")
@pytest.mark.parametrize(
    ("kinds", "summary"),
    [
        ({"headless_run": raises}, "the probe raised an exception: RuntimeError: it broke"),
        (
            {"headless_run": gives_nothing},
            "the probe raised an exception: TypeError: returned None instead of a Judgement",
        ),
        ({}, "the probe raised an exception: KeyError: 'headless_run'"),
    ],
)
def test_a_kind_that_breaks_becomes_a_row_that_could_not_judge(
    run: Run, kinds: dict[str, ProbeKind], summary: str
) -> None:
    row = run("true", kinds=kinds)
    assert (row.verdict, row.summary) == (Verdict.UNAVAILABLE, summary)


def test_a_cancelled_probe_leaves_neither_process_nor_copy(tmp_path: Path, subject: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    async def main(intents: IntentLog) -> None:
        begun = anyio.Event()

        async def sleeps(spec: Any, bench: ProbeWorkspace) -> Judgement:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: bench.run(["sleep", "300"], timeout_s=300))
                while not _processes(cwd=bench.view.place):
                    await anyio.lowlevel.checkpoint()
                begun.set()
            raise AssertionError("it was not cancelled")

        async with anyio.create_task_group() as group:
            group.start_soon(
                lambda: run_probe(
                    HeadlessRun(command="true"),
                    index=0,
                    phase=Phase.FINAL,
                    subject=examine_subject(subject, snapshot(subject).digest),
                    scratch=scratch,
                    containment=choose(survey()),
                    intents=intents,
                    redactor=Redactor([]),
                    kinds={"headless_run": sleeps},
                )
            )
            with anyio.fail_after(30):
                await begun.wait()
            group.cancel_scope.cancel()
        assert list(scratch.iterdir()) == []
        assert _processes(cwd=tmp_path) == []

    async def opened() -> None:
        async with open_intents(tmp_path / "spawns") as intents:
            await main(intents)

    anyio.run(opened)


@pytest.mark.requirement("probe.discrimination")
@pytest.mark.requirement("evidence.claimed-vs-verified")
def test_a_fix_is_verified_a_mere_claim_is_not_and_a_probe_that_always_passes_proves_nothing(
    tmp_path: Path, subject: Path, run: Run
) -> None:
    command, base = ["bash", "greet.sh"], snapshot(subject).digest
    told = HeadlessRun(command=command, stdout="Hello, Ada\n")
    before = [run(command, stdout="Hello, Ada\n", phase=Phase.BASELINE), run("true", phase=Phase.BASELINE)]

    claimed = [run(command, stdout="Hello, Ada\n")]
    decision = decide(require([told]), [*before, *claimed], workspace_digest=snapshot(subject).digest, base_digest=base)
    assert (decision.verified, decision.reasons) == (
        ExpectedVerdict.NO,
        ("`bash greet.sh`: exited 0 and printed 'Hello, Bob\\n'",),
    )

    (subject / "greet.sh").write_text("echo Hello, Ada\n")
    now = snapshot(subject).digest
    stale = decide(require([told]), [*before, *claimed], workspace_digest=now, base_digest=base)
    assert stale.verified is ExpectedVerdict.UNKNOWN
    after = [run(command, stdout="Hello, Ada\n"), run("true")]
    evidence = [*before, *claimed, *after]
    assert decide(require([told]), evidence, workspace_digest=now, base_digest=base).verified is ExpectedVerdict.YES
    vacuous = decide(require([HeadlessRun(command="true")]), evidence, workspace_digest=now, base_digest=base)
    assert vacuous.reasons == ("`true`: already passes on the untouched workspace",)


@pytest.mark.requirement("campaign.unjudged")
@pytest.mark.parametrize(
    ("command", "verdict", "fault"),
    [
        (["zork"], Verdict.UNAVAILABLE, Fault.MACHINE),
        (["/no/such/zork"], Verdict.UNAVAILABLE, Fault.MACHINE),
        ("zork --check", Verdict.UNAVAILABLE, Fault.WORKSPACE),
        ("cd . && zork", Verdict.UNAVAILABLE, Fault.WORKSPACE),
        (["env", "zork"], Verdict.UNAVAILABLE, Fault.WORKSPACE),
        ("python3 -m nox", Verdict.UNAVAILABLE, Fault.WORKSPACE),
        # The workspace could provide each of these.
        (["./zork"], Verdict.FAIL, None),
        ("./zork", Verdict.FAIL, None),
        ("PATH=.:$PATH; zork", Verdict.FAIL, None),
        ("source ./tools.sh; zork", Verdict.FAIL, None),
        ("if true; then . ./tools.sh; fi; zork", Verdict.FAIL, None),
        ("python3 -m zork", Verdict.FAIL, None),
        ("bash greet.sh && false", Verdict.FAIL, None),
        # The message is not bash's own, or the program is there.
        ("echo 'bash: line 1: bash: command not found' >&2; exit 127", Verdict.FAIL, None),
        ("printf 'zork' >/dev/null; echo 'sh: line 1: zork: command not found' >&2; exit 127", Verdict.FAIL, None),
    ],
)
def test_missing_program_is_unavailable_unless_the_workspace_could_provide_it(
    run: Run, command: str | list[str], verdict: Verdict, fault: Fault | None
) -> None:
    row = run(command)
    assert (row.verdict, row.fault) == (verdict, fault), row


@pytest.mark.requirement("campaign.unjudged")
def test_script_of_the_workspace_without_an_interpreter_lies_with_the_workspace(run: Run, subject: Path) -> None:
    (subject / "check").write_text("#!/no/such/shell\n")
    (subject / "check").chmod(0o755)
    row = run(["./check"])
    assert (row.verdict, row.fault) == (Verdict.UNAVAILABLE, Fault.WORKSPACE), row


@pytest.mark.requirement("campaign.unjudged")
@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        (MachineError("machine.disk-full", "full"), Fault.MACHINE),
        (OSError(errno.ENOSPC, "full"), Fault.MACHINE),
        (MemoryError(), Fault.MACHINE),
        (OSError(errno.EACCES, "no"), Fault.WORKSPACE),
        (ValueError("not a report"), Fault.WORKSPACE),
    ],
)
def test_exception_of_a_probe_lies_with_the_workspace_unless_the_machine_raised_it(
    run: Run, problem: Exception, fault: Fault
) -> None:
    async def raises(spec: Any, bench: ProbeWorkspace) -> Judgement:
        raise problem

    row = run("true", kinds={"headless_run": raises})
    assert (row.verdict, row.fault) == (Verdict.UNAVAILABLE, fault)


# ── repeats, hidden files, kept files, more views ──


@pytest.mark.requirement("probe.gate")
@pytest.mark.parametrize(
    ("verdicts", "need", "verdict", "summary"),
    [
        ("pass pass fail", 2, Verdict.PASS, "2 of 3 runs passed; pass"),
        ("pass pass fail", 3, Verdict.FAIL, "2 of 3 runs passed; fail"),
        ("pass unavailable fail", 2, Verdict.UNAVAILABLE, "1 of 3 runs passed; unavailable"),
        ("unavailable fail fail", 2, Verdict.FAIL, "0 of 3 runs passed; fail"),
    ],
)
def test_repeated_probe_records_every_run_and_gives_one_verdict(
    run: Run, verdicts: str, need: int, verdict: Verdict, summary: str
) -> None:
    left = [Verdict(word) for word in verdicts.split()]

    async def judge(_: HeadlessRun, __: ProbeWorkspace) -> Judgement:
        now = left.pop(0)
        return Judgement(verdict=now, summary=now.value)

    row = run("true", kinds={"headless_run": judge}, repeat=RepeatSpec(runs=3, need=need))
    assert (row.verdict, row.summary) == (verdict, summary)
    assert [each.verdict for each in row.runs] == verdicts.split()
    assert (row.fault is not None) is (verdict is Verdict.UNAVAILABLE)


@pytest.mark.requirement("probe.gate")
def test_message_of_the_containment_that_the_product_prints_is_not_the_machines_fault(run: Run) -> None:
    for name in ("bwrap", "unshare", "setpriv"):
        row = run(["sh", "-c", f"echo '{name}: Cannot mount tmpfs on /newroot: out of memory' >&2; exit 1"])
        assert (row.verdict, row.fault) == (Verdict.FAIL, None), row.summary


@pytest.mark.requirement("probe.tamper")
def test_compiled_file_of_the_agent_does_not_take_the_place_of_a_hidden_one(
    run: Run, subject: Path, tmp_path: Path
) -> None:
    hidden, source = tmp_path / "hidden", tmp_path / "forged.py"
    (hidden / "checks").mkdir(parents=True)
    (hidden / "checks" / "helper.py").write_text("WORD = 'hidden'\n")
    (hidden / "checks" / "check.py").write_text("import helper\nprint(helper.WORD)\n")
    source.write_text("WORD = 'forged'\n")
    target = subject / "checks" / "__pycache__" / f"helper.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(source), cfile=str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    files = HiddenFiles(folder=hidden, digest=snapshot(hidden).digest)
    row = run([sys.executable, "checks/check.py"], stdout="hidden\n", reference=ProbeReference(hidden=files))
    assert row.verdict is Verdict.PASS, row.summary


@pytest.mark.requirement("probe.tamper")
def test_hidden_files_lie_over_the_workspace_and_change_the_probe(run: Run, subject: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "tests").mkdir(parents=True)
    (hidden / "greet.sh").write_text("echo hidden\n")
    (hidden / "tests" / "answer").write_text("42\n")
    (subject / "tests").symlink_to("elsewhere")
    files = HiddenFiles(folder=hidden, digest=snapshot(hidden).digest)
    command = ["bash", "-c", "bash greet.sh; cat tests/answer"]
    row = run(command, stdout="hidden\n42\n", reference=ProbeReference(hidden=files))
    assert (row.verdict, row.summary) == (Verdict.PASS, "exited 0")
    assert row.probe_digest != run(command, stdout="hidden\n42\n").probe_digest
    assert (subject / "greet.sh").read_text() == "echo Hello, Bob\n"


@pytest.mark.requirement("probe.kinds")
def test_files_of_a_probe_are_kept_without_secrets(run: Run, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("page.html", "x" * 1000 + "hunter2-very-secret")
    files = {
        "log.txt": b"key hunter2-very-secret",
        "page.png": b"\x89PNG\xff",
        "marked.png": b"\x89PNG\xffhunter2-very-secret",
        "trace.zip": archive.getvalue(),
        "large.bin": b"\xff" * (MAX_ARTIFACT_BYTES + 1),
    }

    async def judge(_: HeadlessRun, __: ProbeWorkspace) -> Judgement:
        return Judgement(verdict=Verdict.PASS, summary="seen", artifacts=files)

    keep = tmp_path / "evidence"
    keep.mkdir()
    secrets = [Secret(name="KEY", value="hunter2-very-secret")]
    row = run("true", kinds={"headless_run": judge}, keep=keep, secrets=secrets)
    assert [each.file for each in row.artifacts] == ["probe-1-final-log.txt", "probe-1-final-page.png"]
    assert {each.file: each.sha256 for each in row.artifacts} == {
        path.name: digest_bytes(path.read_bytes()) for path in keep.iterdir()
    }
    assert b"hunter2" not in (keep / "probe-1-final-log.txt").read_bytes()
    assert row.summary == (
        "seen; not kept: marked.png, which may contain a secret; not kept: trace.zip, which may contain a secret; "
        "not kept: large.bin, which is too large"
    )


@pytest.mark.requirement("probe.kinds")
def test_another_view_does_not_show_what_a_program_changed(run: Run) -> None:
    seen: list[bytes] = []

    async def judge(_: HeadlessRun, workspace: ProbeWorkspace) -> Judgement:
        await workspace.run(["bash", "-c", "echo changed >greet.sh"], timeout_s=10)
        view = await workspace.make_view()
        ended = await workspace.run(["bash", "-c", "cat; cat greet.sh"], timeout_s=10, stdin=b"in\n", view=view)
        seen.append(ended.stdout)
        return Judgement(verdict=Verdict.PASS, summary="seen")

    assert run("true", kinds={"headless_run": judge}).summary == "seen"
    assert seen == [b"in\necho Hello, Bob\n"]
