"""Everything that others may rely on, told by the code itself: files and their fields, events, commands, codes."""

import inspect
import typing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from proctor.campaign import ledger
from proctor.campaign.freeze import FrozenFiles
from proctor.config.model import ConfigFile
from proctor.errors import CODES, Bucket, Exit, bucket_of
from proctor.event.model import Event
from proctor.event.row import AnySeen, Row
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence import health, layout, proofs
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, PlanFile, ProcessRecord, RunnerRef, Seal
from proctor.evidence.live import Live
from proctor.evidence.sign import NAMESPACE
from proctor.evidence.statement import Statement
from proctor.model.script import Script
from proctor.plan.recover import REMEDIES, Remedy
from proctor.probe.model import ProbeRow
from proctor.report.row import Report
from proctor.runtime.capability import Capability, Claims
from proctor.runtime.failures import EVERYWHERE, Failure
from proctor.runtime.registry import built_in_ids, runtime_by_id
from proctor.spec.model import CampaignSpec
from proctor.surface.cli.app import COMMANDS, find_command
from proctor.surface.cli.command import Argument
from proctor.surface.progress_rows import AnyProgress

VERSION = 1
"""Of the shape of the contract itself."""

Kind = Literal["artifact", "rows", "spec", "value", "text", "database", "signature"]

_ATTEMPT = "runs/RUN/attempts/ATTEMPT"
_PROCESS = "runs/RUN/runtimes/PROCESS"
_CAMPAIGN = "campaigns/CAMPAIGN"
_SNAPSHOT = f"{_CAMPAIGN}/spec.snapshot"


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    kind: Kind
    folder: str | None
    type: Any = None
    means: str | None = None
    version: int | None = None


def _chained(type_: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A row as it stands on disk, with what the chain puts before its fields."""
    return msgspec.defstruct(
        type_.__name__,
        [("seq", int), ("prev", str)],
        bases=(type_,),
        namespace={"__doc__": type_.__doc__},
        frozen=True,
        kw_only=True,
    )


_FILES = (
    _File(layout.ATTEMPT, "artifact", _ATTEMPT, AttemptRecord),
    _File(layout.PROMPT, "text", _ATTEMPT, means="What was asked, as it was sent."),
    _File(layout.FRAMES, "rows", _ATTEMPT, Row, "Everything said and seen, redacted, in order."),
    _File(layout.TOOL_CALLS, "rows", _ATTEMPT, _chained(ToolCall), "What it did: a fold of the frames."),
    _File(layout.TRANSCRIPT, "rows", _ATTEMPT, _chained(Line), "What was said: a fold of the frames."),
    _File(layout.RUNNER_REF, "artifact", _ATTEMPT, RunnerRef),
    _File(layout.FEEDBACK, "artifact", _ATTEMPT, Feedback),
    _File(layout.PROBES, "rows", _ATTEMPT, _chained(ProbeRow), "What was verified."),
    _File(layout.WORKSPACE_DIFF, "text", _ATTEMPT, means="What it changed, as a unified diff."),
    _File(layout.REPORT, "artifact", _ATTEMPT, AttemptReport),
    _File(layout.SEAL, "artifact", _ATTEMPT, Seal),
    _File(
        layout.SEAL_SIGNATURE,
        "signature",
        _ATTEMPT,
        means=f"Optional: an SSH signature of the seal, for `{NAMESPACE}`.",
    ),
    _File(layout.FRAMES, "rows", _PROCESS, Row, "What belongs to no single attempt."),
    _File("process.json", "artifact", _PROCESS, ProcessRecord),
    _File("process.json.sig", "signature", _PROCESS, means="Optional: the same of process.json."),
    _File("plan.json", "artifact", _CAMPAIGN, PlanFile, "Everything the campaign will do: flows, limits, cells."),
    _File("report.json", "artifact", _CAMPAIGN, Report, "What `run` and `report` print as JSON."),
    _File("RESULTS.md", "text", _CAMPAIGN, means="The report for people."),
    _File("ledger.db", "database", _CAMPAIGN, None, "SQLite: which cells were tried, and how.", ledger.VERSION),
    _File("live.json", "artifact", _CAMPAIGN, Live, "What it is at now; no evidence, and only there while it runs."),
    _File("pinned", "text", _CAMPAIGN, means="Empty; keeps the campaign, whatever retention says."),
    _File("lock", "text", _CAMPAIGN, means="Empty; locked by the Proctor that runs the campaign, while it lives."),
    _File(proofs.NAME, "database", "", None, "SQLite: what runtimes have shown, on which program.", proofs.VERSION),
    _File("index.json", "artifact", _SNAPSHOT, FrozenFiles, "Digests of the spec and of the files it names."),
    _File("spec.yaml", "text", _SNAPSHOT, means="The spec as it was, redacted."),
    _File("script-N.yaml", "text", _SNAPSHOT, means="A script as it was, redacted."),
    _File(
        "health.db", "database", "", None, "SQLite: how the agents' programs started, over all runs.", health.VERSION
    ),
    _File("config", "spec", None, ConfigFile, "proctor.toml of a project, and config.toml of a user."),
    _File("spec", "spec", None, CampaignSpec, "What `proctor run` takes: a YAML file."),
    _File("script", "spec", None, Script, "What the scripted model says: a YAML file."),
    _File("event", "value", None, Event, "What happened, in our own words; folds and watchers read these."),
    _File("self", "value", None, AnySeen, "What the `frame` of a `self` row of frames.jsonl says."),
    _File("progress", "value", None, AnyProgress, "A row of what `--progress` writes, one a line."),
    _File("statement", "value", None, Statement, "What `proctor verify --statement` writes."),
)

EXITS = {
    Exit.OK: "Every cell meets its expectation; or the command did what it was asked.",
    Exit.JUDGED_NO: "Judged no: a mission failed, or a gate blocks.",
    Exit.USAGE: "Usage or bad input.",
    Exit.INFRASTRUCTURE: "Infrastructure: this machine or the agent could not carry it out.",
    Exit.UNVERIFIED: "Unverified, incomplete or partial.",
    Exit.EVIDENCE: "Evidence is invalid or tampered with, or a signature does not hold.",
    Exit.INTERRUPTED: "Interrupted.",
}


class Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Root of all parts of the contract."""


class FileTold(Told, frozen=True, kw_only=True):
    """A file, row or union. `type` names what is in `types`, `folder` where it lies below the evidence root."""

    name: str
    kind: Kind
    means: str
    folder: str | None
    type: str | None
    schema_version: int | None


class VariantTold(Told, frozen=True, kw_only=True):
    """One of a union, by its tag."""

    tag: str
    type: str
    means: str


class ArgumentTold(Told, frozen=True, kw_only=True):
    names: tuple[str, ...]
    value: str | None
    is_required: bool
    choices: tuple[str, ...]
    help: str

    @property
    def is_positional(self) -> bool:
        return not self.names[0].startswith("-")


class CommandTold(Told, frozen=True, kw_only=True):
    name: str
    summary: str
    help: str
    arguments: tuple[ArgumentTold, ...]
    example: str


class CodeTold(Told, frozen=True, kw_only=True):
    """`bucket` says whose matter it is when an attempt ends with it, and `remedy` what a campaign does then.

    No attempt ends with a code that has no remedy.
    """

    code: str
    means: str
    todo: str
    retryable: bool
    bucket: Bucket
    remedy: Remedy | None


class FailureTold(Told, frozen=True, kw_only=True):
    """A row of the failure table. `runtime` is None where it holds for all; the patterns are regular expressions.

    `isSeen` is False where no real agent was brought to do it, and the tests inject it.
    """

    runtime: str | None
    id: str
    fault: str
    retrying: str | None
    final: str | None
    says: str | None
    code: str
    is_seen: bool


class ExitTold(Told, frozen=True, kw_only=True):
    code: int
    name: str
    means: str


class StrategyTold(Told, frozen=True, kw_only=True):
    """A runtime that is installed; `claims` is None where it cannot even be imported, and `problem` says why."""

    id: str
    transports: tuple[str, ...]
    capability: Capability | None
    claims: Claims | None
    problem: str | None = None


class Contract(Told, frozen=True, kw_only=True):
    """The whole. `types` are JSON Schemas by name."""

    contract_version: int
    files: tuple[FileTold, ...]
    events: tuple[VariantTold, ...]
    self_rows: tuple[VariantTold, ...]
    commands: tuple[CommandTold, ...]
    errors: tuple[CodeTold, ...]
    failures: tuple[FailureTold, ...]
    exits: tuple[ExitTold, ...]
    capabilities: tuple[str, ...]
    strategies: tuple[StrategyTold, ...]
    types: dict[str, Any]


SCHEMAS = {file.name: file.type for file in _FILES if file.type is not None}
"""What `schema` knows."""


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a file, of one row of a stream, or of a spec."""
    found: dict[str, Any] = _tidied(msgspec.json.schema(SCHEMAS[name]))
    return found


def contract() -> Contract:
    types = [file.type for file in _FILES if file.type is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/types/{name}")
    refs = iter(schemas)
    return Contract(
        contract_version=VERSION,
        files=tuple(_file(file, next(refs) if file.type is not None else {}) for file in _FILES),
        events=tuple(_variants(Event)),
        self_rows=tuple(_variants(AnySeen)),
        commands=tuple(map(_command, COMMANDS)),
        errors=tuple(
            CodeTold(
                code=code,
                means=row.means,
                todo=row.todo,
                retryable=row.retryable,
                bucket=bucket_of(code),
                remedy=REMEDIES.get(code),
            )
            for code, row in CODES.items()
        ),
        failures=tuple(_failures()),
        exits=tuple(ExitTold(code=each, name=each.name.lower(), means=means) for each, means in EXITS.items()),
        capabilities=tuple(field.encode_name for field in msgspec.structs.fields(Claims)),
        strategies=tuple(_strategies()),
        types=_tidied(components),
    )


def _file(file: _File, schema: dict[str, Any]) -> FileTold:
    return FileTold(
        name=file.name,
        kind=file.kind,
        means=file.means or _capitalized(_means(file.type).removeprefix(f"{file.name}: ")),
        folder=file.folder,
        type=schema["$ref"].rpartition("/")[2] if "$ref" in schema else None,
        schema_version=file.version or _version(file.type),
    )


def _version(type_: Any) -> int | None:
    """The one value that a struct's field for its version takes."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        for field in msgspec.structs.fields(type_):
            if field.name in ("schema_version", "version"):
                return int(field.default if field.default is not msgspec.NODEFAULT else typing.get_args(field.type)[0])
    return None


def _means(type_: type) -> str:
    """The first paragraph of its own docstring."""
    return " ".join(inspect.cleandoc(type_.__doc__ or "").partition("\n\n")[0].split())


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _variants(union: Any) -> Iterator[VariantTold]:
    for member in typing.get_args(union):
        yield VariantTold(tag=member.__struct_config__.tag, type=member.__name__, means=_means(member))


def _command(name: str) -> CommandTold:
    command = find_command(name)
    return CommandTold(
        name=name,
        summary=COMMANDS[name][1],
        help=inspect.cleandoc(command.call.__doc__ or ""),
        arguments=tuple(map(_argument, command.arguments)),
        example=command.example,
    )


def _argument(each: Argument) -> ArgumentTold:
    settings = each.settings
    is_positional = not each.names[0].startswith("-")
    is_switch = settings.get("action") in ("store_true", "store_const")
    return ArgumentTold(
        names=each.names,
        value=None if is_switch else settings.get("metavar", each.names[0].strip("-").upper()),
        is_required=settings.get("nargs") != "?" if is_positional else settings.get("required", False),
        choices=tuple(settings.get("choices", ())),
        help=settings["help"],
    )


def _strategies() -> Iterator[StrategyTold]:
    for strategy in built_in_ids():
        try:
            runtime = runtime_by_id(strategy)
            yield StrategyTold(
                id=strategy, transports=runtime.transports, capability=runtime.capability, claims=runtime.claims
            )
        except Exception as error:  # a plugin may do anything
            problem = f"{type(error).__name__}: {error}"
            yield StrategyTold(id=strategy, transports=(), capability=None, claims=None, problem=problem)


def _failures() -> Iterator[FailureTold]:
    tables: list[tuple[str | None, tuple[Failure, ...]]] = [(None, EVERYWHERE)]
    for strategy in built_in_ids():
        with suppress(Exception):  # a plugin may do anything; `strategies` tells what
            tables.append((strategy, runtime_by_id(strategy).failures))
    for runtime, table in tables:
        for row in table:
            yield FailureTold(
                runtime=runtime,
                id=row.id,
                fault=row.fault,
                retrying=row.retrying,
                final=row.final,
                says=row.says,
                code=row.code,
                is_seen=row.is_seen,
            )


def _tidied(value: Any) -> Any:
    """Descriptions without the indentation of the source they come from."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(item) if key == "description" and isinstance(item, str) else _tidied(item)
            for key, item in value.items()
        }
    return [_tidied(item) for item in value] if isinstance(value, list) else value
