"""Write the reference pages and the contract's snapshot of a checkout (`make contract`)."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from proctor.errors import Bucket
from proctor.event.known_facts import FACTS
from proctor.fact import Authority
from proctor.plan.recover import Remedy
from proctor.surface.cli.output import to_json
from proctor.surface.contract import (
    SCHEMAS,
    ArgumentContract,
    CodeContract,
    CommandContract,
    Contract,
    FailureContract,
    FileContract,
    VariantContract,
    contract,
)
from tools.field_docs import JSON_OUTPUTS, documented_structs, meanings_of, printed_types
from tools.onboarding import onboarding

Schemas: TypeAlias = Mapping[str, Mapping[str, Any]]
"""JSON Schemas by the name of their type."""

_GENERATED = "<!-- Written by `make contract` from the code; changes made here are lost. -->"

_FAMILIES = {
    "spec": "The user's files",
    "config": "The config",
    "runtime": "Runtimes",
    "workspace": "Workspaces",
    "usage": "The command line",
    "policy": "Policies",
    "sign": "Signing",
    "machine": "This machine",
    "peer": "The agent",
    "provider": "How attempts end: the model's provider",
    "agent": "How attempts end: the agent",
    "limit": "How attempts end: limits",
    "run": "How attempts end: the run",
    "evidence": "Evidence",
}


_BUCKETS = {
    Bucket.AGENT: "The agent's own: it counts against it.",
    Bucket.INFRA: "This machine's, the network's or the provider's: it says nothing of the agent.",
    Bucket.QUOTA: "The account's: too much was asked of it.",
    Bucket.AUTH: "The credential's.",
    Bucket.HARNESS: "That of the spec, or of Proctor itself.",
    Bucket.GATE: "A probe or a gate said no. No code ends an attempt with it.",
}


_REMEDIES = {
    Remedy.NONE: "Nothing: it is the trial's result.",
    Remedy.AGAIN: "It tries again after a pause that doubles, on a new process where the old one is gone, as often as "
    "`schedule.retries` allows. Then it is the trial's result.",
    Remedy.YIELD: "It tries again, with half as many at a time beside it and not before the time the provider names. "
    "No retry is used up.",
    Remedy.PARK: "It waits with everything that shares the quota until that opens, then tries again with one first. "
    "No retry is used up.",
    Remedy.REDO: "It tries again at once, or when the campaign is resumed. No retry is used up.",
    Remedy.STOP: "It tries nothing more of this flow in this run, because nothing of it could do better. "
    "A resume takes up what is left.",
}


def documents(told: Contract) -> dict[str, str]:
    """Every generated file of a checkout, by its path."""
    return {
        "tests/surface/contract.json": to_json(told, is_indented=True).decode(),
        "SCHEMAS.md": _page("Schemas", _schemas(told)),
        "docs/reference/cli.md": _page("Commands", _commands(told)),
        "docs/reference/errors.md": _page("Errors and exit codes", _errors(told)),
        "docs/reference/events.md": _page("Events", _events(told)),
        "docs/reference/facts.md": _page("Facts", _facts()),
        "docs/reference/failures.md": _page("Failures", _failures(told)),
        "docs/reference/versioning.md": _page("Versions of files", _versioning(told)),
        "docs/howto/onboard-a-runtime.md": _page("Checklist for a new runtime", onboarding()),
    }


def write(checkout: Path) -> None:
    for name, text in documents(contract()).items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _page(title: str, parts: Iterable[str]) -> str:
    return "\n\n".join((f"# {title}", _GENERATED, *parts)) + "\n"


# ── versions ──


def _versioning(told: Contract) -> Iterator[str]:
    yield (
        "Every file that Proctor reads again has a version, or belongs to a file that has one. A Proctor reads exactly "
        "the version that it writes. It refuses any other, newer or older, with the code below, before it uses "
        "anything in the file and without changing it. Nothing is migrated: before the first release there is no older "
        "format, and evidence is never rewritten. Use the Proctor that wrote a file to read it."
    )
    yield "## Files with a version"
    rows = [
        f"| {_file_name(each)} | {_VERSION_FIELDS[each.kind]} | {each.schema_version} | {_other_version(each)} |"
        for each in told.files
        if each.schema_version is not None
    ]
    yield "\n".join(["| file | where | version | another version |", "|---|---|---|---|", *rows])
    yield "A command that would write to a `ledger.db` of another version refuses it with `machine.ledger`."
    yield "## Files without a version"
    for kind, policy in _UNVERSIONED.items():
        names = [_file_name(each) for each in told.files if each.kind == kind and each.schema_version is None]
        if names:
            listed = ", ".join(dict.fromkeys(names))
            yield f"- {listed[:1].upper()}{listed[1:]}: {policy}"
    yield (
        "The user's cache and state folders hold no results: a cache entry or a spawn intent that cannot be read is "
        "ignored, and cache entries are made again."
    )


def _file_name(file: FileContract) -> str:
    return f"`{file.name}`" if file.folder is not None else f"the {file.name} file"


def _other_version(file: FileContract) -> str:
    return "ignored: it is not evidence" if file.refusal is None else f"refused: [`{file.refusal}`](errors.md)"


_VERSION_FIELDS = {"artifact": "`schemaVersion`", "spec": "`version`", "database": "`pragma user_version`"}
_UNVERSIONED = {
    "rows": "the version of the `attempt.json` or `process.json` beside it applies. A row with another structure is "
    "refused with `evidence.schema`.",
    "text": "text; nothing is decoded.",
    "signature": "SSH signatures, whose format has its own version.",
    "spec": "a key that is unknown is refused with `spec.unknown-key`.",
    "value": "part of another file, or only written.",
}


# ── schemas ──

_TAG_MEANING = "The tag: which variant this is."


def document_types(told: Contract) -> tuple[Schemas, Schemas]:
    """Return the contract's types and those that only `--json` prints, with every field's meaning as its description.

    Of two types with one name, that of the contract keeps it, and the other is named after its module too.
    """
    types = [*SCHEMAS.values(), *printed_types()]
    structs = documented_structs()
    refs, components = msgspec.json.schema_components((*types, *structs), ref_template="{name}")
    for struct, ref in zip(structs, refs[len(types) :], strict=True):
        properties = components[ref["$ref"]]["properties"]
        meanings = meanings_of(struct)
        if (tag := struct.__struct_config__.tag_field) is not None:
            meanings[tag] = _TAG_MEANING
        for name, meaning in meanings.items():
            properties[name]["description"] = meaning
    names = {name: _unique_name(name, schema, told.types) for name, schema in components.items()}
    named = {names[name]: _rename_refs(schema, names) for name, schema in components.items()}
    assert len(named) == len(components), "a name was given to two types"
    printed = {name: schema for name, schema in sorted(named.items()) if name not in told.types}
    return {name: named[name] for name in told.types}, printed


def _unique_name(name: str, schema: Mapping[str, Any], known: Schemas) -> str:
    """Shorten a name that msgspec qualified because another type has it too.

    >>> _unique_name("proctor.probe.model.Verdict", {"enum": ["passed"]}, {"Verdict": {"enum": ["passed"]}})
    'Verdict'
    >>> _unique_name("proctor.testing.case.Verdict", {"properties": {}}, {"Verdict": {"enum": ["passed"]}})
    'case.Verdict'
    """
    *modules, short = name.split(".")
    is_known = short in known and all(
        list(schema.get(key, ())) == list(known[short].get(key, ())) for key in ("enum", "properties")
    )
    return name if name in known else short if is_known or not modules else f"{modules[-1]}.{short}"


def _rename_refs(schema: Any, names: Mapping[str, str]) -> Any:
    match schema:
        case {"$ref": ref, **rest}:
            return {"$ref": names[ref], **rest}
        case dict():
            return {key: _rename_refs(value, names) for key, value in schema.items()}
        case list():
            return [_rename_refs(each, names) for each in schema]
        case _:
            return schema


def _schemas(told: Contract) -> Iterator[str]:
    yield (
        "Every file of the evidence and everything that commands print with `--json`, field by field. "
        "`proctor schema NAME` prints the JSON Schema of a file, `proctor contract --json` everything. JSON files and "
        "rows are UTF-8; a field with a default may be absent."
    )
    types, printed = document_types(told)
    names = {file.type: file.name for file in told.files if file.type is not None}
    variants = {each.type for each in (*told.events, *told.self_rows)}
    for folder in dict.fromkeys(file.folder for file in told.files):
        yield "## Not in the evidence" if folder is None else f"## `{folder}/`" if folder else "## The evidence root"
        for file in told.files:
            if file.folder == folder:
                yield from _file(file, types, told)
    yield "## Parts of the above"
    for name, schema in types.items():
        if name not in names and name not in variants:
            yield f"### {name}"
            yield from _type(schema)
    yield "## Printed with `--json`"
    yield "What each command prints, alone or inside an object. An Estimate is printed with `--dry-run`."
    rows = [
        (f"`proctor {name}`", ", ".join(each.__name__ for each in structs)) for name, structs in JSON_OUTPUTS.items()
    ]
    yield _table(("command", "types"), [row for row in rows if row[1]])
    for name, schema in printed.items():
        yield f"### {name}"
        yield from _type(schema)


def _file(file: FileContract, types: Schemas, told: Contract) -> Iterator[str]:
    version = "" if file.schema_version is None else f" Version {file.schema_version}."
    rows = " One row per line, each with the digest of the line before it." if file.kind == "rows" else ""
    yield f"### `{file.name}`"
    yield f"{file.means}{rows}{version}"
    if file.type is not None:
        yield _fields(types[file.type])
    elif file.name == "event":
        yield "One of the [events](docs/reference/events.md)."
    elif file.name == "self":
        yield from _variants(told.self_rows, types, field="saw", level=4)


def _type(schema: Mapping[str, Any]) -> Iterator[str]:
    if "description" in schema:
        yield _flowing(schema["description"])
    yield f"One of {_spelled(schema)}." if "enum" in schema else _fields(schema)


def _fields(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = []
    for name, field in schema["properties"].items():
        default = to_json(field["default"], is_indented=True).decode().strip() if "default" in field else ""
        is_needed = "required" if name in required else f"default `{default}`" if default else "may be absent"
        rows.append((f"`{name}`", _spelled(field), is_needed, field.get("description", "")))
    return _table(("field", "type", "", "meaning"), rows)


def _spelled(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in a few words.

    >>> _spelled({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
    'list of (string or null)'
    """
    match schema:
        case {"$ref": ref}:
            return str(ref).rpartition("/")[2]
        case {"anyOf": options}:
            return " or ".join(map(_spelled, options))
        case {"enum": values}:
            return " or ".join(f"`{to_json(value, is_indented=True).decode().strip()}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_grouped(items)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"map to {_grouped(values)}"
        case {"type": kind}:
            return str(kind)
        case _:
            return "anything"


def _grouped(schema: Mapping[str, Any]) -> str:
    return f"({_spelled(schema)})" if "anyOf" in schema or "enum" in schema else _spelled(schema)


# ── the other pages ──


def _events(told: Contract) -> Iterator[str]:
    yield (
        "What happened, in Proctor's own words. Every event names the `frame` (the row of frames.jsonl) it comes from "
        "and that row's time, `atMs`. A field with a default is left out where it has it."
    )
    types, _ = document_types(told)
    yield from _variants(told.events, types, field="type", level=2)


def _variants(variants: Iterable[VariantContract], types: Schemas, *, field: str, level: int) -> Iterator[str]:
    for each in variants:
        schema = types[each.type]
        rest = {name: value for name, value in schema["properties"].items() if name not in (field, "frame", "atMs")}
        yield f"{'#' * level} `{each.tag}`"
        if each.means:
            yield each.means
        if rest:
            yield _fields({**schema, "properties": rest})


def _commands(told: Contract) -> Iterator[str]:
    yield "Every command takes `--help`. Exit codes are the same everywhere: see [errors](errors.md)."
    for command in told.commands:
        yield f"## `proctor {command.name}`"
        yield command.help
        yield f"```\nproctor {command.name} {usage(command)}".rstrip() + "\n```"
        rows = [(f"`{_shown(each)}`", _flowing(each.help)) for each in command.arguments]
        if rows:
            yield _table(("argument", ""), rows)
        yield f"Example: `{command.example}`"


def usage(command: CommandContract) -> str:
    """What a command takes, in a line."""
    return " ".join(_shown(each) if each.is_required else f"[{_shown(each)}]" for each in command.arguments)


def _shown(each: ArgumentContract) -> str:
    if each.is_positional:
        return each.value or each.names[0]
    return each.names[0] if each.value is None else f"{each.names[0]} {each.value}"


def _errors(told: Contract) -> Iterator[str]:
    yield "Every error has a code. With `--json` it has everything listed here, and where it happened."
    yield "## Exit codes"
    yield _table(("code", "means"), [(str(each.code), each.means) for each in told.exits])
    for family in dict.fromkeys(row.code.partition(".")[0] for row in told.errors):
        rows = [
            (f"`{row.code}`", row.means, row.todo, "yes" if row.retryable else "")
            for row in told.errors
            if row.code.partition(".")[0] == family
        ]
        yield f"## {_FAMILIES.get(family, family)}"
        yield _table(("code", "means", "to do", "worth a retry"), rows)


def _facts() -> Iterator[str]:
    yield (
        "What is known of an attempt's agent and session, as `runner.ref.json` holds it under `facts`. Each is a value "
        "with an `authority`, a `source`, `refs` to the rows of frames.jsonl it comes from, and the `conflicts` it "
        "won over. All of them are folded from the frames, and `proctor validate --strict` folds them again."
    )
    yield (
        "Authority, the strongest last: "
        + ", ".join(f"`{each}`" for each in Authority)
        + ". A weaker word never overwrites a stronger one, and unknown is a value."
    )
    rows = [(f"`{name}`", _values(fact.values), fact.derivation, fact.authority) for name, fact in FACTS.items()]
    yield _table(("fact", "values", "what it follows from", "authority"), rows)


def _values(values: type[StrEnum] | str) -> str:
    return values if isinstance(values, str) else ", ".join(f"`{each}`" for each in values)


def _failures(told: Contract) -> Iterator[str]:
    yield (
        "How an attempt that did not complete ends: what went wrong, what is seen of it, and its code. "
        "`attempt.report.json`, `explain` and every report give the code with its bucket and what to do."
    )
    yield (
        "Each row is tested on the real agent. A row with * was not seen from it: what it would say is injected into "
        "what it does say, on the way to Proctor."
    )
    codes = {row.code: row for row in told.errors}
    for runtime in dict.fromkeys(row.runtime for row in told.failures):
        rows = [row for row in told.failures if row.runtime == runtime]
        if runtime is None:
            yield "## Whatever the agent"
            yield (
                "These are seen by the supervisor itself. A clock that fires while the agent still struggles with an "
                "error that has a code gives that code."
            )
            yield _table(
                ("what happens", "code", "bucket", "then"), [(_happening(row), *_come_to(row, codes)) for row in rows]
            )
        else:
            yield f"## `{runtime}`"
            yield (
                "What the agent reports: the class of its errors while it tries again, the class of the error that "
                "ends the turn, and what the text of either holds. They are patterns, and the first row that fits "
                "counts. What none fits ends as `agent.turn-failed`."
            )
            heads = ("what happens", "while it retries", "at the end", "text", "code", "bucket", "then")
            yield _table(heads, [_seen(row, codes) for row in rows])
    yield "## What to do"
    ends = [row for row in told.errors if row.remedy is not None]
    advice = [(f"`{row.code}`", row.bucket, row.means, row.todo, f"`{row.remedy}`") for row in ends]
    yield _table(("code", "bucket", "means", "to do", "then"), advice)
    yield "## Then"
    yield (
        "What a campaign does after an attempt that ended so. What is tried again is tried by a new attempt of the "
        "trial, with a new session; nothing is ever sent twice in one, and nothing is deleted. "
        "[How trials are scheduled](../explain/scheduling.md) says when."
    )
    yield _table(("then", "what a campaign does"), [(f"`{name}`", means) for name, means in _REMEDIES.items()])
    yield "## Buckets"
    yield _table(("bucket", "cause"), [(f"`{name}`", means) for name, means in _BUCKETS.items()])


def _seen(row: FailureContract, codes: Mapping[str, CodeContract]) -> tuple[str, ...]:
    patterns = (f"`{each}`" if each else "" for each in (row.retrying, row.final, row.says))
    return (_happening(row), *patterns, *_come_to(row, codes))


def _come_to(row: FailureContract, codes: Mapping[str, CodeContract]) -> tuple[str, str, str]:
    code = codes[row.code]
    return f"`{code.code}`", code.bucket, f"`{code.remedy}`"


def _happening(row: FailureContract) -> str:
    return row.cause if row.is_seen else f"{row.cause} *"


def _flowing(text: str) -> str:
    return " ".join(text.split())


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[trial.replace("|", "\\|") for trial in row] for row in (heads, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
