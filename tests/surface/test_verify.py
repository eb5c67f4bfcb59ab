"""`proctor sign` and `proctor verify`, with real SSH keys, on evidence of the real agent."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.evidence.layout import AttemptPaths, RunPaths
from tests.attempt.forge import alter_json, alter_rows, reseal
from tests.keys import fingerprint, make_key, public
from tests.surface.conftest import Quickstart, Said, ask

pytestmark = pytest.mark.real_agent

WHOLE = "complete: files, chains, seals and derived files agree"
INTEGRITY_ONLY = "integrity only: shows damage, not forgery"
HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "sign-evidence.md"


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, with a list beside it on which only its owner stands."""
    key = make_key(tmp_path_factory.mktemp("ada"), "ada")
    key.with_name("allowed").write_text(f"ada@example.org {public(key)}\n")
    return key


def sign(quickstart: Quickstart, key: Path, *words: str, place: Path | None = None) -> Said:
    return ask(quickstart.lab, "sign", str(place or quickstart.lab.root), "--key", str(key), "--json", *words)


def verify(quickstart: Quickstart, *words: str, place: Path | None = None) -> tuple[int, Any]:
    said = ask(quickstart.lab, "verify", str(place or quickstart.lab.root), "--json", *words)
    assert said.stderr == ""
    return said.code, said.json


def trusting(key: Path) -> tuple[str, str]:
    return "--allowed-signers", str(key.with_name("allowed"))


def findings(found: dict[str, Any]) -> set[tuple[str, str]]:
    wrong = [finding for each in found["evidence"]["examined"] for finding in each["findings"]]
    wrong += [each["finding"] for each in found["seals"] if each["finding"] is not None]
    return {(each["code"], each["file"]) for each in wrong}


def forge(paths: AttemptPaths) -> None:
    """What was only claimed becomes verified, consistently, and the seal is made anew; a signature is put back."""
    other = "sha256:" + "1" * 64
    passed = {"verdict": "pass", "workspaceDigest": other, "summary": "printed what it should"}
    alter_rows(paths.probes, lambda rows: [rows[0], {**rows[1], **passed}])
    keys = {"verified": False, "outcome": True}
    missed = {"met": False, "keys": keys, "unmet": ["verified: expected no, got yes"]}
    changed = {"workspaceDigestAfter": other, "hasChangedFiles": True}
    folder = {"files": [], "filesLeftOut": 0, "generatedFiles": 0, "generatedLines": 0, "otherPaths": 1}
    failure = {"probes": [], "probesLeftOut": 0, "diff": folder}
    criterion = {"criterion": "probe 1 (headless_run)", "verified": True, "probes": [0], "waivedBy": None}
    shown = {"reasons": [], "reasonCodes": [], "criteria": [criterion], "failure": failure}
    alter_json(paths.report, verified=True, judged="outside", expectation=missed, **shown, **changed)
    paths.workspace_diff.write_text("# new folder made (empty)\n")
    signature, aside = paths.folder / "seal.json.sig", paths.folder.parent.parent / "aside"
    if signature.exists():
        signature.rename(aside)
    reseal(paths)
    if aside.exists():
        aside.rename(signature)


@pytest.mark.requirement("evidence.signed")
def test_a_forgery_that_is_sealed_anew_passes_as_integrity_only_and_fails_when_it_claims_a_signature(
    quickstart: Quickstart, ada: Path
) -> None:
    claim = AttemptPaths(quickstart.folder("claim"))
    unsigned = Path(
        shutil.copytree(claim.folder, quickstart.lab.folder / "runs" / "r" / "attempts" / claim.folder.name)
    )
    assert sign(quickstart, ada).code == 0
    forge(AttemptPaths(unsigned))
    code, found = verify(quickstart, place=unsigned)
    assert (code, found["established"], findings(found)) == (0, [WHOLE, INTEGRITY_ONLY], set())
    forge(claim)
    for words in ((), trusting(ada), ("--signed", *trusting(ada))):
        code, found = verify(quickstart, *words, place=claim.folder)
        assert (code, found["established"]) == (5, [WHOLE, "the signature is not valid"])
        assert findings(found) == {("evidence.signature", "seal.json.sig")}
    (claim.folder / "seal.json.sig").unlink()
    assert verify(quickstart, *trusting(ada), place=claim.folder)[1]["established"] == [WHOLE, INTEGRITY_ONLY]
    code, found = verify(quickstart, "--signed", *trusting(ada), place=claim.folder)
    assert (code, findings(found)) == (5, {("evidence.unsigned", "seal.json")})


@pytest.mark.requirement("evidence.signed")
def test_what_is_signed_names_its_signer_for_an_attempt_a_run_a_campaign_and_a_root(
    quickstart: Quickstart, ada: Path
) -> None:
    root = quickstart.lab.root
    said = sign(quickstart, ada)
    assert (said.code, len(said.json["signed"]), said.json["kept"]) == (0, 5, [])
    assert said.json["allowedSigner"] == f'ada@example.org namespaces="proctor-seal" {public(ada)}'
    [run], [campaign] = (root / "runs").iterdir(), (root / "campaigns").iterdir()
    signer = f"signed by ada@example.org ({fingerprint(ada)})"
    for place, seals in ((quickstart.folder("fix"), 1), (run, 5), (campaign, 5), (root, 5)):
        code, found = verify(quickstart, "--signed", *trusting(ada), place=place)
        assert (code, found["established"], len(found["seals"])) == (0, [WHOLE, signer], seals)
    assert ask(quickstart.lab, "validate", "--strict").code == 0
    assert quickstart.lab.proctor("verify", str(root), *trusting(ada)).stdout == (
        f"valid: 4 attempts and 1 agent process, checked strictly\n\n{WHOLE}\n{signer}\n"
    )


def test_a_key_nobody_vouches_for_is_integrity_only_and_refused_by_a_list_without_it(
    quickstart: Quickstart, ada: Path, tmp_path: Path
) -> None:
    eve = make_key(tmp_path, "eve")
    fix = quickstart.folder("fix")
    assert sign(quickstart, eve, place=fix).code == 0
    code, found = verify(quickstart, place=fix)
    words = f"signed by an unknown key ({fingerprint(eve)}), {INTEGRITY_ONLY}"
    assert (code, found["established"]) == (0, [WHOLE, words])
    code, found = verify(quickstart, *trusting(ada), place=fix)
    assert (code, found["established"]) == (5, [WHOLE, "signed, but not by an allowed signer"])
    assert findings(found) == {("evidence.signer", "seal.json.sig")}


def test_how_many_seals_are_signed_is_told_and_signing_again_signs_only_the_rest(
    quickstart: Quickstart, ada: Path
) -> None:
    [run] = map(RunPaths, (quickstart.lab.root / "runs").iterdir())
    [process] = run.runtimes()
    sign(quickstart, ada)
    (quickstart.folder("ask") / "seal.json.sig").unlink()
    (process.folder / "process.json.sig").unlink()
    # As a signing leaves it that was killed.
    (quickstart.folder("ask") / ".seal.json.sig.tmp").write_bytes(b"half")
    assert findings(verify(quickstart)[1]) == {("evidence.extra-file", ".seal.json.sig.tmp")}
    again = sign(quickstart, ada, "--identity", "ada").json
    assert [Path(file).name for file in again["signed"]] == ["seal.json", "process.json"]
    assert (len(again["kept"]), again["allowedSigner"].partition(" ")[0]) == (3, "ada")
    (quickstart.folder("ask") / "seal.json.sig").unlink()
    code, found = verify(quickstart, *trusting(ada))
    signer = f"4 of 5 seals: signed by ada@example.org ({fingerprint(ada)})"
    assert (code, found["established"]) == (0, [WHOLE, f"1 of 5 seals: {INTEGRITY_ONLY}", signer])
    assert sign(quickstart, ada).json["signed"] == [str(quickstart.folder("ask") / "seal.json")]
    kept = sign(quickstart, ada).json
    assert (kept["signed"], len(kept["kept"]), kept["allowedSigner"]) == ([], 5, None)


def test_damage_under_a_good_signature_is_invalid_and_what_is_invalid_is_not_signed(
    quickstart: Quickstart, ada: Path
) -> None:
    fix = quickstart.folder("fix")
    sign(quickstart, ada, place=fix)
    (fix / "prompt.txt").write_text("Do nothing.")
    code, found = verify(quickstart, "--signed", *trusting(ada), place=fix)
    assert (code, found["established"][0]) == (5, "invalid: nothing is established")
    assert ("evidence.digest", "prompt.txt") in findings(found)
    refused = sign(quickstart, ada)
    assert (refused.code, refused.json["error"]["code"]) == (5, "evidence.digest")
    assert [str(path.parent) for path in quickstart.lab.root.rglob("*.sig")] == [str(fix)]


def test_a_good_signature_cannot_be_carried_to_another_attempt(quickstart: Quickstart, ada: Path) -> None:
    sign(quickstart, ada)
    fix, claim = quickstart.folder("fix"), quickstart.folder("claim")
    shutil.copy(fix / "seal.json.sig", claim / "seal.json.sig")
    assert findings(verify(quickstart, place=claim)[1]) == {("evidence.signature", "seal.json.sig")}
    shutil.rmtree(claim)
    shutil.copytree(fix, claim)
    code, found = verify(quickstart, "--signed", *trusting(ada), place=claim)
    assert code == 5
    assert ("evidence.ids", "attempt.json") in findings(found)


def test_what_was_cut_off_is_partial_and_a_signature_without_its_seal_is_a_stranger(
    quickstart: Quickstart, ada: Path
) -> None:
    ask_ = quickstart.folder("ask")
    sign(quickstart, ada)
    (ask_ / "seal.json").rename(ask_.parent.parent / "aside")
    assert findings(verify(quickstart, place=ask_)[1]) == {
        ("evidence.partial", "seal.json"),
        ("evidence.extra-file", "seal.json.sig"),
    }
    (ask_ / "seal.json.sig").unlink()
    code, found = verify(quickstart, place=ask_)
    assert (code, found["established"]) == (4, ["partial: the files that exist agree, but some are missing"])
    refused = sign(quickstart, ada, place=ask_)
    assert (refused.code, refused.json["error"]["code"]) == (5, "evidence.partial")


def test_no_other_file_may_stand_beside_a_seal(quickstart: Quickstart) -> None:
    fix = quickstart.folder("fix")
    for name in ("seal.json.sig2", "attempt.json.sig", "seal.sig"):
        (fix / name).write_text("")
        assert findings(verify(quickstart, place=fix)[1]) == {("evidence.extra-file", name)}
        (fix / name).unlink()


@pytest.mark.requirement("evidence.signed")
def test_a_statement_names_every_sealed_file_and_what_the_attempt_came_to(quickstart: Quickstart, ada: Path) -> None:
    claim, file = quickstart.folder("claim"), quickstart.lab.folder / "statement.json"
    run = claim.parent.parent.name
    sign(quickstart, ada)
    code, found = verify(quickstart, *trusting(ada), "--statement", str(file), place=claim)
    assert (code, found["statement"]) == (0, str(file))
    told = json.loads(file.read_text())
    seal, ref = json.loads((claim / "seal.json").read_text()), json.loads((claim / "runner.ref.json").read_text())
    record = json.loads((claim / "attempt.json").read_text())
    [attempt] = told["predicate"]["attempts"]
    summary = attempt["summary"]
    ending = {"runtimeId": "codex_app_server", "outcome": "completed", "code": None, "claimed": True, "verified": False}
    assert ending.items() <= summary.items()
    assert summary["reasons"] == ["`python3 greet.py`: exited 0 and printed 'Hello, world\\n'"]
    assert told == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {
                "name": f"{run}/{claim.name}/{name}",
                "digest": {"sha256": hashlib.sha256((claim / name).read_bytes()).hexdigest()},
            }
            for name in (*seal["files"], "seal.json")
        ],
        "predicateType": "urn:proctor:evidence:v1",
        "predicate": {
            "established": [WHOLE, f"signed by ada@example.org ({fingerprint(ada)})"],
            "attempts": [
                {
                    "attemptId": claim.name,
                    "runId": run,
                    "campaignId": record["campaignId"],
                    "missionId": "claim",
                    "flowId": "codex",
                    "summary": summary,
                    "identity": ref["facts"]["identity"],
                    "containment": ref["facts"]["containment"],
                    "sealedAtMs": seal["sealedAtMs"],
                    "sealDigest": f"sha256:{seal['sha256']}",
                    "signature": {"fingerprint": fingerprint(ada), "identity": "ada@example.org"},
                }
            ],
            "processes": [],
        },
    }
    before = file.read_bytes()
    verify(quickstart, *trusting(ada), "--statement", str(file), place=claim)
    assert file.read_bytes() == before


def test_a_statement_about_a_run_holds_its_processes_too_and_none_is_written_of_what_is_wrong_or_into_it(
    quickstart: Quickstart,
) -> None:
    file, root = quickstart.lab.folder / "statement.json", quickstart.lab.root
    inside = ask(quickstart.lab, "verify", str(root), "--statement", str(root / "statement.json"), "--json")
    assert (inside.code, inside.json["error"]["code"]) == (2, "usage")
    assert verify(quickstart, "--statement", str(file))[0] == 0
    told = json.loads(file.read_text())
    assert (len(told["subject"]), len(told["predicate"]["attempts"])) == (4 * 11 + 2, 4)
    [process] = told["predicate"]["processes"]
    assert (process["runtimeId"], process["signature"]) == ("codex_app_server", None)
    file.unlink()
    (quickstart.folder("fix") / "prompt.txt").write_text("Do nothing.")
    code, found = verify(quickstart, "--statement", str(file))
    assert (code, found["statement"], file.exists()) == (5, None, False)


def test_whatever_is_asked_for_badly_is_told_with_a_code(quickstart: Quickstart, ada: Path) -> None:
    lab, place = quickstart.lab, str(quickstart.folder("fix"))
    os.mkfifo(lab.folder / "pipe")
    key = ("--key", str(ada))
    for words, code in (
        (("verify", "x" * 5000), "evidence.not-found"),
        (("verify", str(lab.folder / "pipe")), "evidence.not-found"),
        (("verify", "/dev/null"), "evidence.not-found"),
        (("verify", "../nowhere"), "evidence.not-found"),
        (("verify", place, "--signed"), "sign.allowed-signers"),
        (("verify", place, "--allowed-signers", "nowhere"), "sign.allowed-signers"),
        (("sign", "x" * 5000, *key), "evidence.not-found"),
        (("sign", place), "usage"),
        (("sign", place, "--key", "nowhere"), "sign.key"),
        (("sign", place, *key, "--identity", "two words"), "usage"),
    ):
        said = ask(lab, *words, "--json")
        assert (said.code, said.json["error"]["code"], said.stderr) == (2, code, "")
    alone = lab.proctor("sign", place, *key, "--json", PATH="/nowhere")
    assert (alone.returncode, json.loads(alone.stdout)["error"]["code"]) == (3, "machine.ssh-keygen")


def test_a_hostile_signature_gives_a_code_and_hides_nothing(quickstart: Quickstart) -> None:
    signature = quickstart.folder("fix") / "seal.json.sig"
    os.mkfifo(signature)
    assert findings(verify(quickstart)[1]) == {("evidence.containment", "seal.json.sig")}
    signature.unlink()
    signature.write_bytes(b"-----BEGIN SSH SIGNATURE-----\n\x1b[2J\n-----END SSH SIGNATURE-----\n")
    said = quickstart.lab.proctor("verify", str(quickstart.lab.root))
    assert (said.returncode, said.stderr) == (5, "")
    assert re.search(r"attempt fix\.codex\.r1\.1\nevidence\.signature +seal\.json\.sig +not an SSH sig", said.stdout)
    words = f"\n4 of 5 seals: {INTEGRITY_ONLY}\n1 of 5 seals: the signature is not valid\n"
    assert words in said.stdout


def test_every_command_of_the_how_to_does_what_it_says(quickstart: Quickstart) -> None:
    shutil.copytree(quickstart.lab.root, quickstart.lab.folder / ".proctor")
    shown = "".join(re.findall(r"```console\n(.*?)```", HOWTO.read_text(), re.DOTALL))
    commands = re.findall(r"^\$ (.*)$", shown, re.MULTILINE)
    assert len(commands) == 6
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    said = [
        subprocess.run(["bash", "-c", each], cwd=quickstart.lab.folder, env=env, capture_output=True, text=True)
        for each in commands
    ]
    assert [(each.returncode, each.stderr) for each in said] == [(0, "")] * 6
    assert "signed by an unknown key (SHA256:" in said[3].stdout
    assert "signed by ada@example.org (SHA256:" in said[4].stdout
    assert "statement written to statement.json" in said[5].stdout
