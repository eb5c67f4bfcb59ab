"""The contract: true of what is on disk, guarded by a snapshot, and the one source of the reference pages."""

import ast
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from proctor.errors import CODES, Exit
from proctor.evidence.layout import SEAL, SEAL_SIGNATURE, SEALED
from proctor.runtime.capability import Capabilities
from proctor.surface.cli.app import COMMANDS, answer, find_command
from proctor.surface.cli.command import parse
from proctor.surface.completion import SHELLS
from proctor.surface.contract import EXITS, SCHEMAS, Contract, contract, schema
from tests.lab import Lab
from tests.surface.conftest import Quickstart
from tests.surface.schema_check import misfits
from tools.reference import documents, usage

CHECKOUT = Path(__file__).parents[2]
SOURCES = [file for file in (CHECKOUT / "src" / "proctor").rglob("*.py") if file.name != "codes.py"]
PAGES = """
tests/surface/contract.json
SCHEMAS.md
docs/reference/cli.md
docs/reference/errors.md
docs/reference/events.md
docs/reference/facts.md
docs/reference/failures.md
docs/reference/versioning.md
docs/howto/onboard-a-runtime.md
""".split()
"""What `make contract` writes. Every worker collects these tests, so they are named here and not generated."""


def said(*words: str) -> tuple[int, str]:
    """The command in this process, without a root that some do not take."""
    stdout = io.StringIO()
    with redirect_stdout(stdout):
        code = answer(words)
    return code, stdout.getvalue()


@pytest.fixture(scope="module")
def told() -> Contract:
    return contract()


@pytest.fixture(scope="module")
def pages(told: Contract) -> dict[str, str]:
    return documents(told)


def test_every_generated_page_is_compared(pages: dict[str, str]) -> None:
    assert sorted(pages) == sorted(PAGES)


@pytest.mark.requirement("evidence.contract")
@pytest.mark.parametrize("name", PAGES)
def test_what_is_generated_says_what_the_code_says(pages: dict[str, str], name: str) -> None:
    assert (CHECKOUT / name).read_text() == pages[name], "run `make contract`, and look at what changed"


@pytest.mark.requirement("evidence.contract")
def test_the_command_tells_everything_by_its_name() -> None:
    code, text = said("contract", "--json")
    found = json.loads(text)
    assert code == 0
    # What is proven is known of this machine only.
    for runtime in found["runtimes"]:
        runtime.update(proven=None, problem=None)
    assert found == json.loads((CHECKOUT / "tests/surface/contract.json").read_text())
    attempt = [file["name"] for file in found["files"] if file["folder"] == "runs/RUN/attempts/ATTEMPT"]
    assert sorted(attempt) == sorted((SEAL, SEAL_SIGNATURE, *SEALED))
    assert [each["name"] for each in found["commands"]] == list(COMMANDS)
    assert [each["code"] for each in found["errors"]] == list(CODES)
    assert [each["code"] for each in found["exits"]] == list(Exit) == list(EXITS)
    [codex] = [each for each in found["runtimes"] if each["id"] == "codex_app_server"]
    assert list(codex["capabilities"]) == found["capabilities"]
    assert len(found["capabilities"]) == len(Capabilities.__struct_fields__)
    versions = {each["name"]: each["schemaVersion"] for each in found["files"]}
    assert (versions["seal.json"], versions["spec"], versions["script"], versions["ledger.db"]) == (1, 1, 1, 1)
    named = {each["type"] for kind in ("files", "events", "selfRows") for each in found[kind]} - {None}
    assert named <= set(found["types"])
    assert {ref.rpartition("/")[2] for ref in re.findall(r'"#/types/[^"]+', json.dumps(found))} <= set(found["types"])


# ── schemas ──


@pytest.mark.real_agent
@pytest.mark.requirement("evidence.contract")
def test_every_file_of_real_evidence_is_in_the_contract_and_fits_its_schema(
    quickstart: Quickstart, told: Contract
) -> None:
    known = {(file.folder, file.name): file for file in told.files}
    checked = 0
    for path in sorted(each for each in quickstart.lab.root.rglob("*") if each.is_file()):
        parts = path.relative_to(quickstart.lab.root).parts
        kinds = {"attempts": "ATTEMPT", "runtimes": "PROCESS", "runs": "RUN", "campaigns": "CAMPAIGN"}
        folder = "/".join(kinds.get(above, part) for above, part in zip(("", *parts), parts[:-1], strict=False))
        file = known[folder, re.sub(r"^script-\d+\.yaml$", "script-N.yaml", path.name)]
        if file.type is None:
            continue
        shape = schema(file.name)
        lines = path.read_text().splitlines() if file.kind == "rows" else [path.read_text()]
        for line in lines:
            assert misfits(json.loads(line), shape, shape) == []
            checked += 1
    assert checked > 100


def test_a_schema_refuses_what_is_no_seal(quickstart: Quickstart) -> None:
    shape = schema("seal.json")
    seal = json.loads((quickstart.folder("fix") / "seal.json").read_text())
    for other in ({**seal, "more": 1}, {**seal, "schemaVersion": 2}, {**seal, "files": {"a": 1}}, {}):
        assert misfits(other, shape, shape) != []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_can_be_printed_and_is_whole(name: str) -> None:
    code, text = said("schema", name)
    shown = json.loads(text)
    assert (code, shown) == (0, msgspec.json.decode(msgspec.json.encode(schema(name))))
    assert {ref.rpartition("/")[2] for ref in re.findall(r'"#/\$defs/[^"]+', text)} <= set(shown["$defs"])


def test_a_schema_nobody_knows_is_told_with_those_there_are() -> None:
    code, text = said("schema", "seal", "--json")
    error = json.loads(text)["error"]
    assert (code, error["code"], "'seal.json'" in error["what"]) == (2, "usage", True)


# ── commands ──


@pytest.mark.requirement("surface.cli")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_every_command_is_one(name: str) -> None:
    command = find_command(name)
    words = shlex.split(command.example)
    length = 1 + len(name.split())
    assert words[:length] == ["proctor", *name.split()]
    assert set(parse(name, command, words[length:])) == set(taken_by(command.call))


def taken_by(call: Callable[..., int]) -> Iterator[str]:
    """The words of a command, those included that it shares with others in a TypedDict."""
    for name, each in inspect.signature(call).parameters.items():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            [shared] = get_args(each.annotation)
            yield from get_type_hints(shared)
        else:
            yield name


def complete(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = SHELLS["bash"](contract().commands)
    line = " ".join(map(shlex.quote, ("proctor", *words)))
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _proctor; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    found = subprocess.run(
        ["bash", "-uc", f"{script}\ncomplete -p proctor > /dev/null || exit 9\n{asked}"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout.split()


@pytest.mark.long
@pytest.mark.requirement("surface.cli")
def test_bash_completes_commands_options_and_choices_and_leaves_files_to_itself() -> None:
    assert complete("") == list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    assert complete("ver") == ["verify"]
    assert complete("--") == ["--help", "--version"]
    assert complete("attempt", "") == ["list", "show", "explain", "rederive", "cancel", "export"]
    assert complete("attempt", "re") == ["rederive"]
    assert complete("attempt", "rederive", "x", "--c") == ["--check"]
    assert complete("verify", "-") == "--allowed-signers --signed --statement --root --json --help".split()
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    assert complete("schema", "tool") == ["tool.calls.jsonl"]
    for words in (("run", ""), ("run", "exam"), ("verify", "x", "--root", "-"), ("nobody", "")):
        assert complete(*words) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_told_of_every_command_and_option(shell: str, told: Contract) -> None:
    code, script = said("completion", shell)
    assert code == 0
    for command in told.commands:
        assert all(word in script for word in command.name.split())
        for each in command.arguments:
            assert each.is_positional or each.names[0].removeprefix("--") in script
    assert json.loads(said("completion", shell, "--json")[1]) == {"shell": shell, "script": script}


@pytest.mark.proctor_process
def test_commands_that_are_not_called_are_not_imported(lab: Lab) -> None:
    """What a listing, or the overview, would have to wait for."""
    heavy = ["proctor.surface.contract", "proctor.surface.verify", "proctor.evidence.sign", "rich", "anyio"]
    asked = (
        "import sys; from proctor.surface.cli.app import answer; code = answer(sys.argv[2:]); "
        "sys.exit(', '.join(set(sys.argv[1].split()) & set(sys.modules)) or code)"
    )
    for words in (["--help"], ["attempt", "list", "--json", "--root", str(lab.root)]):
        done = subprocess.run(
            [sys.executable, "-c", asked, " ".join(heavy), *words], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")


# ── codes ──


def codes_given(tree: ast.AST) -> Iterator[str]:
    """Codes where they are handed to an error, a problem or the table; of `f"limit.{clock}"` only `limit.`."""
    for node in ast.walk(tree):
        places: list[ast.expr] = []
        if isinstance(node, ast.Call):
            places += [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            places += node.args[:1] if name.endswith("Error") else []
        elif isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "CODES":
            places.append(node.slice)
        for place in places:
            match place:
                case ast.Constant(value=str() as code) | ast.JoinedStr(values=[ast.Constant(value=str() as code), *_]):
                    yield code


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text()) for file in SOURCES}


def test_every_code_that_is_given_is_in_the_table(trees: dict[Path, ast.Module]) -> None:
    given = {code: file for file, tree in trees.items() for code in codes_given(tree)}
    assert len(given) > 40
    unknown = {code: file.name for code, file in given.items() if code not in CODES and not code.endswith(".")}
    # Of errors that are not ours, and of codes of other things, the first argument is prose or a number.
    assert {code: file for code, file in unknown.items() if re.fullmatch(r"[a-z-]+\.[a-z-]+", code)} == {}


@pytest.mark.long
def test_every_code_in_the_table_is_given_somewhere(trees: dict[Path, ast.Module]) -> None:
    given = {code for tree in trees.values() for code in strings_said(tree)}
    beginnings = tuple(code for tree in trees.values() for code in codes_given(tree) if code.endswith("."))
    assert [code for code in CODES if code not in given and not code.startswith(beginnings)] == []


def strings_said(node: ast.AST) -> Iterator[str]:
    """Every string but those that something is only compared with or looked up by."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        if not isinstance(node, ast.Compare | ast.Subscript | ast.Set):
            nodes.extend(ast.iter_child_nodes(node))


def test_a_flag_is_told_without_a_value() -> None:
    [feedback] = [command for command in contract().commands if command.name == "feedback"]
    assert usage(feedback) == "[--ok] [--fail] [--answer TEXT] [--json RESULT]"
