"""Structs of a spec: probes that run commands and compare what they print or write."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, field

from proctor.spec.argv import argv_of
from proctor.spec.pointer import is_pointer
from proctor.spec.probe_options import OUT, ExitCode, KeyProblem, ProbeOptions, is_inside
from proctor.spec.struct import Command, Duration, Spec, Text, Texts


class HeadlessRun(ProbeOptions, tag_field="kind", tag="headless_run", frozen=True, kw_only=True):
    """A probe that runs a command in a view of the workspace."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`."""

    stdout: str | None = None
    """Standard output that passes, compared byte for byte. Default: not compared."""

    exit: ExitCode = 0
    """Exit status that passes, 0 to 255. Default 0."""

    timeout: Duration = "30s"
    """Longest duration; the probe fails after it. Default 30 s."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> HeadlessRun(command="make test").argv
        ('bash', '-c', 'make test')
        """
        return argv_of(self.command)

    @property
    def expected_values(self) -> tuple[str, ...]:
        return () if self.stdout is None else (self.stdout,)


class ImportSmoke(ProbeOptions, tag_field="kind", tag="import_smoke", frozen=True, kw_only=True):
    """A probe that imports Python modules of the workspace, each in a fresh interpreter."""

    modules: Annotated[Texts, Meta(min_length=1)]
    """The modules, such as `shop.cart`. Each must be imported from a file of the workspace."""

    names: dict[Text, Texts] = {}
    """Names that a module must have, by module. Default: none."""

    python: Text = "python3"
    """The Python that imports them. Default `python3`."""

    path: Texts = field(default_factory=lambda: ["."])
    """Folders of the workspace that are put first on `sys.path`. Default: the workspace itself."""

    timeout: Duration = "30s"
    """Longest duration of all imports together; the probe fails after it. Default 30 s."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> ImportSmoke(modules=["shop", "shop.cart"]).argv
        ('python3', '-c', 'import shop, shop.cart')
        """
        return (self.python, "-c", f"import {', '.join(self.modules)}")

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        for at, module in enumerate(self.modules):
            if not all(part.isidentifier() for part in module.split(".")):
                what = f"`{module}` is not the name of a module, such as `shop` or `shop.cart`"
                yield KeyProblem("spec.type", what, key=f"modules[{at}]")
            elif module in self.modules[:at]:
                yield KeyProblem("spec.unsupported", f"`{module}` is listed twice", key=f"modules[{at}]")
        for module, names in self.names.items():
            if module not in self.modules:
                what = f"`{module}` is not one of the `modules`"
                yield KeyProblem("spec.type", what, key=f"names.{module}", suggestion="Add it to `modules`.")
            for at, name in enumerate(names):
                if not name.isidentifier():
                    what = f"`{name}` is not a name that a module can have"
                    yield KeyProblem("spec.type", what, key=f"names.{module}[{at}]")
        for at, folder in enumerate(self.path):
            if folder != "." and not is_inside(folder):
                what = f"`{folder}` is not a folder inside the workspace, such as `src`"
                yield KeyProblem("spec.type", what, key=f"path[{at}]")


class Normalization(StrEnum):
    """A difference between two outputs that does not count."""

    LINE_ENDINGS = "line_endings"
    """CR LF and CR are the same as LF."""

    TRAILING_SPACE = "trailing_space"
    """Spaces and tabs at the end of a line are removed."""

    ANSI = "ansi"
    """Escape sequences of a terminal, such as colours, are removed."""


class StdoutCase(Spec, frozen=True, kw_only=True):
    """One of the `cases` of `stdout_golden`."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`."""

    golden: Text
    """Path of a file with the stdout that passes, relative to the spec's folder."""

    stdin: str = ""
    """Standard input of the command. Default: empty."""

    exit: ExitCode = 0
    """Exit status that passes, 0 to 255. Default 0."""


class StdoutGolden(ProbeOptions, tag_field="kind", tag="stdout_golden", frozen=True, kw_only=True):
    """A probe that compares the stdout of commands with files."""

    cases: Annotated[list[StdoutCase], Meta(min_length=1)]
    """The cases. Each is run in a fresh view, and all must pass."""

    normalize: list[Normalization] = []
    """Differences that do not count: `line_endings`, `trailing_space`, `ansi`. Default: none, so that every byte
    counts."""

    timeout: Duration = "30s"
    """Longest duration of each case, which fails after it. Default 30 s."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> StdoutGolden(cases=[StdoutCase(command="make db | sort", golden="sorted.txt")]).argv
        ('bash', '-c', 'make db | sort')
        """
        return argv_of(self.cases[0].command)

    @property
    def files(self) -> dict[str, str]:
        return super().files | {f"cases[{at}].golden": case.golden for at, case in enumerate(self.cases)}


class OutputFormat(StrEnum):
    """How an output is compared with its golden."""

    BYTES = "bytes"
    """Byte for byte."""

    TEXT = "text"
    """As UTF-8; CR LF and CR are the same as LF."""

    JSON = "json"
    """As one JSON value. The order of keys, white space and the notation of a number do not count."""

    JSONL = "jsonl"
    """As one JSON value per line, in this order. Blank lines do not count."""

    CSV = "csv"
    """As rows with a header. Quotes that a field does not need do not count."""

    @property
    def what_is_ignored(self) -> str | None:
        """What `ignore` names: a pointer or a column; None if it cannot be used."""
        return {"json": "pointer", "jsonl": "pointer", "csv": "column"}.get(self)


class OutputFile(Spec, frozen=True, kw_only=True):
    """One of the `outputs` of `output_fixture_diff`."""

    path: Text
    """Path of a file that the command writes, relative to the workspace or below `{out}`."""

    golden: Text
    """Path of the file that it is compared with, relative to the spec's folder."""

    format: OutputFormat = OutputFormat.BYTES
    """How they are compared: `bytes`, `text`, `json`, `jsonl` or `csv`. Default `bytes`."""

    ignore: Texts = []
    """What may differ: JSON pointers such as `/created` for `json` and, in each line, for `jsonl`; names of columns for
    `csv`. Default: nothing."""


class OutputFixtureDiff(ProbeOptions, tag_field="kind", tag="output_fixture_diff", frozen=True, kw_only=True):
    """A probe that runs a command twice and compares the files that it writes with each other and with goldens."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`. `{out}` is the probe's own folder, which is empty
    before each run."""

    outputs: Annotated[list[OutputFile], Meta(min_length=1)]
    """The files that the command writes, and what they are compared with."""

    exit: ExitCode = 0
    """Exit status that passes, 0 to 255. Default 0."""

    timeout: Duration = "1m"
    """Longest duration of each run; the probe fails after it. Default 1 minute."""

    @property
    def argv(self) -> tuple[str, ...]:
        return argv_of(self.command)

    @property
    def files(self) -> dict[str, str]:
        return super().files | {f"outputs[{at}].golden": output.golden for at, output in enumerate(self.outputs)}

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        for at, output in enumerate(self.outputs):
            key = f"outputs[{at}]"
            if not is_inside(output.path.removeprefix(f"{OUT}/")):
                what = f"`{output.path}` is not a path inside the workspace or below `{OUT}/`"
                yield KeyProblem("spec.type", what, key=f"{key}.path", suggestion=f"Write `{OUT}/report.json`.")
            ignored = output.format.what_is_ignored
            if output.ignore and ignored is None:
                what = f"`ignore` has no effect on the format `{output.format}`"
                yield KeyProblem("spec.unsupported", what, key=f"{key}.ignore", suggestion="Remove `ignore`.")
            for number, pointer in enumerate(output.ignore if ignored == "pointer" else ()):
                if not is_pointer(pointer):
                    what = f"`{pointer}` is not a JSON pointer, such as `/created` or `/items/0/id`"
                    yield KeyProblem("spec.type", what, key=f"{key}.ignore[{number}]")
