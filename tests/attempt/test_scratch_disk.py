"""Who filled the disk of an attempt."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.attempt.scratch_disk import DiskSpace, ScratchDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB and 400 files with the folders `agent` and `others`. Only root can mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=400", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let this user mount a tmpfs")
    try:
        for name in ("agent", "others"):
            (place / name).mkdir()
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def code_of(disk: ScratchDisk, copy: DiskSpace | None = None) -> str | None:
    found = disk.find_failure(copy=copy)
    return None if found is None else found.code


@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize(("owner", "code"), [("agent", "agent.disk"), ("others", "machine.disk-full")])
def test_disk_without_room_for_files_is_the_failure_of_who_made_them(disk: Path, owner: str, code: str) -> None:
    scratch = ScratchDisk(disk, base=DiskSpace(), owned=lambda: [disk / "agent"])
    assert code_of(scratch) is None
    for number in range(350):
        (disk / owner / str(number)).touch()
    assert code_of(scratch) == code


@pytest.mark.requirement("schedule.recovery")
def test_links_to_one_file_count_once(disk: Path) -> None:
    scratch = ScratchDisk(disk, base=DiskSpace(), owned=lambda: [disk / "agent"])
    (disk / "agent" / "file").touch()
    for number in range(150):
        (disk / "agent" / str(number)).hardlink_to(disk / "agent" / "file")
    for number in range(200):
        (disk / "others" / str(number)).touch()
    assert code_of(scratch) == "machine.disk-full"


@pytest.mark.requirement("schedule.recovery")
def test_workspace_with_too_many_files_to_copy_is_the_agents_failure(disk: Path) -> None:
    scratch = ScratchDisk(disk, base=DiskSpace(), owned=lambda: [disk / "agent"])
    for number in range(180):
        (disk / "agent" / str(number)).touch()
    assert code_of(scratch) is None
    assert code_of(scratch, DiskSpace(0, 180)) == "agent.disk"


HOLD = """
import sys
file = open(sys.argv[1], "wb")
file.write(bytes(60_000_000))
file.flush()
print(flush=True)
input()
"""


@pytest.mark.requirement("schedule.recovery")
@pytest.mark.parametrize(("owner", "code"), [("agent", "agent.disk"), ("others", "machine.disk-full")])
def test_deleted_files_that_are_still_open_count_for_the_folder_they_were_in(disk: Path, owner: str, code: str) -> None:
    scratch = ScratchDisk(disk, base=DiskSpace(), owned=lambda: [disk / "agent"])
    big = disk / owner / "big"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(big)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        big.unlink()
        assert code_of(scratch) == code
        holder.communicate(b"\n", timeout=30)
    assert code_of(scratch) is None
