"""Files of an attempt that were altered, removed, replaced or cut off, and not sealed again."""

from collections.abc import Callable, Iterator

from tests.tampering.case import Case, Step, of_fix, says, says_only
from tests.tampering.edits import (
    Edit,
    alter,
    alter_each_row,
    copy,
    flip,
    grow,
    link,
    link_to_itself,
    make_folder,
    make_pipe,
    make_socket,
    remove,
    replace,
    rewrite,
    steps,
    tear,
    write,
)
from tests.tampering.names import (
    ATTEMPT,
    DIFF,
    FEEDBACK,
    FIX,
    FRAMES,
    PROBES,
    PROMPT,
    REPORT,
    RUNNER,
    SEAL,
    SEALED,
    TOOL_CALLS,
    TRANSCRIPT,
    Field,
)

EVERY = (*SEALED, SEAL)

RESIZED: tuple[tuple[str, tuple[str, ...], Callable[[bytes], bytes]], ...] = (
    ("empty", EVERY, lambda _: b""),
    ("longer by a newline", EVERY, lambda data: data + b"\n"),
    ("short by one byte", (FRAMES, REPORT, SEAL), lambda data: data[:-1]),
    ("cut in half", (FRAMES, REPORT, SEAL), lambda data: data[: len(data) // 2]),
    ("there twice", (FRAMES, REPORT, SEAL), lambda data: data + data),
)


THEN: dict[str, tuple[Step, ...]] = {
    f"one bit of {TRANSCRIPT} is flipped": (
        ("validate", says_only(5, f"evidence.digest {TRANSCRIPT}")),
        ("report", says(5, f"evidence.digest {TRANSCRIPT}")),
        ("attempt explain {fix}", says(5, f"evidence.digest {TRANSCRIPT}")),
    ),
    f"one bit of {PROBES} is flipped": (("campaign report --strict", says(5, f"evidence.digest {PROBES}")),),
    f"{FRAMES} is short by one byte": (
        ("campaign report --strict", says(5, f"evidence.torn {FRAMES}", f"evidence.digest {FRAMES}")),
    ),
    f"{FRAMES} is longer by a newline": (
        ("attempt export {fix} --codex-native --output {beside}/rows.jsonl", says(5)),
    ),
    f"{TOOL_CALLS} is empty": (
        ("attempt rederive {fix} --check", says_only(5, f"evidence.derived {TOOL_CALLS}")),
        ("attempt rederive {fix}", says_only(5, f"evidence.derived {TOOL_CALLS}")),
        ("validate --strict {fix}", says(5, f"evidence.digest {TOOL_CALLS}")),
    ),
    f"{TRANSCRIPT} is gone": (
        ("campaign report --strict", says(5, f"evidence.missing-file {TRANSCRIPT}")),
        ("campaign report", says_only(0)),
    ),
}
"""What else some of these must be answered with. A report that is not strict believes the ledger."""


def altered() -> Iterator[Case]:
    for name in EVERY:
        code = "evidence.seal" if name == SEAL else "evidence.digest"
        flipped = f"one bit of {name} is flipped"
        yield of_fix(flipped, flip("{fix}/" + name), says(5, f"{code} {name}"), *THEN.get(flipped, ()))
    for how, names, change in RESIZED:
        for name in names:
            code = "evidence.seal" if name == SEAL else "evidence.digest"
            resized = f"{name} is {how}"
            edit = rewrite("{fix}/" + name, change)
            yield of_fix(resized, edit, says(5, f"{code} {name}"), *THEN.get(resized, ()))
    for name in SEALED:
        gone, missing = f"{name} is gone", f"evidence.missing-file {name}"
        yield of_fix(gone, remove("{fix}/" + name), says(5, missing), *THEN.get(gone, ()))


def instead(name: str, edit: Edit) -> Edit:
    """Something else lies in the place of a file of the attempt."""
    return steps(remove("{fix}/" + name), edit)


def nested_row(depth: int) -> bytes:
    nest = "[" * depth + "]" * depth
    return f'{{"{Field.SEQ}":1,"{Field.PREVIOUS}":"","{Field.INPUT}":{nest}}}\n'.encode()


REPLACED = [
    of_fix(
        "a file that is not a part of it is in the attempt",
        write("{fix}/notes.txt"),
        says(5, "evidence.extra-file notes.txt"),
    ),
    of_fix("a folder is in the attempt", make_folder("{fix}/notes.txt"), says(5, "evidence.containment notes.txt")),
    of_fix(
        "a file whose name is not text is in the attempt",
        lambda evidence: (evidence.path("{fix}") / "\udcff\x1b[2J").write_text("mine"),
        says(5, r"evidence.extra-file \udcff\x1b[2J"),
    ),
    of_fix(
        "the frames are a folder",
        instead(FRAMES, make_folder("{fix}/" + FRAMES)),
        says(5, f"evidence.containment {FRAMES}"),
    ),
    of_fix(
        "the prompt is a link to a file elsewhere", link("{fix}/" + PROMPT), says(5, f"evidence.containment {PROMPT}")
    ),
    of_fix(
        "the report is a link to itself",
        instead(REPORT, link_to_itself("{fix}/" + REPORT)),
        says(5, f"evidence.containment {REPORT}"),
    ),
    of_fix(
        "the transcript is a pipe",
        instead(TRANSCRIPT, make_pipe("{fix}/" + TRANSCRIPT)),
        says(5, f"evidence.containment {TRANSCRIPT}"),
    ),
    of_fix("the seal is a pipe", instead(SEAL, make_pipe("{fix}/" + SEAL)), says(5, f"evidence.containment {SEAL}")),
    of_fix(
        "the feedback is a socket",
        instead(FEEDBACK, make_socket("{fix}/" + FEEDBACK)),
        says(5, f"evidence.containment {FEEDBACK}"),
    ),
    of_fix(
        "the frames are a terabyte of nothing",
        grow("{fix}/" + FRAMES, to_bytes=1 << 40),
        says(5, f"evidence.bounds {FRAMES}"),
    ),
    of_fix(
        "a JSON file is nested without end",
        write("{fix}/" + RUNNER, f'{{"{Field.FACTS}":'.encode() + b"[" * 200_000),
        says(5, f"evidence.schema {RUNNER}"),
    ),
    of_fix(
        "a row is nested 200,000 deep",
        write("{fix}/" + TOOL_CALLS, nested_row(200_000)),
        says(5, f"evidence.schema {TOOL_CALLS}"),
    ),
    of_fix(
        "a row is nested as deep as can be read",
        write("{fix}/" + TOOL_CALLS, nested_row(900)),
        says(5, f"evidence.schema {TOOL_CALLS}"),
    ),
    of_fix(
        "the frames are three million empty lines",
        write("{fix}/" + FRAMES, b"\n" * 3_000_000),
        says(5, f"evidence.syntax {FRAMES}"),
    ),
    of_fix(
        "the feedback is of a newer schema",
        alter("{fix}/" + FEEDBACK, {Field.VERSION: 2}),
        says(5, f"evidence.version {FEEDBACK}"),
    ),
    of_fix(
        "the seal is of a newer schema",
        alter("{fix}/" + SEAL, {Field.VERSION: 2}),
        says(5, f"evidence.version {SEAL}"),
    ),
    of_fix(
        "the seal is that of another attempt", copy("{claim}/" + SEAL, "{fix}/" + SEAL), says(5, f"evidence.ids {SEAL}")
    ),
    of_fix("all files are those of another attempt", copy("{claim}", "{fix}"), says(5, f"evidence.ids {ATTEMPT}")),
]

LATE = (REPORT, DIFF, FEEDBACK, RUNNER)
"""The files that an attempt gets last, but for its seal."""


def cut_before(*gone: str) -> Edit:
    return remove(*("{fix}/" + name for name in (SEAL, *gone)))


def cut_off() -> Iterator[Case]:
    for torn in ((), (FRAMES,), (TRANSCRIPT,), (FRAMES, TOOL_CALLS, TRANSCRIPT, PROBES)):
        yield of_fix(
            f"the attempt is cut off before {RUNNER}" + f" and in the middle of {', '.join(torn)}" * bool(torn),
            steps(
                cut_before(*LATE),
                *(tear("{fix}/" + name) for name in torn),
                write("{fix}/." + RUNNER + ".tmp", b'{"half'),
            ),
            says_only(4, f"evidence.partial {SEAL}", *(f"evidence.torn {name}" for name in torn)),
        )
    yield of_fix(
        "half of the frames is all there is of an attempt that was cut off",
        steps(cut_before(*LATE), rewrite("{fix}/" + FRAMES, lambda data: data[: len(data) // 2])),
        says(4, f"evidence.partial {SEAL}"),
    )
    for name in (FRAMES, TOOL_CALLS, PROMPT, FEEDBACK):
        yield of_fix(
            f"{name} is gone from an attempt that was cut off later",
            cut_before(REPORT, name),
            says_only(5, f"evidence.partial {SEAL}", f"evidence.missing-file {name}"),
        )
    yield of_fix(
        "the transcript of an attempt that was cut off is not what its frames give",
        steps(cut_before(REPORT), alter_each_row("{fix}/" + TRANSCRIPT, {Field.TEXT: "never said"})),
        says_only(5, f"evidence.partial {SEAL}", f"evidence.derived {TRANSCRIPT}"),
    )


SEEN = [
    Case(
        name="the seal is gone",
        edit=remove("{fix}/" + SEAL),
        validate=says(5, f"evidence.missing-file {FIX}/{SEAL}", f"evidence.partial {SEAL}"),
        publish=says_only(5, "evidence.missing-file", "evidence.partial"),
        then=(("validate --strict {fix}", says_only(4, f"evidence.partial {SEAL}")), ("report", says(5))),
    ),
    of_fix(
        "the derived files are gone, and are made again",
        remove("{fix}/" + TOOL_CALLS, "{fix}/" + TRANSCRIPT),
        says(5, f"evidence.missing-file {TOOL_CALLS}", f"evidence.missing-file {TRANSCRIPT}"),
        ("attempt rederive {fix} --check", says(5)),
        ("attempt rederive {fix}", says_only(0)),
        ("validate --strict", says_only(0)),
    ),
    of_fix(
        "the derived files are gone, and the frames do not give them",
        steps(remove("{fix}/" + TOOL_CALLS), replace("{fix}/" + FRAMES, "Hello, world", "Hello, moon!")),
        says(5, f"evidence.missing-file {TOOL_CALLS}", f"evidence.digest {FRAMES}"),
        ("attempt rederive {fix}", says(5)),
        ("validate --strict {fix}", says(5, f"evidence.missing-file {TOOL_CALLS}")),
    ),
    of_fix(
        "a derived file is gone together with the seal that names it",
        remove("{fix}/" + TOOL_CALLS, "{fix}/" + SEAL),
        says(5, f"evidence.partial {SEAL}", f"evidence.missing-file {TOOL_CALLS}"),
        ("attempt rederive {fix}", says(4, f"evidence.partial {SEAL}")),
    ),
    of_fix(
        "the record of an attempt is empty",
        write("{fix}/" + ATTEMPT, b"{}"),
        says(5, f"evidence.schema {ATTEMPT}"),
        ("attempt rederive {fix}", says(5, f"evidence.schema {ATTEMPT}")),
    ),
    of_fix(
        "the record of an attempt is junk, and its frames are a folder",
        steps(write("{fix}/" + ATTEMPT, b"\xff\x00 junk"), instead(FRAMES, make_folder("{fix}/" + FRAMES))),
        says(5, f"evidence.containment {FRAMES}"),
        ("report --strict", says(5, f"evidence.syntax {ATTEMPT}")),
        ("attempt explain {fix}", says(5, f"evidence.syntax {ATTEMPT}")),
        ("attempt show {fix}", says(0)),
        ("attempt rederive {fix}", says(5, f"evidence.syntax {ATTEMPT}")),
    ),
    Case(
        name="an attempt is gone",
        edit=remove("{fix}"),
        validate=says(5, f"evidence.missing-file {FIX}/{SEAL}"),
        publish=says(5, "evidence.missing-file"),
        then=(("report", says(5, f"evidence.missing-file {SEAL}")),),
    ),
    Case(
        name="all attempts are gone, and the ledger is believed",
        edit=remove("{root}/runs"),
        validate=says(5, *(f"evidence.missing-file {name}.codex.r1.1/{SEAL}" for name in ("fix", "claim", "ask"))),
        publish=says(5, "evidence.missing-file"),
        then=(("campaign report", says_only(0)),),
    ),
    Case(
        name="an attempt is a link to a folder elsewhere",
        edit=link("{fix}"),
        validate=says(5, f"evidence.containment attempts/{FIX}"),
        publish=says(5, "evidence.containment"),
    ),
    Case(
        name="an attempt is a file",
        edit=steps(remove("{fix}"), write("{fix}")),
        validate=says(5, f"evidence.extra-file attempts/{FIX}"),
        publish=says(5, "evidence.extra-file"),
    ),
]

CASES = [*altered(), *REPLACED, *cut_off(), *SEEN]
