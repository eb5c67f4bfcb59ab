"""Signed seals: forged under a signature, signed by another key, or signed for something else."""

from tests.tampering.campaign_files import report_as
from tests.tampering.case import Case, says, says_only
from tests.tampering.edits import Row, alter, alter_rows, copy, make_pipe, remove, reseal, steps, write
from tests.tampering.evidence import Evidence
from tests.tampering.names import ATTEMPT, CAMPAIGN_REPORT, DIFF, PROBES, PROMPT, REPORT, SEAL, SIGNATURE, Field

OTHER = "sha256:" + "1" * 64
TRUSTED = "--allowed-signers {keys}/ada.allowed"
SIGNED = f"--signed {TRUSTED}"


ONE_FOLDER = {"files": [], "filesLeftOut": 0, "generatedFiles": 0, "generatedLines": 0, "otherPaths": 1}


def pass_the_probe(rows: list[Row]) -> list[Row]:
    passed = {Field.VERDICT: "pass", Field.DIGEST: OTHER, Field.SUMMARY: "printed what it should"}
    return [rows[0], {**rows[1], **passed}]


forged = steps(
    alter_rows("{claim}/" + PROBES, pass_the_probe),
    alter(
        "{claim}/" + REPORT,
        {
            Field.VERIFIED: True,
            Field.JUDGED: "outside",
            Field.REASONS: [],
            Field.REASON_CODES: [],
            Field.CRITERIA: [
                {"criterion": "probe 1 (headless_run)", "verified": True, "probes": [0], "waivedBy": None}
            ],
            Field.EXPECTATION: {
                Field.MET: False,
                Field.KEYS: {Field.VERIFIED: False},
                Field.UNMET: ["verified: expected no, got yes"],
            },
            Field.DIGEST_AFTER: OTHER,
            Field.CHANGED_FILES: True,
            Field.FAILURE: {"probes": [], "probesLeftOut": 0, "diff": ONE_FOLDER},
        },
    ),
    write("{claim}/" + DIFF, b"# new folder made (empty)\n"),
    reseal("{claim}"),
)
"""What was only claimed becomes verified, consistently, and the attempt is sealed again."""


def resign(evidence: Evidence) -> None:
    """By a key that is not on the list."""
    evidence.path("{fix}/" + SIGNATURE).unlink()
    assert evidence.ask("sign {fix} --key {keys}/eve").exit == 0


CASES = [
    Case(
        name="sealed again without a signature: a claim becomes verified, consistently",
        edit=forged,
        validate=says(5),
        publish=says(5),
        then=(
            ("validate --strict {claim}", says_only(0)),
            ("verify {claim}", says_only(0)),
        ),
    ),
    Case(
        name="sealed again under a signature: a claim becomes verified, consistently",
        base="signed",
        edit=forged,
        validate=says(5),
        publish=says(5),
        then=(
            ("validate --strict {claim}", says_only(0)),
            ("verify {claim}", says_only(5, f"evidence.signature {SIGNATURE}")),
            ("verify {claim} " + TRUSTED, says_only(5, f"evidence.signature {SIGNATURE}")),
            ("verify {claim} " + SIGNED, says_only(5, f"evidence.signature {SIGNATURE}")),
        ),
    ),
    Case(
        name="sealed again, the signature removed: a claim becomes verified, consistently",
        base="signed",
        edit=steps(forged, remove("{claim}/" + SIGNATURE)),
        validate=says(5),
        publish=says(5),
        then=(
            ("verify {claim} " + TRUSTED, says_only(0)),
            ("verify {claim} " + SIGNED, says_only(5, f"evidence.unsigned {SEAL}")),
        ),
    ),
    Case(
        name="a signature is gone",
        base="signed",
        edit=remove("{ask}/" + SIGNATURE),
        validate=says_only(0),
        publish=says_only(0),
        then=(
            ("verify {root} " + TRUSTED, says_only(0)),
            ("verify {ask} " + SIGNED, says_only(5, f"evidence.unsigned {SEAL}")),
        ),
    ),
    Case(
        name="an attempt is signed with a key that is not on the list",
        base="signed",
        edit=resign,
        validate=says_only(0),
        publish=says_only(0),
        then=(
            ("verify {fix}", says_only(0)),
            ("verify {fix} " + TRUSTED, says_only(5, f"evidence.signer {SIGNATURE}")),
        ),
    ),
    Case(
        name="a file is altered under a good signature",
        base="signed",
        edit=write("{fix}/" + PROMPT, b"Do nothing."),
        validate=says(5, f"evidence.digest {PROMPT}"),
        publish=says(5, "evidence.digest"),
        then=(
            ("verify {fix} " + SIGNED, says(5, f"evidence.digest {PROMPT}")),
            ("verify {root} --statement {beside}/statement.json", says(5, f"evidence.digest {PROMPT}")),
            ("sign {root} --key {keys}/ada", says_only(5, "evidence.digest")),
        ),
    ),
    Case(
        name="the signature is that of another attempt",
        base="signed",
        edit=copy("{fix}/" + SIGNATURE, "{claim}/" + SIGNATURE),
        validate=says_only(0),
        publish=says_only(0),
        then=(("verify {claim}", says_only(5, f"evidence.signature {SIGNATURE}")),),
    ),
    Case(
        name="a signed attempt is copied over another",
        base="signed",
        edit=copy("{fix}", "{claim}"),
        validate=says(5, f"evidence.ids {ATTEMPT}"),
        publish=says(5, "evidence.ids"),
        then=(("verify {claim} " + SIGNED, says(5, f"evidence.ids {ATTEMPT}")),),
    ),
    Case(
        name="the seal is gone, and its signature is not",
        base="signed",
        edit=remove("{ask}/" + SEAL),
        validate=says(5, f"evidence.partial {SEAL}", f"evidence.extra-file {SIGNATURE}"),
        publish=says(5),
        then=(("verify {ask}", says_only(5, f"evidence.partial {SEAL}", f"evidence.extra-file {SIGNATURE}")),),
    ),
    Case(
        name="the seal and its signature are gone",
        base="signed",
        edit=remove("{ask}/" + SEAL, "{ask}/" + SIGNATURE),
        validate=says(5),
        publish=says(5),
        then=(
            ("verify {ask}", says_only(4, f"evidence.partial {SEAL}")),
            ("sign {ask} --key {keys}/ada", says_only(5, "evidence.partial")),
        ),
    ),
    Case(
        name="a signing that was killed left half a file",
        base="signed",
        edit=write("{ask}/." + SIGNATURE + ".tmp", b"half"),
        validate=says_only(5, f"evidence.extra-file .{SIGNATURE}.tmp"),
        publish=says(5, "evidence.extra-file"),
        then=(("verify {root}", says_only(5, f"evidence.extra-file .{SIGNATURE}.tmp")),),
    ),
    *(
        Case(
            name=f"a file {name} is beside the seal",
            edit=write("{fix}/" + name),
            validate=says_only(5, f"evidence.extra-file {name}"),
            publish=says(5, "evidence.extra-file"),
            then=(("verify {fix}", says_only(5, f"evidence.extra-file {name}")),),
        )
        for name in ("seal.json.sig2", "attempt.json.sig", "seal.sig")
    ),
    Case(
        name="the signature is a pipe",
        edit=make_pipe("{fix}/" + SIGNATURE),
        validate=says(5, f"evidence.containment {SIGNATURE}"),
        publish=says(5, "evidence.containment"),
        then=(("verify {root}", says_only(5, f"evidence.containment {SIGNATURE}")),),
    ),
    Case(
        name="the signature is not one",
        edit=write("{fix}/" + SIGNATURE, b"-----BEGIN SSH SIGNATURE-----\n\x1b[2J\n-----END SSH SIGNATURE-----\n"),
        validate=says_only(0),
        publish=says_only(0),
        then=(("verify {root}", says_only(5, f"evidence.signature {SIGNATURE}")),),
    ),
    Case(
        name="the report of a campaign with signed attempts says that all are verified",
        base="signed",
        edit=report_as(**{Field.VERIFIED: True}),
        validate=says(5, f"evidence.report {CAMPAIGN_REPORT}"),
        publish=says(5, "evidence.report"),
        then=(("verify {campaign} " + SIGNED, says(5, f"evidence.report {CAMPAIGN_REPORT}")),),
    ),
]
