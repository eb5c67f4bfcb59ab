"""Runs and their runtime processes: frames that are missing, a folder that was moved, files of something else."""

import msgspec

from tests.tampering.case import Case, Expected, Step, says, says_only
from tests.tampering.edits import (
    Edit,
    Row,
    alter,
    alter_rows,
    flip,
    link,
    make_folder,
    move,
    read_json,
    remove,
    reseal,
    reseal_process,
    rewrite,
    steps,
    tear,
    write,
)
from tests.tampering.evidence import Evidence
from tests.tampering.names import ASK, ATTEMPT, CLAIM, FIX, FRAMES, PROCESS, RUNNER, SEAL, Field


def of_run(name: str, edit: Edit, run: Expected, *then: Step, whole: int = 5, publish: int = 5) -> Case:
    """`run` is what strict validation says of the run by itself."""
    return Case(
        name=name,
        edit=edit,
        validate=says(whole, *run.named),
        publish=says(publish),
        then=(("validate --strict {run}", run), *then),
    )


def without_last_in(rows: list[Row]) -> list[Row]:
    last = max(at for at, row in enumerate(rows) if row[Field.DIRECTION] == "in")
    return rows[:last] + rows[last + 1 :]


def nest_a_fact(evidence: Evidence) -> None:
    """As deep as can be read."""
    path, deep = evidence.path("{process}/" + PROCESS), msgspec.Raw(b"[" * 900 + b"]" * 900)
    facts = {"deep": {Field.VALUE: deep, Field.AUTHORITY: "observed", Field.SOURCE: "a test"}}
    path.write_bytes(msgspec.json.encode({**read_json(path), Field.FACTS: facts}))


OTHER_RUN = [f"evidence.ids attempts/{name}/{ATTEMPT}" for name in (FIX, CLAIM, ASK)]
COUNTS = f"evidence.counts {FRAMES}"

CASES = [
    of_run(
        "sealed again: a frame was taken out of an attempt",
        steps(alter_rows("{claim}/" + FRAMES, without_last_in), reseal("{claim}")),
        says(5, COUNTS),
    ),
    of_run(
        "sealed again: a frame was taken out of the process",
        steps(alter_rows("{process}/" + FRAMES, without_last_in), reseal_process()),
        says_only(5, COUNTS),
    ),
    of_run(
        "one bit of the record of the process is flipped",
        flip("{process}/" + PROCESS),
        says(5, f"evidence.seal {PROCESS}"),
    ),
    of_run(
        "one bit of the frames of the process is flipped",
        flip("{process}/" + FRAMES),
        says(5, f"evidence.chain {FRAMES}"),
    ),
    of_run(
        "the frames of the process are gone", remove("{process}/" + FRAMES), says(5, f"evidence.missing-file {FRAMES}")
    ),
    of_run(
        "a file that is not a part of it is in the process",
        write("{process}/notes"),
        says(5, "evidence.extra-file notes"),
    ),
    of_run(
        "the frames of the process are a link to a file elsewhere",
        link("{process}/" + FRAMES),
        says(5, f"evidence.containment {FRAMES}"),
    ),
    of_run(
        "sealed again: the process has another name",
        reseal_process({Field.PROCESS: "p-other"}),
        says(5, f"evidence.ids {PROCESS}"),
    ),
    of_run("sealed again: the process counts one frame", reseal_process({Field.ROWS: {"in": 1}}), says(5, COUNTS)),
    of_run(
        "the last frame of the process is gone",
        rewrite("{process}/" + FRAMES, lambda data: b"".join(data.splitlines(keepends=True)[:-1])),
        says(5, f"evidence.chain {FRAMES}"),
    ),
    of_run(
        "a fact of the process is nested as deep as can be read", nest_a_fact, says_only(5, f"evidence.seal {PROCESS}")
    ),
    of_run(
        "the process was cut off",
        steps(remove("{process}/" + PROCESS), tear("{process}/" + FRAMES, by=3)),
        says_only(4, f"evidence.partial {PROCESS}", f"evidence.torn {FRAMES}"),
        whole=4,
        publish=4,
    ),
    of_run(
        "an attempt of the process was cut off, so that nothing can be counted",
        remove("{ask}/" + SEAL),
        says_only(4, f"evidence.partial {SEAL}", f"evidence.partial {FRAMES}"),
    ),
    of_run("the process is gone", remove("{process}"), says_only(5, "evidence.missing-file runtimes/PROCESS")),
    of_run(
        "sealed again: an attempt belongs to no process",
        steps(alter("{ask}/" + RUNNER, {Field.PROCESS: None}), reseal("{ask}")),
        says(5, COUNTS),
    ),
    Case(
        name="the run has another name",
        edit=move("{run}", "{root}/runs/elsewhere"),
        validate=says(5, *OTHER_RUN),
        publish=says(5),
    ),
    of_run(
        "files and folders that are not a part of it are in the run",
        steps(
            write("{run}/notes"),
            make_folder("{run}/more"),
            write("{run}/attempts/stray"),
            lambda evidence: evidence.path("{run}/attempts/link").symlink_to(FIX),
        ),
        says_only(
            5,
            "evidence.extra-file RUN/notes",
            "evidence.extra-file RUN/more",
            "evidence.extra-file attempts/stray",
            "evidence.containment attempts/link",
        ),
    ),
]
