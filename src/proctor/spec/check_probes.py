"""Check the meaning of decoded probes. Each error names its file, line and key."""

from collections.abc import Iterator, Mapping

from proctor.errors import InputError
from proctor.spec.duration import parse_duration_s
from proctor.spec.missions import MissionSource
from proctor.spec.probe_kinds import UnitTests
from proctor.spec.probe_options import OUT, Role
from proctor.spec.struct import Duration


def probe_errors(source: MissionSource) -> Iterator[InputError]:
    """Yield the errors of a mission's probes and waivers."""
    mission = source.mission
    for at, probe in enumerate(mission.probes):
        key = f"probes[{at}]"
        if probe.mutant is not None and probe.role is not Role.GUARD:
            what = "`mutant` has no effect on a goal, which must fail on the untouched workspace already"
            suggestion = "Add `role: guard`, or remove `mutant`."
            yield source.error("spec.unsupported", what, key=f"{key}.mutant", suggestion=suggestion)
        if probe.repeat is not None and probe.repeat.need > probe.repeat.runs:
            what = f"{probe.repeat.need} passes are needed, but the probe runs {probe.repeat.runs} times"
            yield source.error("spec.type", what, key=f"{key}.repeat.need")
        yield from duration_errors(source, {f"{key}.timeout": probe.timeout})
        if isinstance(probe, UnitTests):
            yield from _unit_tests_errors(source, key, probe)
    stated = {probe.criterion for probe in mission.probes}
    for at, waiver in enumerate(mission.waive):
        if waiver.criterion not in stated:
            what = f"no probe of the mission has the criterion `{waiver.criterion}`"
            yield source.error("spec.unsupported", what, key=f"waive[{at}].criterion")


def duration_errors(source: MissionSource, durations: Mapping[str, Duration]) -> Iterator[InputError]:
    """Yield an error for each duration, by its key, that cannot be parsed."""
    for key, duration in durations.items():
        try:
            parse_duration_s(duration)
        except ValueError as error:
            yield source.error("spec.type", str(error), key=key)


def is_inside(path: str) -> bool:
    """Return whether a path, as it is written, leads to something inside a folder.

    >>> [is_inside(path) for path in ("src/a.py", "../a.py", "/etc", ".")]
    [True, False, False, False]
    """
    return not path.startswith("/") and not {"", ".", ".."}.intersection(path.rstrip("/").split("/"))


def _unit_tests_errors(source: MissionSource, key: str, probe: UnitTests) -> Iterator[InputError]:
    if probe.command is None and not probe.paths:
        suggestion = "Add `paths:` with the folder of the tests, or `command:`, `report:` and `controls:`."
        what = "it needs the key `paths` or `command`"
        yield source.error("spec.missing-key", what, key=f"{key}.paths", suggestion=suggestion)
    is_pytest = probe.command is None
    for name in () if is_pytest else ("report", "controls"):
        if getattr(probe, name) is None:
            what = f"`command` needs the key `{name}`"
            yield source.error("spec.missing-key", what, key=f"{key}.{name}")
    for name in ("report", "controls") if is_pytest else ("paths",):
        if getattr(probe, name):
            other = "without" if is_pytest else "beside"
            what = f"`{name}` has no effect {other} `command`"
            yield source.error("spec.unsupported", what, key=f"{key}.{name}", suggestion=f"Remove `{name}`.")
    yield from _test_path_errors(source, key, probe)


def _test_path_errors(source: MissionSource, key: str, probe: UnitTests) -> Iterator[InputError]:
    for at, path in enumerate(probe.paths):
        if path.startswith("-") or (path != "." and not is_inside(path.partition("::")[0])):
            what = f"`{path}` is not a path inside the workspace, such as `tests` or `tests/test_shop.py`"
            yield source.error("spec.type", what, key=f"{key}.paths[{at}]")
    if probe.report is not None and not is_inside(probe.report.removeprefix(f"{OUT}/")):
        what = f"`{probe.report}` is not a path inside the workspace or below `{OUT}/`"
        yield source.error("spec.type", what, key=f"{key}.report", suggestion=f"Write `{OUT}/report.xml`.")
    into = None if probe.controls is None else probe.controls.into
    if into is not None and into != "." and not is_inside(into):
        what = f"`{into}` is not a folder inside the workspace, such as `tests`"
        yield source.error("spec.type", what, key=f"{key}.controls.into")
