import shutil
import sys
from pathlib import Path

import anyio
import pytest

from proctor.contain.bundled import CODEX_WHEEL, bundled_file
from proctor.contain.intent import open_intents
from proctor.contain.ladder import (
    FORCE_VARIABLE,
    Containment,
    FeatureTest,
    Variant,
    choose,
    survey,
)
from proctor.errors import InputError, MachineError
from proctor.evidence.redact import Redactor
from proctor.fact import Authority, Fact
from proctor.probe.model import Phase, ProbeRow, Verdict, ViewKind
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.command_probes import HeadlessRun
from proctor.workspace.snapshot import snapshot


@pytest.fixture
def bundled_bwrap() -> Path:
    path = bundled_file(CODEX_WHEEL, "codex-resources/bwrap")
    assert path is not None
    return path


@pytest.fixture(autouse=True)
def _nothing_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORCE_VARIABLE, raising=False)


def found(variant: Variant) -> FeatureTest:
    return FeatureTest(variant=variant, is_available=True, why="works", tools=(f"/bin/{variant}",))


def absent(variant: Variant) -> FeatureTest:
    return FeatureTest(variant=variant, is_available=False, why=f"{variant} is broken")


ALL_FOUND = tuple(map(found, Variant))


def test_a_bwrap_on_the_path_is_found_by_running_it(tmp_path: Path, bundled_bwrap: Path) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.symlink_to(bundled_bwrap)

    finding = survey(search_path=str(tmp_path))[0]

    assert finding == FeatureTest(
        variant=Variant.BWRAP,
        is_available=True,
        why=f"{bwrap} works here, with overlay mounts",
        tools=(str(bwrap),),
        has_overlays=True,
    )


def test_without_bwrap_on_the_path_the_bundled_one_is_found_and_chosen(tmp_path: Path, bundled_bwrap: Path) -> None:
    findings = survey(search_path=str(tmp_path), bundled_bwrap=bundled_bwrap)

    assert [each.is_available for each in findings[:3]] == [False, True, False]
    assert choose(findings).program == str(bundled_bwrap)


def old_bwrap(folder: Path, bundled_bwrap: Path) -> Path:
    """A bwrap that does not know the options for overlays, as that of Debian 12."""
    bwrap = folder / "bwrap"
    refuse = 'for word; do case $word in --*overlay*) echo "bwrap: Unknown option $word" >&2; exit 1;; esac; done'
    bwrap.write_text(f'#!/bin/sh\n{refuse}\nexec {bundled_bwrap} "$@"\n')
    bwrap.chmod(0o755)
    return bwrap


@pytest.mark.requirement("probe.cost")
def test_bwrap_with_overlays_is_preferred_to_one_on_the_path_without(tmp_path: Path, bundled_bwrap: Path) -> None:
    bwrap = old_bwrap(tmp_path, bundled_bwrap)

    both = choose(survey(search_path=str(tmp_path), bundled_bwrap=bundled_bwrap))
    only_old = survey(search_path=str(tmp_path))

    assert (both.program, both.has_overlays) == (str(bundled_bwrap), True)
    assert (choose(only_old).program, choose(only_old).has_overlays) == (str(bwrap), False)
    assert only_old[0].why == (
        f"{bwrap} works here, without overlay mounts: {bwrap} fails here: bwrap: Unknown option --overlay-src"
    )


@pytest.mark.requirement("probe.cost")
def test_view_of_a_probe_is_an_overlay_if_one_bwrap_has_overlays_and_a_copy_if_none_has(
    tmp_path: Path, bundled_bwrap: Path
) -> None:
    path, subject, scratch = (tmp_path / name for name in ("path", "subject", "scratch"))
    for folder in (path, subject, scratch):
        folder.mkdir()
    old_bwrap(path, bundled_bwrap)
    (subject / "a.txt").write_text("a\n")

    async def probe(containment: Containment) -> ProbeRow:
        async with open_intents(tmp_path / "spawns") as intents:
            return await run_probe(
                HeadlessRun(command=["cat", "a.txt"], stdout="a\n"),
                index=0,
                phase=Phase.FINAL,
                subject=examine_subject(subject, snapshot(subject).digest),
                scratch=scratch,
                containment=containment,
                intents=intents,
                redactor=Redactor([]),
            )

    both, only_old = survey(search_path=str(path), bundled_bwrap=bundled_bwrap), survey(search_path=str(path))
    rows = [anyio.run(probe, choose(found)) for found in (both, only_old)]
    assert [(row.verdict, row.view) for row in rows] == [
        (Verdict.PASS, ViewKind.OVERLAY),
        (Verdict.PASS, ViewKind.COPY),
    ]


def test_without_any_bwrap_unshare_is_chosen(tmp_path: Path) -> None:
    for name in ("setpriv", "unshare"):
        program = shutil.which(name)
        assert program is not None
        (tmp_path / name).symlink_to(program)

    chosen = choose(survey(search_path=str(tmp_path)))

    assert (chosen.rung, chosen.variant, chosen.tools) == (
        1,
        Variant.UNSHARE,
        (str(tmp_path / "setpriv"), str(tmp_path / "unshare")),
    )


def test_where_there_is_no_tool_at_all_a_lower_rung_is_chosen(tmp_path: Path) -> None:
    findings = survey(search_path=str(tmp_path))

    chosen = choose(findings)
    assert chosen.variant is (Variant.CGROUP if findings[3].is_available else Variant.WARDEN)
    assert choose([each for each in findings if each.rung == 3]).tools == (sys.executable,)


def test_a_cgroup_is_found_by_putting_a_process_into_one_or_says_why_it_cannot_be_had(tmp_path: Path) -> None:
    finding = survey(search_path=str(tmp_path))[3]

    if finding.is_available:
        shell, cgroup = finding.tools
        assert (shell, finding.why) == ("/bin/sh", f"{Path(cgroup).parent} is delegated")
        assert not (Path(cgroup).parent / f"{Path(cgroup).name}-trial").exists(), "the trial is gone"
    else:
        assert finding.why.endswith(("is mounted", "is needed")) or " is not delegated: " in finding.why


def test_a_wrapper_that_fails_is_not_found_and_its_last_words_say_why(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho first >&2\necho No permissions to create a namespace >&2\nexit 1\n")
    fake.chmod(0o755)

    assert survey(search_path=str(tmp_path))[0] == FeatureTest(
        variant=Variant.BWRAP, is_available=False, why=f"{fake} fails here: No permissions to create a namespace"
    )


def test_a_wrapper_that_cannot_be_executed_is_not_found(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/nonexistent/interpreter\n")
    fake.chmod(0o755)

    assert survey(search_path=str(tmp_path))[0] == FeatureTest(
        variant=Variant.BWRAP, is_available=False, why=f"{fake} cannot be started: No such file or directory"
    )


def test_every_way_is_tried_once_a_process(tmp_path: Path, bundled_bwrap: Path) -> None:
    first = survey(search_path=str(tmp_path), bundled_bwrap=bundled_bwrap)

    assert [each.variant for each in first] == list(Variant)
    assert survey(search_path=str(tmp_path), bundled_bwrap=bundled_bwrap) is first


@pytest.mark.parametrize("lost", range(5))
def test_the_first_way_found_is_chosen(lost: int) -> None:
    variants = list(Variant)
    findings = [*map(absent, variants[:lost]), *map(found, variants[lost:])]

    assert choose(findings).variant is variants[lost]


@pytest.mark.parametrize("variant", Variant)
def test_one_way_can_be_forced(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, variant)

    assert choose(ALL_FOUND).variant is variant


def test_a_forced_way_that_does_not_work_is_refused_though_another_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, "unshare")

    with pytest.raises(MachineError) as refused:
        choose([found(Variant.BWRAP), absent(Variant.UNSHARE)])

    assert (refused.value.code, refused.value.what) == (
        "machine.no-containment",
        "PROCTOR_CONTAINMENT=unshare does not work here: unshare is broken",
    )


@pytest.mark.parametrize("value", ["docker", "BWRAP"])
def test_forcing_what_there_is_not_is_a_usage_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_VARIABLE, value)

    with pytest.raises(InputError) as refused:
        choose(ALL_FOUND)

    assert refused.value.code == "usage"
    assert refused.value.suggestion == "Known variants: bwrap, bundled-bwrap, unshare, cgroup, warden."


def test_where_there_is_no_way_the_refusal_says_what_was_tried() -> None:
    with pytest.raises(MachineError) as refused:
        choose(map(absent, Variant))

    assert refused.value.code == "machine.no-containment"
    assert refused.value.what == (
        "no way to contain a process tree works here (bwrap: bwrap is broken; bundled-bwrap: bundled-bwrap is broken; "
        "unshare: unshare is broken; cgroup: cgroup is broken; warden: warden is broken)"
    )


@pytest.mark.requirement("attempt.no-orphans")
def test_the_containment_is_a_fact_that_states_its_limits() -> None:
    containment = Containment(
        variant=Variant.UNSHARE,
        tools=("/b/setpriv", "/b/unshare"),
        catches=("a tree",),
        misses=("a daemon's work",),
    )

    assert containment.fact() == Fact(
        value={
            "rung": 1,
            "variant": "unshare",
            "program": "/b/setpriv",
            "overlays": False,
            "catches": ("a tree",),
            "misses": ("a daemon's work",),
        },
        authority=Authority.OBSERVED,
        source="trial run on this machine",
    )
    assert all("docker" in choose([found(each)]).misses[0] for each in Variant)
