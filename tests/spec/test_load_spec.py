"""Loading a whole spec: what it means is checked, and each fault is told with its line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from proctor.canonical import digest_bytes
from proctor.errors import InputError
from proctor.event.outcome import Outcome
from proctor.ids import FlowId, MissionId, RuntimeId
from proctor.probe.kinds import KINDS
from proctor.spec.command_probes import HeadlessRun
from proctor.spec.expect import ExpectedVerdict, ExpectSpec
from proctor.spec.load import load_spec
from proctor.spec.model import FlowSpec, MissionSpec, WorkspaceSpec
from tests.spec.good import GOOD, write

Told: TypeAlias = Callable[[Callable[[], object]], list[Any]]

NOT_AN_ID = "is not an id: write lower-case words and digits, joined by single dashes, at most 64 characters"


@pytest.mark.requirement("campaign.matrix")
def test_a_good_spec_is_loaded_with_the_files_it_names(folder: Path) -> None:
    path = write(folder, GOOD)
    loaded = load_spec(path)
    assert loaded.spec.missions == [
        MissionSpec(
            id=MissionId("fix-it"),
            prompt="Fix it.",
            workspace=WorkspaceSpec(copy="tree"),
            probes=[HeadlessRun(command=["python3", "a.py"], stdout="ok\n", timeout=5)],
            script="say.yaml",
            expect=ExpectSpec(verified=ExpectedVerdict.NO, outcome=Outcome.TIMED_OUT),
        )
    ]
    assert loaded.spec.flows[0] == FlowSpec(
        id=FlowId("native"),
        runtime=[RuntimeId("one"), RuntimeId("two")],
        options={RuntimeId("two"): {"max_turns": 3}},
        env={"LANG": "C", "MAX_TOKENS": "200000", "KEY_FILE": "/run/keys/one.pem"},
    )
    assert (loaded.file, loaded.folder) == (str(path), folder)
    assert (loaded.source, loaded.digest) == (GOOD.encode(), digest_bytes(GOOD.encode()))
    assert loaded.scripts == {"say.yaml": folder / "say.yaml"}
    assert loaded.script_digests == {"say.yaml": digest_bytes((folder / "say.yaml").read_bytes())}
    assert loaded.workspaces == {"tree": folder / "tree"}
    assert loaded.line_of("missions[0].probes[0].stdout") == 8


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "version: 1",
            "version: 2\nfuture: {}",
            ("spec.version", 1, "version", "this Proctor supports only `version: 1`", "Install a newer Proctor."),
        ),
        (
            "version: 1",
            "version: 0",
            ("spec.version", 1, "version", "this Proctor supports only `version: 1`", "Write `version: 1`."),
        ),
        (
            "campaign: night",
            "campaign: Night Run!",
            (
                "spec.type",
                2,
                "campaign",
                f"`Night Run!` {NOT_AN_ID}",
                "Write `night-run`.",
            ),
        ),
        (
            "id: fix-it",
            "id: ../../etc",
            (
                "spec.type",
                4,
                "missions[0].id",
                f"`../../etc` {NOT_AN_ID}",
                "Write `etc`.",
            ),
        ),
        (
            "id: native",
            "id: ''",
            (
                "spec.type",
                12,
                "flows[0].id",
                f"`` {NOT_AN_ID}",
                None,
            ),
        ),
        (
            "flows:\n",
            "flows:\n  - {id: native, runtime: [one]}\n",
            ("spec.duplicate-id", 13, "flows[1].id", "the id `native` is already used on line 12", None),
        ),
        (
            "missions:\n",
            "missions:\n  - {id: fix-it, prompt: x, script: say.yaml}\n",
            ("spec.duplicate-id", 5, "missions[1].id", "the id `fix-it` is already used on line 4", None),
        ),
        (
            "script: say.yaml",
            "script: sya.yaml",
            ("spec.missing-file", 9, "missions[0].script", "`sya.yaml` does not exist", "Did you mean `say.yaml`?"),
        ),
        (
            "script: say.yaml",
            "script: tree",
            ("spec.unreadable", 9, "missions[0].script", "`tree` cannot be read: this is a folder, not a file", None),
        ),
        (
            "{copy: tree}",
            "{copy: say.yaml}",
            (
                "spec.missing-file",
                6,
                "missions[0].workspace.copy",
                "`say.yaml` is a file, not a folder",
                "Paths are relative to the spec's folder, {folder}.",
            ),
        ),
        (
            "{copy: tree}",
            "{copy: nowhere/at/all}",
            (
                "spec.missing-file",
                6,
                "missions[0].workspace.copy",
                "`nowhere/at/all` does not exist",
                "Paths are relative to the spec's folder, {folder}.",
            ),
        ),
        (
            "{copy: tree}",
            "{copy: tree/..}",
            (
                "spec.unsupported",
                6,
                "missions[0].workspace.copy",
                "the workspace `tree/..` contains spec.yaml, which the agent must not see",
                "Move the workspace to a separate folder, or name the file in `exclude`.",
            ),
        ),
        (
            "    script: say.yaml\n",
            "",
            (
                "spec.missing-key",
                4,
                "missions[0].script",
                "a flow uses the scripted model, which needs the mission's `script`",
                "Add `script: scripts/….yaml`, or give every flow a real model.",
            ),
        ),
        (
            '    probes:\n      - {kind: headless_run, command: [python3, a.py], stdout: "ok\\n", timeout: 5}\n',
            "",
            (
                "spec.unsupported",
                8,
                "missions[0].expect.verified",
                "`verified: no` needs a probe, and the mission has none",
                "Add a probe, or write `verified: unknown`.",
            ),
        ),
        (
            "timeout: 5}",
            "timeout: soon}",
            (
                "spec.type",
                8,
                "missions[0].probes[0].timeout",
                "`soon` is not a duration: write it like 90s, 2m, 500ms or 1h",
                None,
            ),
        ),
        (
            "turn: 90s",
            "turn: 0",
            ("spec.type", 16, "limits.turn", "`0` is out of range: write a duration from 1ms to one week (168h)", None),
        ),
        (
            "stall: 500ms",
            "stall: -1",
            ("spec.type", 16, "limits.stall", "`-1` is not a duration: write it like 90s, 2m, 500ms or 1h", None),
        ),
        (
            "two: {max_turns: 3}",
            "tow: {max_turns: 3}",
            (
                "spec.unknown-key",
                14,
                "flows[0].options.tow",
                "the flow does not use the runtime `tow`",
                "Did you mean `two`?",
            ),
        ),
        (
            "two: {max_turns: 3}",
            "auto: {max_turns: 3}",
            (
                "spec.unknown-key",
                14,
                "flows[0].options.auto",
                "`auto` is not a runtime, so it has no options",
                "Write the options under the id of a runtime.",
            ),
        ),
        (
            "LANG: C",
            "A=B: C",
            ("spec.type", 15, 'flows[0].env["A=B"]', "`A=B` is not a valid variable name", None),
        ),
        (
            "runtime: [one, two]",
            "runtime: [one, two]\n    sandbox: danger-full-access",
            (
                "policy.shared-full-access",
                14,
                "flows[0].sandbox",
                "`danger-full-access` needs `isolation: process`: a shared server cannot end escaped processes",
                "Write `isolation: process`.",
            ),
        ),
        (
            "campaign: night",
            "campaign: night\nrepeats: 0",
            ("spec.type", 3, "repeats", "expected an integer >= 1, found 0", None),
        ),
        (
            "campaign: night",
            "campaign: night\nrepeats: 1001",
            ("spec.type", 3, "repeats", "expected an integer <= 1000, found 1001", None),
        ),
        (
            "campaign: night",
            "campaign: night\nschedule: {parallel: 257}",
            ("spec.type", 3, "schedule.parallel", "expected an integer <= 256, found 257", None),
        ),
        (
            "[python3, a.py]",
            "[]",
            ("spec.type", 8, "missions[0].probes[0].command", "expected a list of length >= 1", None),
        ),
        (
            "kind: headless_run",
            "kind: telepathy",
            (
                "spec.type",
                8,
                "missions[0].probes[0].kind",
                f"unknown kind `telepathy`; the kinds are {', '.join(sorted(KINDS))}",
                None,
            ),
        ),
    ],
)
def test_a_fault_of_meaning_is_told_with_its_place(
    folder: Path, told: Told, old: str, new: str, fault: tuple[Any, ...]
) -> None:
    assert GOOD.count(old) == 1
    path = write(folder, GOOD.replace(old, new))
    *rest, suggestion = fault
    expected = (*rest, suggestion and suggestion.replace("{folder}", str(folder)))
    assert told(lambda: load_spec(path)) == [expected]


@pytest.mark.parametrize("group", ["missions", "flows"])
def test_a_campaign_of_nothing_is_refused(folder: Path, told: Told, group: str) -> None:
    other = {"missions": "flows: [{id: a, runtime: [b]}]", "flows": "missions: [{id: a, prompt: b, script: say.yaml}]"}
    path = write(folder, f"version: 1\ncampaign: c\n{group}: []\n{other[group]}\n")
    assert told(lambda: load_spec(path)) == [("spec.type", 3, group, "expected a list of length >= 1", None)]


def test_faults_of_meaning_are_told_at_once(folder: Path, told: Told) -> None:
    text = GOOD.replace("id: fix-it", "id: Fix").replace("script: say", "script: gone").replace("2m", "2 moons")
    path = write(folder, text)
    assert [(line, key) for _, line, key, _, _ in told(lambda: load_spec(path))] == [
        (4, "missions[0].id"),
        (9, "missions[0].script"),
        (16, "limits.attempt"),
    ]


def test_a_script_inside_a_workspace_is_refused(folder: Path, told: Told) -> None:
    (folder / "tree" / "say.yaml").write_text("version: 1\nsteps: [{say: hi}]\n")
    path = write(folder, GOOD.replace("script: say.yaml", "script: tree/say.yaml"))
    assert [(code, key, what) for code, _, key, what, _ in told(lambda: load_spec(path))] == [
        (
            "spec.unsupported",
            "missions[0].workspace.copy",
            "the workspace `tree` contains say.yaml, which the agent must not see",
        )
    ]


def test_a_link_does_not_hide_that_a_workspace_holds_the_spec(folder: Path, told: Told) -> None:
    (folder / "tree" / "home").symlink_to(folder)
    path = write(folder, GOOD.replace("{copy: tree}", "{copy: tree/home}"))
    assert [code for code, *_ in told(lambda: load_spec(path))] == ["spec.unsupported"]


def test_one_scripted_flow_is_enough_to_need_a_script(folder: Path, told: Told) -> None:
    real = "flows:\n  - {id: real, runtime: [one], model: {provider: openai, name: m}, login: inherit}\n"
    path = write(folder, GOOD.replace("    script: say.yaml\n", "").replace("flows:\n", real))
    assert [(code, key) for code, _, key, _, _ in told(lambda: load_spec(path))] == [
        ("spec.missing-key", "missions[0].script")
    ]


def test_a_workspace_that_cannot_be_looked_at_is_unreadable(folder: Path, told: Told) -> None:
    name = "x" * 300
    path = write(folder, GOOD.replace("{copy: tree}", f"{{copy: {name}}}"))
    assert [(code, line, what) for code, line, _, what, _ in told(lambda: load_spec(path))] == [
        ("spec.unreadable", 6, f"`{name}` cannot be read: File name too long")
    ]


def test_a_real_model_needs_no_script(folder: Path) -> None:
    text = GOOD.replace("    script: say.yaml\n", "") + "model: {provider: openai, name: some-model}\nlogin: api-key\n"
    assert load_spec(write(folder, text)).scripts == {}


def test_full_access_is_granted_to_a_process_of_its_own(folder: Path) -> None:
    text = GOOD.replace("id: native", "id: native\n    isolation: process\n    sandbox: danger-full-access")
    assert load_spec(write(folder, text)).spec.flows[0].sandbox == "danger-full-access"


def test_secrets_are_names_of_variables(folder: Path, told: Told) -> None:
    path = write(folder, GOOD.replace("[OPENAI_API_KEY]", "[my key]"))
    assert [(code, key, what) for code, _, key, what, _ in told(lambda: load_spec(path))] == [
        ("spec.type", "secrets[0]", "this is not the name of an environment variable")
    ]


def test_a_spec_is_named_as_the_user_named_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, GOOD)
    monkeypatch.chdir(folder)
    loaded = load_spec(Path("spec.yaml"))
    assert (loaded.file, loaded.folder) == ("spec.yaml", folder)


def test_a_spec_that_is_not_there_is_told_with_the_name_that_may_have_been_meant(tmp_path: Path) -> None:
    (tmp_path / "two-vendors.yaml").touch()
    with pytest.raises(InputError) as caught:
        load_spec(tmp_path / "two-vendor.yaml")
    assert (caught.value.code, caught.value.suggestion) == (
        "spec.unreadable",
        f"Did you mean `{tmp_path / 'two-vendors.yaml'}`?",
    )
