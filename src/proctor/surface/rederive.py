"""The derived files of one attempt, made again: compared where they are, put back where they are gone."""

import hashlib
import os

import msgspec

from proctor.attempt.recheck import Fate, agrees, derive_again, restore
from proctor.errors import EvidenceError, Exit
from proctor.evidence.artifacts import SealedFile
from proctor.evidence.layout import AttemptPaths
from proctor.evidence.reader import Problem
from proctor.evidence.seal import read_seal


class Rederivation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of each file, what is wrong, and the exit code that this comes to."""

    attempt_id: str
    dir: str
    is_dry: bool
    exit: int
    files: dict[str, Fate]
    problems: tuple[Problem, ...]


def rederive_files(paths: AttemptPaths, *, is_dry: bool) -> Rederivation:
    """EvidenceError where there is nothing to derive from."""
    if is_dry:
        fates, problems = _compare(paths)
    else:
        done = restore(paths)
        fates, problems = done.files, done.problems
    told = (
        *problems,
        *(
            Problem(code="evidence.derived", file=name, detail="not what the frames give")
            for name, fate in fates.items()
            if fate is Fate.DIFFERS
        ),
        *(
            Problem(code="evidence.missing-file", file=name, detail="absent")
            for name, fate in fates.items()
            if fate is Fate.ABSENT
        ),
    )
    is_cut_off = any(problem.code == "evidence.partial" for problem in told)
    excused = {"evidence.partial", "evidence.torn", "evidence.missing-file"} if is_cut_off else set()
    is_invalid = any(problem.code not in excused for problem in told)
    return Rederivation(
        attempt_id=paths.folder.name,
        dir=str(paths.folder),
        is_dry=is_dry,
        exit=Exit.EVIDENCE if is_invalid else Exit.UNVERIFIED if is_cut_off else Exit.OK,
        files=fates,
        problems=told,
    )


def _compare(paths: AttemptPaths) -> tuple[dict[str, Fate], tuple[Problem, ...]]:
    again = derive_again(paths)
    problems = again.problems
    sealed: dict[str, SealedFile] = {}
    try:
        sealed = read_seal(paths.seal).files
    except EvidenceError as error:
        problems = (*problems, Problem.of(error))
    fates = {}
    for name, data in again.files.items():
        path = paths.folder / name
        if os.path.lexists(path):
            fates[name] = Fate.SAME if agrees(path, again, is_sealed=bool(sealed)) else Fate.DIFFERS
        else:
            would_be = SealedFile(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
            fates[name] = Fate.ABSENT if sealed.get(name, would_be) == would_be else Fate.DIFFERS
    return fates, problems
