"""Views: an overlay shows a probe the same tree as a copy, and neither lets it change the workspace."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from proctor.contain.bundled import bundled_bwrap
from proctor.contain.fences import Fences
from proctor.contain.prefix import fenced_bwrap_prefix
from proctor.probe.model import ViewKind
from proctor.probe.view import View, examine_subject, make_view
from proctor.workspace.snapshot import snapshot

LIST = 'find . -mindepth 1 -printf "%P %M %l\\n" | sort; cat a sub/b hidden 2>/dev/null'


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def show(view: View, command: str) -> str:
    """What a fenced command in the view prints."""
    bwrap = bundled_bwrap()
    assert bwrap is not None
    if view.overlay is None:
        argv: Sequence[str] = ()
    else:
        fences = Fences(hidden=(Path("/tmp"),), overlay=view.overlay)
        argv = fenced_bwrap_prefix(str(bwrap), fences=fences, cwd=view.place, is_root=os.geteuid() == 0)
    done = subprocess.run([*argv, "bash", "-c", command], cwd=view.place, capture_output=True, text=True, check=True)
    return done.stdout


def make(kind: ViewKind, tmp_path: Path, *, over: Sequence[Path] = (), removed: Sequence[str] = ()) -> View:
    folder = tmp_path / kind.value
    folder.mkdir()
    subject = tmp_path / "subject"
    view = make_view(
        examine_subject(subject, snapshot(subject).digest),
        folder=folder,
        has_overlays=kind is ViewKind.OVERLAY,
        over=over,
        removed=removed,
    )
    assert view.kind is kind
    return view


@pytest.mark.requirement("probe.cost")
def test_overlay_and_copy_show_the_same_tree(tmp_path: Path) -> None:
    subject = write(tmp_path / "subject", {"a": "1\n", "sub/b": "2\n", "sub/deep/c": "3\n", "gone/x": "", "swap": ""})
    (subject / "sub").chmod(0o750)
    (subject / "inner").symlink_to("sub/b")
    (subject / "sub" / "out").symlink_to(tmp_path)
    os.mkfifo(subject / "sub" / "pipe")
    hidden = write(tmp_path / "hidden", {"hidden": "4\n", "sub/b": "restored\n", "swap/in": "5\n"})
    removed = ["gone", "sub/deep/c", "never-there"]

    overlay, copy = (make(kind, tmp_path, over=[hidden], removed=removed) for kind in ViewKind)

    seen = show(overlay, LIST)
    assert seen == show(copy, LIST)
    assert [line.split()[0] for line in seen.splitlines()] == [
        *("a", "hidden", "inner", "sub", "sub/b", "sub/deep", "swap", "swap/in"),
        *("1", "restored", "4"),
    ]


def test_view_does_not_let_a_probe_change_the_subject(tmp_path: Path) -> None:
    subject = write(tmp_path / "subject", {"a": "1\n", "sub/b": "2\n"})
    before = snapshot(subject).digest
    for kind in ViewKind:
        assert show(make(kind, tmp_path), "rm -r a sub; echo new >new; ls") == "new\n"
        assert snapshot(subject).digest == before


def test_view_keeps_exactly_what_a_command_changed(tmp_path: Path) -> None:
    subject = write(tmp_path / "subject", {"a": "1\n", "sub/b": "2\n"})
    folder = tmp_path / "view"
    folder.mkdir()
    view = make_view(
        examine_subject(subject, snapshot(subject).digest), folder=folder, has_overlays=True, keep_changes=True
    )

    show(view, "rm a; echo new >sub/new")

    assert view.changes is not None
    assert sorted(str(path.relative_to(view.changes)) for path in view.changes.rglob("*")) == ["a", "sub", "sub/new"]
    assert (view.changes / "a").is_char_device(), "a removed file"


def test_find_returns_the_file_of_the_highest_layer(tmp_path: Path) -> None:
    subject = write(tmp_path / "subject", {"a": "1\n", "b": "2\n", "c": "3\n"})
    hidden = write(tmp_path / "hidden", {"a": "hidden\n"})

    view = make(ViewKind.OVERLAY, tmp_path, over=[hidden], removed=["b"])

    assert [view.find(name) for name in ("a", "b", "c", "d", "x\0y")] == [
        hidden / "a",
        None,
        subject / "c",
        None,
        None,
    ]


def test_view_is_a_copy_where_files_cannot_be_hidden_in_an_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "subject", {"a": "1\n", "b": "2\n"})
    (tmp_path / "view").mkdir()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", refuse)
    subject = examine_subject(tmp_path / "subject", snapshot(tmp_path / "subject").digest)
    view = make_view(subject, folder=tmp_path / "view", has_overlays=True, removed=["b"])

    assert (view.kind, os.listdir(view.place)) == (ViewKind.COPY, ["a"])  # noqa: PTH208


@pytest.mark.requirement("probe.tamper")
def test_view_is_a_copy_if_a_file_has_an_attribute_of_overlay_mounts(tmp_path: Path) -> None:
    subject = tmp_path / "subject"
    (subject / "flags").mkdir(parents=True)
    (subject / "flags" / "disabled").touch()
    os.setxattr(subject / "flags", "user.overlay.opaque", b"x")
    os.setxattr(subject / "flags" / "disabled", "user.overlay.whiteout", b"y")
    found = examine_subject(subject, snapshot(subject).digest)
    folder = tmp_path / "view"
    folder.mkdir()
    view = make_view(found, folder=folder, has_overlays=True)
    assert (found.has_overlay_attributes, view.kind) == (True, ViewKind.COPY)
    assert (view.place / "flags" / "disabled").exists()
