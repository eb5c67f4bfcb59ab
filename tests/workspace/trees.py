"""Trees for tests: written from a mapping, and read back into one."""

import os
import stat
from pathlib import Path

from hypothesis import strategies as st

from proctor.workspace.walk import read_link

# path → bytes (a file), str (a link's target), None (a folder); a name ending in `*` is executable.
Tree = dict[str, bytes | str | None]


def write(root: Path, tree: Tree) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for path, content in tree.items():
        place = root / path.removesuffix("*")
        place.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case None:
                place.mkdir(exist_ok=True)
            case str():
                place.symlink_to(content)
            case bytes():
                place.write_bytes(content)
                place.chmod(0o755 if path.endswith("*") else 0o644)
    return root


def read(root: Path) -> Tree:
    """Folders are told only where they are empty."""
    tree: Tree = {}
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        for name in (*folders, *files):
            place = here / name
            path = str(place.relative_to(root))
            if place.is_symlink():
                tree[path] = read_link(place)
            elif place.is_file():
                tree[path + ("*" if place.stat().st_mode & stat.S_IXUSR else "")] = place.read_bytes()
            elif not any(place.iterdir()):
                tree[path] = None
    return tree


NAMES = st.sampled_from(["a", "b", "c d", "é", 'q"', "back\\slash", "two\nlines", os.fsdecode(b"bad\xff"), "tab\t"])
LINES = st.lists(st.sampled_from([b"one\n", b"two\n", b"three\n", b"\n", b"cr\r\n", b"\xc3\xa9\n"]), max_size=30)
TEXTS = st.builds(lambda lines, end: b"".join(lines) + end, LINES, st.sampled_from([b"", b"no newline"]))
# None is a loop: `git apply` cannot replace one by a folder.
TARGETS = st.sampled_from([".", "nowhere", "no where/é", "no\nwhere"])


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Two levels, so that a name may be a file in one tree and a folder in another."""
    tree: Tree = {}
    for name in draw(st.sets(NAMES, max_size=4)):
        for path in (
            [name] if draw(st.booleans()) else [f"{name}/{inner}" for inner in draw(st.sets(NAMES, max_size=2))]
        ):
            leaf: bytes | str = draw(st.one_of(TEXTS, TARGETS))
            executable = isinstance(leaf, bytes) and draw(st.booleans())
            tree[path + ("*" if executable else "")] = leaf
    return tree
