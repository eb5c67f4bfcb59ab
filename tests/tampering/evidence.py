"""A copy of genuine evidence: where its parts are, and what a command answers about it."""

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.surface.cli.app import answer

FINDING_KEYS = ("findings", "finding", "problem", "reasons", "error", "errors")
"""The keys under which the JSON of a command names what is wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit code of a command and what it names: a code and, where there is one, a file."""

    exit: int
    named: frozenset[str]
    output: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """An evidence root that a case may damage.

    `places` are its parts as they were before that, by the names that cases use: `root`, `campaign`, `run`, `process`,
    the mission of each attempt, `spec`, the spec that the campaign was made from, `keys`, the folder with SSH keys and
    lists of allowed signers, and `beside`, the folder that the root is in.
    """

    root: Path
    places: Mapping[str, str]

    def path(self, place: str) -> Path:
        """Such as `{fix}/prompt.txt`."""
        return Path(place.format_map(self.places))

    def ask(self, command: str) -> Answer:
        """Run the command in this process, with `--json`."""
        words = [word.format_map(self.places) for word in command.split()]
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = answer([*words, "--root", str(self.root), "--json"])
        said = stdout.getvalue()
        found = _findings(json.loads(said)) if said else ()
        return Answer(exit=code, named=frozenset(map(self._plain, found)), output=said + stderr.getvalue())

    def _plain(self, finding: str) -> str:
        """Without what differs from one run to the next."""
        for name in ("campaign", "run", "process"):
            finding = finding.replace(Path(self.places[name]).name, name.upper())
        return finding.replace(f"{self.root}/", "")


def copy_evidence(genuine: Path, root: Path, *, keys: Path) -> Evidence:
    """A root of a campaign with one run, copied whole."""
    shutil.copytree(genuine, root)
    [campaign], [run] = (root / "campaigns").iterdir(), (root / "runs").iterdir()
    attempts = {folder.name.partition(".")[0]: folder for folder in (run / "attempts").iterdir()}
    process = next((run / "runtimes").glob("*"), run)
    others = {"spec": genuine.with_name("spec.yaml"), "keys": keys, "beside": root.parent}
    places = {"root": root, "campaign": campaign, "run": run, "process": process, **attempts, **others}
    return Evidence(root=root, places={name: str(path) for name, path in places.items()})


def _findings(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                if key in FINDING_KEYS:
                    for each in inner if isinstance(inner, list) else [inner]:
                        if isinstance(each, dict):
                            yield f"{each['code']} {each.get('file') or ''}".rstrip()
                yield from _findings(inner)
        case list():
            for inner in value:
                yield from _findings(inner)
