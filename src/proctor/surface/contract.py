"""The contract: every file, field, event, command and code that other programs may rely on, read from the code."""

import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec

from proctor import places
from proctor.campaign.freeze import FrozenFiles
from proctor.campaign.regrade import RegradeRow
from proctor.config.model import ConfigFile
from proctor.context import store as session_store
from proctor.context.model import SessionHeader
from proctor.errors import CODES, Bucket, Exit, ProctorError, bucket_of
from proctor.event.model import Event
from proctor.event.row import AnySupervisorRow, Row
from proctor.event.trace import ToolCall
from proctor.event.transcript import Line
from proctor.evidence import health, layout, proofs
from proctor.evidence.artifacts import AttemptRecord, AttemptReport, Feedback, PlanFile, ProcessRecord, RunnerRef, Seal
from proctor.evidence.live import Live
from proctor.evidence.regrade_record import RegradeRecord
from proctor.evidence.sign import NAMESPACE
from proctor.evidence.statement import Statement
from proctor.ledger import schema as ledger_schema
from proctor.model.script import Script
from proctor.plan.recover import REMEDIES, Remedy
from proctor.probe.model import ProbeRow
from proctor.report.campaign import CampaignReport
from proctor.runtime.base import Runtime
from proctor.runtime.capability import Capabilities, CapabilityProfile
from proctor.runtime.failures import EVERYWHERE, Failure
from proctor.runtime.proof import ProofState, proofs_of, subject_of
from proctor.runtime.registry import built_in_ids, runtime_by_id
from proctor.runtime.resolve import ExamineProgram
from proctor.spec.model import CampaignSpec
from proctor.spec.prices import Prices
from proctor.surface.cli.app import COMMANDS, find_command
from proctor.surface.cli.command import Argument
from proctor.surface.progress_rows import AnyProgress

VERSION = 1
"""Version of the contract's own format."""

Kind = Literal["artifact", "rows", "spec", "value", "text", "database", "signature"]

_ATTEMPT = "runs/RUN/attempts/ATTEMPT"
_PROCESS = "runs/RUN/runtimes/PROCESS"
_CAMPAIGN = "campaigns/CAMPAIGN"
_SESSION = "sessions/SESSION"
_SNAPSHOT = f"{_CAMPAIGN}/spec.snapshot"
_REGRADE = f"{_CAMPAIGN}/regrades/REGRADE"


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    kind: Kind
    folder: str | None
    type: Any = None
    means: str | None = None
    version: int | None = None
    refusal: str | None = "evidence.version"
    """Error code for another version, if the file has one; None if such a file is ignored."""


def _chained(type_: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return the type of a row as it is on disk, with the fields of the hash chain."""
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
    _File(layout.PROMPT, "text", _ATTEMPT, means="The prompt, as it was sent to the agent."),
    _File(
        layout.FRAMES,
        "rows",
        _ATTEMPT,
        Row,
        "Every frame to and from the agent, and what Proctor itself observed, redacted and in order.",
    ),
    _File(layout.TOOL_CALLS, "rows", _ATTEMPT, _chained(ToolCall), "The agent's tool calls, derived from the frames."),
    _File(layout.TRANSCRIPT, "rows", _ATTEMPT, _chained(Line), "The conversation, derived from the frames."),
    _File(layout.RUNNER_REF, "artifact", _ATTEMPT, RunnerRef),
    _File(layout.FEEDBACK, "artifact", _ATTEMPT, Feedback),
    _File(layout.PROBES, "rows", _ATTEMPT, _chained(ProbeRow), "The results of the probes."),
    _File(layout.WORKSPACE_DIFF, "text", _ATTEMPT, means="Changes in the workspace, as a unified diff."),
    _File(layout.REPORT, "artifact", _ATTEMPT, AttemptReport),
    _File(layout.SEAL, "artifact", _ATTEMPT, Seal),
    _File(
        layout.SEAL_SIGNATURE,
        "signature",
        _ATTEMPT,
        means=f"Optional: an SSH signature of seal.json, in the namespace `{NAMESPACE}`.",
    ),
    _File(layout.FRAMES, "rows", _PROCESS, Row, "Frames of the agent process that belong to no single attempt."),
    _File("process.json", "artifact", _PROCESS, ProcessRecord),
    _File("process.json.sig", "signature", _PROCESS, means="Optional: an SSH signature of process.json."),
    _File("plan.json", "artifact", _CAMPAIGN, PlanFile, "The plan of the campaign: flows, limits, trials."),
    _File(
        "report.json",
        "artifact",
        _CAMPAIGN,
        CampaignReport,
        "The report, as `run --json` prints it.",
    ),
    _File("RESULTS.md", "text", _CAMPAIGN, means="The report as Markdown."),
    _File(
        "ledger.db",
        "database",
        _CAMPAIGN,
        None,
        "SQLite: the attempts of every trial, and their results.",
        ledger_schema.VERSION,
    ),
    _File(
        "live.json",
        "artifact",
        _CAMPAIGN,
        Live,
        "The current state of a running campaign. Not evidence; deleted when the run ends.",
        refusal=None,
    ),
    _File("pinned", "text", _CAMPAIGN, means="Empty. While it exists, `proctor gc` keeps the campaign."),
    _File("regrade.json", "artifact", _REGRADE, RegradeRecord),
    _File("regrade.probes.jsonl", "rows", _REGRADE, RegradeRow, "The results of the probes in a regrade."),
    _File("lock", "text", _CAMPAIGN, means="Empty. Locked by the process that runs the campaign."),
    _File(
        proofs.NAME,
        "database",
        None,
        None,
        "SQLite, in the user's state folder: results of the conformance suite, by runtime and agent program.",
        proofs.VERSION,
        "machine.proofs",
    ),
    _File("index.json", "artifact", _SNAPSHOT, FrozenFiles, "Digests of the spec and of the files that it names."),
    _File("spec.yaml", "text", _SNAPSHOT, means="The spec when the campaign was created, redacted."),
    _File("script-N.yaml", "text", _SNAPSHOT, means="A script when the campaign was created, redacted."),
    _File(
        "health.db",
        "database",
        "",
        None,
        "SQLite: whether the agent programs started, over all runs.",
        health.VERSION,
        "machine.health",
    ),
    _File("session.json", "artifact", _SESSION, SessionHeader),
    _File(
        "session.db",
        "database",
        _SESSION,
        None,
        "SQLite: turns, entries, sittings and thread of a session. Not evidence, but derived from it.",
        session_store.VERSION,
        "session.damaged",
    ),
    _File("config", "spec", None, ConfigFile, "proctor.toml of a project and config.toml of a user."),
    _File("spec", "spec", None, CampaignSpec, "The YAML file that `proctor run` takes.", refusal="spec.version"),
    _File(
        "script",
        "spec",
        None,
        Script,
        "The YAML file with the replies of the scripted model.",
        refusal="spec.version",
    ),
    _File("prices", "spec", None, Prices, "The YAML file with the prices of models.", refusal="spec.version"),
    _File("event", "value", None, Event, "A canonical event, which is derived from frames."),
    _File(
        "self",
        "value",
        None,
        AnySupervisorRow,
        "The `frame` of a `self` row of frames.jsonl: what Proctor itself observed or decided.",
    ),
    _File("progress", "value", None, AnyProgress, "A row of the stream that `--progress` writes."),
    _File("statement", "value", None, Statement, "The in-toto statement that `proctor verify --statement` writes."),
)

EXITS = {
    Exit.OK: "Every trial met its expectation, or the command succeeded.",
    Exit.JUDGED_NO: "A result is not as expected, a gate blocks, or a comparison or a conformance case failed.",
    Exit.USAGE: "Wrong usage or invalid input.",
    Exit.INFRASTRUCTURE: "Infrastructure: a failure of this machine or of the agent.",
    Exit.UNVERIFIED: "Inconclusive: something is missing, was cut off (partial), or could not be judged.",
    Exit.EVIDENCE: "The evidence or a signature is invalid.",
    Exit.INTERRUPTED: "Interrupted.",
}


class ContractPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parts of the contract."""


class FileContract(ContractPart, frozen=True, kw_only=True):
    """A file of the evidence, a row of a stream, or a file that users write."""

    name: str
    """Name of the file, or of the value for `proctor schema`."""
    kind: Kind
    """What it contains."""
    means: str
    """What it is for."""
    folder: str | None
    """Folder below the evidence root, with placeholders in capitals; null if it is not in the evidence."""
    type: str | None
    """Name of its type, or of its rows' type, in `types`; null for a union and for what is not JSON."""
    schema_version: int | None
    """Version of its format, the only one that this Proctor reads; null if it has none."""
    refusal: str | None
    """Error code with which another version is refused; null if it has no version, or if such a file is ignored."""


class VariantContract(ContractPart, frozen=True, kw_only=True):
    """One variant of a union."""

    tag: str
    """Value of the field that tells the variants apart."""
    type: str
    """Name of its type in `types`."""
    means: str
    """What it means."""


class ArgumentContract(ContractPart, frozen=True, kw_only=True):
    """A positional argument or an option of a command."""

    names: tuple[str, ...]
    """Names of the option; of a positional argument, its one name without dashes."""
    value: str | None
    """Placeholder for its value; null for a switch."""
    is_required: bool
    """Whether the command fails without it."""
    choices: tuple[str, ...]
    """Allowed values; empty if any value is allowed."""
    help: str
    """Help text."""

    @property
    def is_positional(self) -> bool:
        return not self.names[0].startswith("-")


class CommandContract(ContractPart, frozen=True, kw_only=True):
    """A command."""

    name: str
    """Name without `proctor`, such as `campaign run`."""
    summary: str
    """One line for the list of commands."""
    help: str
    """Full help text."""
    arguments: tuple[ArgumentContract, ...]
    """Arguments in the order of the help."""
    example: str
    """A command line that works."""


class CodeContract(ContractPart, frozen=True, kw_only=True):
    """An error code."""

    code: str
    """The code: family and name, such as `spec.unknown-key`."""
    means: str
    """What went wrong."""
    todo: str
    """What the user can do about it."""
    retryable: bool
    """Whether trying again can help."""
    bucket: Bucket
    """Cause of an attempt that ends with the code."""
    remedy: Remedy | None
    """What a campaign does after an attempt that ends with the code; null if no attempt ends with it."""


class FailureContract(ContractPart, frozen=True, kw_only=True):
    """A row of the failure table: how the failure of an attempt is recognized. The first matching row applies."""

    runtime: str | None
    """Runtime that the row applies to; null if it applies to all."""
    id: str
    """Name of the row, unique in its runtime's table."""
    cause: str
    """What goes wrong."""
    retrying: str | None
    """Regular expression for the class of errors reported while the agent retries; null if no such error matches."""
    final: str | None
    """Regular expression for the class of the error that ends the turn; null if no such error matches."""
    says: str | None
    """Regular expression that the error's text must contain; null if any text matches."""
    code: str
    """Error code that the attempt ends with."""
    is_seen: bool
    """Whether a real agent produced the failure in a test; false if the tests inject it."""


class ExitContract(ContractPart, frozen=True, kw_only=True):
    """An exit code of all commands."""

    code: int
    """The exit code."""
    name: str
    """Its name in lower case."""
    means: str
    """What it means."""


class RuntimeContract(ContractPart, frozen=True, kw_only=True):
    """A built-in runtime."""

    id: str
    """Id of the runtime."""
    transports: tuple[str, ...]
    """Transports that it supports, its default first."""
    profile: CapabilityProfile | None
    """Its capability profile; null if it cannot be loaded."""
    capabilities: Capabilities | None
    """The capabilities that it declares; null if it cannot be loaded."""
    proven: dict[str, dict[str, ProofState]] | None = None
    """What of it is proven with the installed program, by transport and capability; null if that was not examined."""
    problem: str | None = None
    """Why it cannot be loaded, or why its program cannot be used; null if it can."""


class Contract(ContractPart, frozen=True, kw_only=True):
    """Everything that other programs may rely on."""

    contract_version: int
    """Version of the contract's own format."""
    files: tuple[FileContract, ...]
    """Files of the evidence, streams, and files that users write."""
    events: tuple[VariantContract, ...]
    """Canonical events."""
    self_rows: tuple[VariantContract, ...]
    """Variants of the `frame` of a `self` row of frames.jsonl."""
    commands: tuple[CommandContract, ...]
    """Commands, in the order of `proctor --help`."""
    errors: tuple[CodeContract, ...]
    """Error codes."""
    failures: tuple[FailureContract, ...]
    """The failure table, first the rows that apply to all runtimes."""
    exits: tuple[ExitContract, ...]
    """Exit codes."""
    capabilities: tuple[str, ...]
    """Names of all capabilities."""
    runtimes: tuple[RuntimeContract, ...]
    """Built-in runtimes."""
    types: dict[str, Any]
    """JSON Schemas by name. Their `$ref`s have the form `#/types/NAME`."""


ProvenBy = Callable[[Runtime], dict[str, dict[str, ProofState]]]
"""Returns the state of every capability of a runtime, by transport."""

SCHEMAS = {file.name: file.type for file in _FILES if file.type is not None}
"""The types for which `proctor schema` prints a JSON Schema, by name."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a file, of one row of a stream, or of a spec. Raises KeyError for any other name."""
    json_schema: dict[str, Any] = _clean_descriptions(msgspec.json.schema(SCHEMAS[name]))
    return json_schema


def contract(*, proven_by: ProvenBy | None = None) -> Contract:
    """Return the contract of this version of Proctor. With `proven_by`, also what is proven on this machine."""
    types = [file.type for file in _FILES if file.type is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/types/{name}")
    refs = iter(schemas)
    return Contract(
        contract_version=VERSION,
        files=tuple(_file(file, next(refs) if file.type is not None else {}) for file in _FILES),
        events=tuple(_variants(Event)),
        self_rows=tuple(_variants(AnySupervisorRow)),
        commands=tuple(map(_command, COMMANDS)),
        errors=tuple(
            CodeContract(
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
        exits=tuple(ExitContract(code=each, name=each.name.lower(), means=means) for each, means in EXITS.items()),
        capabilities=tuple(field.encode_name for field in msgspec.structs.fields(Capabilities)),
        runtimes=tuple(_runtimes(proven_by)),
        types=_clean_descriptions(components),
    )


def _file(file: _File, schema: dict[str, Any]) -> FileContract:
    return FileContract(
        name=file.name,
        kind=file.kind,
        means=file.means or _capitalized(_first_paragraph(file.type).removeprefix(f"{file.name}: ")),
        folder=file.folder,
        type=schema["$ref"].rpartition("/")[2] if "$ref" in schema else None,
        schema_version=(version := file.version or _version(file.type)),
        refusal=None if version is None else file.refusal,
    )


def _version(type_: Any) -> int | None:
    """Return the version that a struct's `version` or `schema_version` field must have; None without such a field."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        for field in msgspec.structs.fields(type_):
            if field.name in ("schema_version", "version"):
                return int(field.default if field.default is not msgspec.NODEFAULT else typing.get_args(field.type)[0])
    return None


def _first_paragraph(type_: type) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join(inspect.cleandoc(type_.__doc__ or "").partition("\n\n")[0].split())


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _variants(union: Any) -> Iterator[VariantContract]:
    for member in typing.get_args(union):
        yield VariantContract(tag=member.__struct_config__.tag, type=member.__name__, means=_first_paragraph(member))


def _command(name: str) -> CommandContract:
    command = find_command(name)
    return CommandContract(
        name=name,
        summary=COMMANDS[name][1],
        help=inspect.cleandoc(command.call.__doc__ or ""),
        arguments=tuple(map(_argument, command.arguments)),
        example=command.example,
    )


def _argument(each: Argument) -> ArgumentContract:
    settings = each.settings
    is_positional = not each.names[0].startswith("-")
    is_switch = settings.get("action") in ("store_true", "store_const")
    return ArgumentContract(
        names=each.names,
        value=None if is_switch else settings.get("metavar", each.names[0].strip("-").upper()),
        is_required=settings.get("nargs") != "?" if is_positional else settings.get("required", False),
        choices=tuple(settings.get("choices", ())),
        help=settings["help"],
    )


def _runtimes(proven_by: ProvenBy | None) -> Iterator[RuntimeContract]:
    for runtime_id in built_in_ids():
        try:
            runtime = runtime_by_id(runtime_id)
        except Exception as error:  # a plugin may raise anything
            problem = f"{type(error).__name__}: {error}"
            yield RuntimeContract(id=runtime_id, transports=(), profile=None, capabilities=None, problem=problem)
            continue
        declared = RuntimeContract(
            id=runtime_id, transports=runtime.transports, profile=runtime.profile, capabilities=runtime.capabilities
        )
        try:
            yield declared if proven_by is None else msgspec.structs.replace(declared, proven=proven_by(runtime))
        except ProctorError as error:
            yield msgspec.structs.replace(declared, problem=f"{error.code}: {error.what}")


def proven_here(examine: ExamineProgram) -> ProvenBy:
    """Return a function that reads what is proven of a runtime, with the program that is installed now.

    The function raises ProctorError if the program cannot be used, or if proofs.db cannot be read.
    """
    read_once = cache(lambda: proofs.read_proofs(places.state_dir()))

    def proven_by(runtime: Runtime) -> dict[str, dict[str, ProofState]]:
        subject = subject_of(runtime, examine(runtime, runtime.locate({})))
        return {
            transport: proofs_of(runtime, transport, subject, read_once()).capability_states(runtime.capabilities)
            for transport in runtime.transports
        }

    return proven_by


def _failures() -> Iterator[FailureContract]:
    tables: list[tuple[str | None, tuple[Failure, ...]]] = [(None, EVERYWHERE)]
    for runtime_id in built_in_ids():
        with suppress(Exception):  # a plugin may raise anything; `runtimes` has the problem
            tables.append((runtime_id, runtime_by_id(runtime_id).failures))
    for runtime, table in tables:
        for row in table:
            yield FailureContract(
                runtime=runtime,
                id=row.id,
                cause=row.cause,
                retrying=row.retrying,
                final=row.final,
                says=row.says,
                code=row.code,
                is_seen=row.is_seen,
            )


def _clean_descriptions(value: Any) -> Any:
    """Remove the indentation of the source code from all descriptions of a JSON Schema."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(item) if key == "description" and isinstance(item, str) else _clean_descriptions(item)
            for key, item in value.items()
        }
    return [_clean_descriptions(item) for item in value] if isinstance(value, list) else value
