"""Which files of the untouched workspace a probe that runs tests sees, whatever the agent made of them.

Restored, and left out where they are new: the files that decide what a test run does. Files that the mission protects
must not have changed at all.
"""

import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from proctor.canonical import digest_bytes
from proctor.errors import MachineError, disk_error
from proctor.probe.kind import UntouchedTree
from proctor.spec.glob import fits
from proctor.workspace.excerpt import is_generated_path
from proctor.workspace.name import quoted
from proctor.workspace.snapshot import Entry, Snapshot
from proctor.workspace.walk import EntryKind, open_regular

PYTEST_FILES: Final = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
"""Files that hold only settings of pytest, in its order."""
SHARED_FILES: Final = ("pyproject.toml", "tox.ini", "setup.cfg")
"""Files that hold settings of pytest beside other content, in its order."""

_STARTUP_MODULES: Final = frozenset({"sitecustomize", "usercustomize"})
"""Modules that Python imports when it starts, as a file, a compiled file or a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The differences between a view and the subject that undo what the agent did to the test run."""

    restored: tuple[Entry, ...] = ()
    """Files and links of the untouched workspace that the view shows as they were."""
    removed: tuple[str, ...] = ()
    """Files of the subject that are not in the view."""
    tampered: tuple[str, ...] = ()
    """Protected files that were changed, deleted or added."""


def plan_restoration(
    base: Snapshot, now: Snapshot, *, protect: Sequence[str], names: Collection[str] = ()
) -> Restoration:
    """Compare the subject with the untouched workspace. `names` are restored in addition to those that always are.

    An added cache, such as `.pytest_cache`, is not tampering: running the tests writes it. Compiled Python files that
    the agent left are never used: they can pass for those of a source that says something else. Pure.
    """
    restored, removed, tampered = list[Entry](), dict[str, None](), list[str]()
    for path in sorted(base.by_path.keys() | now.by_path.keys()):
        before, after = base.by_path.get(path), now.by_path.get(path)
        if (cache := _cache_of(path)) is not None:
            if before != after and after is not None:
                removed[path if cache in base.by_path else cache] = None
            continue
        if before == after or {each.kind for each in (before, after) if each is not None} == {EntryKind.DIR}:
            continue
        is_protected = is_matched(path, protect)
        if is_protected and not (before is None and is_generated_path(path)):
            tampered.append(path)
        if is_protected or is_setting(path, names):
            if before is None:
                removed[path] = None
            elif before.kind is not EntryKind.DIR:
                restored.append(before)
    return Restoration(restored=tuple(restored), removed=tuple(removed), tampered=tuple(tampered))


def find_caches(tree: Snapshot) -> tuple[str, ...]:
    """Return the folders of compiled Python files in a tree."""
    return tuple(dict.fromkeys(cache for path in tree.by_path if (cache := _cache_of(path)) is not None))


def _cache_of(path: str) -> str | None:
    """Return the folder of compiled Python files that a path is, or is in.

    >>> _cache_of("a/__pycache__/b.pyc"), _cache_of("a/b.py")
    ('a/__pycache__', None)
    """
    parts = path.split("/")
    return "/".join(parts[: parts.index("__pycache__") + 1]) if "__pycache__" in parts else None


def is_matched(path: str, globs: Sequence[str]) -> bool:
    """Return whether a glob matches the path, or names a folder above it.

    >>> [is_matched("tests/unit/a.py", [glob]) for glob in ("tests/**", "tests", "tests/*.py", "test")]
    [True, True, False, False]
    """
    return any(fits(path, glob) or path.startswith(f"{glob.rstrip('/')}/") for glob in globs)


def is_setting(path: str, names: Collection[str] = ()) -> bool:
    """Return whether a file decides what a test run does, for Python or pytest or by one of `names`.

    >>> [is_setting(path) for path in ("a/conftest.py", "sitecustomize/x.py", "a.pth", "conftest.txt", "tox.ini")]
    [True, True, True, False, False]
    """
    parts = PurePosixPath(path).parts
    name = parts[-1]
    return (
        name == "conftest.py"
        or name.endswith(".pth")
        or name in PYTEST_FILES
        or name in names
        or any(part.partition(".")[0] in _STARTUP_MODULES for part in parts)
    )


def restore(entries: Sequence[Entry], untouched: UntouchedTree, *, layer: Path) -> None:
    """Copy entries of the untouched workspace into a layer.

    Raises MachineError if one of them is no longer as it was, or the layer cannot be written.
    """
    for entry in entries:
        assert untouched.folder is not None, "an empty workspace has no entries"
        target = layer / entry.path
        make_parents(entry.path, layer=layer, like=untouched.folder)
        content = read_untouched(entry.path, untouched)
        try:
            if content is None:
                target.symlink_to(entry.target or "")
            else:
                target.write_bytes(content)
                target.chmod(0o755 if entry.executable else 0o644)
        except OSError as error:
            raise disk_error(error, path=target) from error


def read_untouched(path: str, untouched: UntouchedTree) -> bytes | None:
    """Return the content of a file of the untouched workspace; None if there was no such file.

    Raises MachineError if it is no longer as it was.
    """
    entry = untouched.tree.by_path.get(path)
    if entry is None or entry.kind is not EntryKind.FILE or untouched.folder is None:
        return None
    content = b""
    with suppress(OSError), open_regular(untouched.folder / path) as stream:
        content = stream.read(entry.size_bytes + 1)
    if digest_bytes(content) != entry.sha256:
        what = f"{quoted(path)} of the frozen workspace has changed since the run began"
        raise MachineError("workspace.base-changed", what)
    return content


def make_parents(path: str, *, layer: Path, like: Path) -> None:
    """Make the parent folders of a path in a layer, with the modes that they have in `like`."""
    for parent in [Path(), *[*Path(path).parents][-2::-1]]:
        place, model = layer / parent, like / parent
        try:
            if not place.exists():
                place.mkdir(mode=0o700)
            if model.is_dir():
                place.chmod(stat.S_IMODE(model.stat().st_mode))
        except OSError as error:
            raise disk_error(error, path=place) from error
