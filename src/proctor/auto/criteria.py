"""The goal of an auto run and the criteria that decide about it, as the spec of a campaign with one mission."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor import canonical
from proctor.config.project import find_extensions, load_project_built
from proctor.errors import InputError
from proctor.ids import Digest
from proctor.spec.collect_errors import raise_collected
from proctor.spec.criteria_file import CriteriaSpec, read_criteria
from proctor.spec.load import LoadedSpec
from proctor.spec.model import MissionSpec
from proctor.spec.source_file import SourceFile

MISSION: Final = "goal"
FLOW: Final = "agent"
_NAME: Final = "auto"
_KEYS: Final = ("task_class", "probes", "overlay", "protect")
_MISSION_KEY: Final = re.compile(rf"missions\[0\]\.((?:{'|'.join(_KEYS)})\b.*)")


def read_project_criteria(path: Path) -> SourceFile[CriteriaSpec]:
    """Read a criteria file with the config for its folder. Raises InputError with all errors of syntax and type."""
    return read_criteria(path, find_kind=find_extensions(path.absolute().parent).find_kind)


def load_goal(
    goal: str,
    criteria: SourceFile[CriteriaSpec] | CriteriaSpec,
    *,
    folder: Path,
    workspace: Mapping[str, Any],
    flow: Mapping[str, Any],
    settings: Mapping[str, Any],
    script: str | None = None,
) -> LoadedSpec:
    """Return the spec of a campaign whose one mission is the goal.

    `folder` is the one that paths in the criteria, `workspace` and `script` are relative to. `flow` are the keys of the
    flow besides its id, and `settings` other keys of the spec. `script` is what the scripted model plays. Raises
    InputError with all errors; those in a criteria file are at its lines.
    """
    value = criteria.value if isinstance(criteria, SourceFile) else criteria
    mission = {"id": MISSION, "prompt": goal, "workspace": dict(workspace), **msgspec.to_builtins(value)}
    if script is not None:
        mission["script"] = script
    spec = {
        "version": 1,
        "campaign": _NAME,
        "missions": [mission],
        "flows": [{"id": FLOW, **flow}],
        **settings,
    }
    try:
        loaded = load_project_built(spec, name=f"{_NAME}.yaml", folder=folder)
    except InputError as error:
        if not isinstance(criteria, SourceFile):
            raise
        raise_collected([_relocate(each, criteria) for each in error.all_errors])
    if not loaded.missions[0].probes:
        what = "the criteria have no probe, so nothing could be verified"
        where = criteria.file if isinstance(criteria, SourceFile) else None
        raise InputError("spec.missing-key", what, file=where, key="probes")
    return loaded


def _relocate(error: InputError, criteria: SourceFile[CriteriaSpec]) -> InputError:
    """Return an error about the mission as one about the criteria file that it was made from."""
    match = _MISSION_KEY.fullmatch(error.key or "")
    if match is None:
        return error
    return criteria.error(error.code, error.what, key=match[1], suggestion=error.suggestion)


def criteria_digest(loaded: LoadedSpec, *, overlay: Digest | None) -> Digest:
    """Return the digest of everything that decides about the goal: probes, protected files, and all files they need.

    `overlay` is the digest of the hidden files. Task classes are expanded, so it does not change with the config.
    """
    mission: MissionSpec = loaded.missions[0]
    needed = {path: digest for path, digest in loaded.source_digests.items() if path != mission.script}
    return canonical.digest([mission.task_class, mission.probes, list(mission.protect), needed, overlay])
