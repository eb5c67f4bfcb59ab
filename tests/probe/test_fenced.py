"""What a probe can do to the machine, tried with both ways to fence it."""

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.fences import Fences
from proctor.contain.intent import open_intents
from proctor.contain.ladder import Containment, Variant, choose, survey
from proctor.evidence.redact import Redactor
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.kinds import KINDS
from proctor.probe.model import ContainmentRecord, Phase, ProbeRow, Verdict, ViewKind
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.fence import Contain, Network
from proctor.workspace.snapshot import snapshot


class Run(Protocol):
    def __call__(
        self, command: str | list[str], *, search_path: str | None = None, kinds: Any = KINDS, **options: object
    ) -> ProbeRow: ...


@pytest.fixture(params=[Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def containment(request: pytest.FixtureRequest) -> Containment:
    return choose(each for each in survey(bundled_bwrap=bundled_bwrap()) if each.variant is request.param)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    subject = tmp_path / "attempt/workspace"
    subject.mkdir(parents=True)
    (subject / "f").write_text("as it was\n")
    return subject


@pytest.fixture
def run(containment: Containment, subject: Path, tmp_path: Path) -> Run:
    return runner(containment, subject, tmp_path)


def runner(containment: Containment, subject: Path, folder: Path) -> Run:
    scratch = folder / "attempt/probes"
    scratch.mkdir(parents=True)
    (folder / "evidence").mkdir()
    (folder / "evidence/frames").write_text("planted")

    def run_now(
        command: str | list[str], *, search_path: str | None = None, kinds: Any = KINDS, **options: object
    ) -> ProbeRow:
        async def main() -> ProbeRow:
            async with open_intents(folder / "spawns") as intents:
                return await run_probe(
                    HeadlessRun(command=command, **options),  # type: ignore[arg-type]
                    index=0,
                    phase=Phase.FINAL,
                    subject=examine_subject(subject, snapshot(subject).digest),
                    scratch=scratch,
                    hidden=[folder / "evidence"],
                    containment=containment,
                    intents=intents,
                    redactor=Redactor([]),
                    search_path=search_path,
                    kinds=kinds,
                )

        row = anyio.run(main)
        assert list(scratch.iterdir()) == []
        return row

    return run_now


def passes(row: ProbeRow) -> str:
    assert row.verdict is Verdict.PASS, f"{row.summary}: {row.stdout_tail}{row.stderr_tail}"
    return row.stdout_tail


@pytest.mark.requirement("attempt.contain")
def test_a_probe_writes_to_its_copy_its_home_and_its_temporary_folders_and_nowhere_else(
    run: Run, home: Path, subject: Path
) -> None:
    command = (
        'touch made ~/made "$TMPDIR/made" /tmp/made /dev/shm/made && echo x >/dev/null\n'
        f"for place in / /etc /usr /var/lib /sys {Path.cwd()}; do\n"
        '  ! test -w "$place" || echo "may write to $place"\n'
        "done\n"
        # What it says already: where a fence is missing, the machine is not to be changed by this test.
        "panic=$(cat /proc/sys/kernel/panic) && ! (echo $panic >/proc/sys/kernel/panic) 2>/dev/null\n"
    )
    row = run(command)

    assert passes(row) == ""
    assert (row.mutated, (subject / "f").read_text()) == (False, "as it was\n")
    assert sorted(home.iterdir()) == [home / "secret"]
    assert not Path("/tmp/made").exists()
    assert row.contained is not None
    assert (row.contained.files, row.contained.network) == (Contain.FENCED, Network.NONE)


@pytest.mark.requirement("attempt.contain")
def test_a_probe_sees_neither_the_home_nor_the_evidence_nor_the_workspace_itself(
    run: Run, home: Path, subject: Path, tmp_path: Path
) -> None:
    real_home = pwd.getpwuid(os.getuid()).pw_dir
    places = " ".join(map(str, (home / "secret", tmp_path / "evidence/frames")))
    command = f"cat f; for file in {places}; do ! test -e $file || echo $file; done; ls -A /run; ls -A {real_home}"
    row = run(command, search_path="/usr/bin:/bin")

    assert passes(row) == "as it was\n"
    assert str(home) not in passes(run("echo ~")), "its home is another"
    seen = run(f"test -e {subject}/f", search_path="/usr/bin:/bin")
    is_there = seen.verdict is Verdict.PASS
    assert is_there is (seen.view is ViewKind.OVERLAY), "an overlay is at the path of the workspace, a copy is not"


@pytest.mark.requirement("attempt.contain")
def test_what_a_probe_does_to_the_workspace_it_judges_cannot_reach_it(run: Run, subject: Path) -> None:
    row = run(f"mkdir -p {subject} && echo changed >{subject}/f; rm -f f")

    assert passes(row) == ""
    assert (row.mutated, (subject / "f").read_text()) == (False, "as it was\n")


@pytest.mark.requirement("attempt.contain")
def test_a_probe_of_root_can_undo_no_fence(run: Run) -> None:
    command = (
        "! mount -o remount,rw / && ! mount -o remount,rw,bind / && ! umount /tmp && ! mknod disk b 8 0\n"
        "ls /dev; grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status"
    )
    listed, _, caps = passes(run(command)).partition("Cap")

    assert set(listed.split()) <= {
        *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"),
        *("urandom", "zero"),
    }
    effective = {line.split()[0]: line.split()[1] for line in f"Cap{caps}".splitlines()}
    assert (effective["CapEff:"], effective["CapPrm:"], effective["NoNewPrivs:"]) == ("0" * 16, "0" * 16, "1")


def test_the_subject_and_all_scratch_are_hidden_wherever_they_lie(run: Run, subject: Path, tmp_path: Path) -> None:
    seen: list[Fences] = []

    async def look(_: HeadlessRun, bench: ProbeWorkspace) -> Judgement:
        assert bench.fence is not None
        seen.append(bench.fence("true", bench.view))
        return Judgement(verdict=Verdict.PASS, summary="looked")

    run("true", kinds={"headless_run": look})

    [fences] = seen
    assert {subject, tmp_path / "attempt/probes", tmp_path / "evidence"} <= set(fences.hidden)
    assert {path.parent.parent for path in fences.writable} == {tmp_path / "attempt/probes"}


def test_a_probe_has_no_signal_ignored_by_us(run: Run, containment: Containment) -> None:
    ignored = passes(run("exec grep ^SigIgn /proc/self/status")).split()[1]

    # The bundled bwrap ignores SIGPIPE, and is stated to; above 31 are the C library's own, which nobody can set back.
    known = 0x1000 if containment.variant is Variant.BUNDLED_BWRAP else 0
    assert int(ignored, 16) & 0x7FFFFFFF & ~known == 0


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.requirement("attempt.contain")
def test_a_server_of_the_machine_is_reached_with_the_hosts_network_only(run: Run) -> None:
    with listening() as port:
        call = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        assert run(call).verdict is Verdict.FAIL
        assert passes(run(call, network=Network.HOST)) == ""


def test_without_a_network_loopback_is_there_all_the_same(run: Run) -> None:
    code = (
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), timeout=5)\n"
        "print('reached')\n"
    )
    assert passes(run([sys.executable, "-c", code])) == "reached\n"


@pytest.mark.requirement("attempt.contain")
def test_the_interpreter_of_a_virtual_environment_runs_wherever_it_and_its_base_lie(run: Run) -> None:
    # Where the base lies below the user's home, as it does under a version manager, it is hidden and given back.
    search_path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    command = "python -c 'import sys, ssl, msgspec; print(sys.prefix)'"

    assert passes(run(command, search_path=search_path)) == f"{sys.prefix}\n"
    assert passes(run([sys.executable, "-c", "import msgspec; print(1)"])) == "1\n"


def test_a_shim_in_the_home_finds_what_it_stands_for(run: Run, home: Path) -> None:
    root = home / ".versions"
    for path, text in {
        "shims/tool": f'#!/bin/sh\nexec "{root}/libexec/manager" tool "$@"\n',
        "libexec/manager": f'#!/bin/sh\nexec "{root}/versions/$(cat {root}/version)/bin/$1"\n',
        "versions/1.2/bin/tool": "#!/bin/sh\necho 1.2\n",
        "version": "1.2\n",
        "credentials": "planted",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        (root / path).chmod(0o755)

    row = run(f"tool; ! test -e {root}/credentials", search_path=f"{root}/shims:/usr/bin:/bin")

    assert passes(row) == "1.2\n"


@pytest.mark.parametrize("variant", [Variant.CGROUP, Variant.WARDEN])
@pytest.mark.requirement("attempt.contain")
def test_where_files_cannot_be_contained_a_probe_is_unavailable_unless_it_says_none(
    variant: Variant, subject: Path, tmp_path: Path
) -> None:
    warden = choose(each for each in survey() if each.variant is Variant.WARDEN)
    here = warden if variant is Variant.WARDEN else replace(warden, variant=variant, tools=("sh", "/cg"))
    run = runner(here, subject, tmp_path)

    refused = run("true")
    assert (refused.verdict, refused.summary, refused.contained) == (
        Verdict.UNAVAILABLE,
        f"the containment `{variant}` cannot restrict files or network",
        None,
    )
    if variant is Variant.WARDEN:
        open_ = run(f"cat {subject}/f", contain=Contain.NONE)
        assert passes(open_) == "as it was\n"
        assert open_.contained == ContainmentRecord(by="warden", files=Contain.NONE, network=Network.HOST)


# It reads the probe's input: an end that it sees only once the probe counts as started.
@pytest.mark.long
@pytest.mark.parametrize("before", ["", "cat; "], ids=["at once", "late"])
@pytest.mark.requirement("attempt.contain")
def test_a_wrapper_that_cannot_fence_here_makes_the_probe_unavailable_in_its_own_words(
    before: str, subject: Path, tmp_path: Path
) -> None:
    said = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{before}echo '{said}' >&2; exit 1\n")
    fake.chmod(0o755)
    broken = Containment(variant=Variant.BWRAP, tools=(str(fake),), catches=(), misses=())

    row = runner(broken, subject, tmp_path)("true")

    assert (row.verdict, row.summary) == (Verdict.UNAVAILABLE, said)


KEYS = """\
import ctypes, os, sys
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
call = ctypes.CDLL(None).syscall
if sys.argv[1] == "add":
    print(call(add_key, b"user", b"proctor-test", b"hidden", 6, -4) != -1)
else:
    print(call(keyctl, 10, -4, b"user", b"proctor-test", 0) != -1)
"""


@pytest.mark.requirement("probe.sight")
def test_key_that_a_probe_adds_is_gone_with_it(subject: Path, tmp_path: Path) -> None:
    (subject / "keys.py").write_text(KEYS)
    bwrap = choose(each for each in survey(bundled_bwrap=bundled_bwrap()) if each.variant is Variant.BUNDLED_BWRAP)
    row = runner(bwrap, subject, tmp_path)([sys.executable, "keys.py", "add"])
    assert row.stdout_tail == "True\n", "the kernel has keys"
    find = [sys.executable, str(subject / "keys.py"), "find"]
    assert subprocess.run(find, capture_output=True, text=True, timeout=30).stdout == "False\n"
