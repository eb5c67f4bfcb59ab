"""Documents are true: specs and scripts load, keys and files are described, commands exist, links resolve."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module, invalidate_caches
from pathlib import Path
from site import addsitedir
from types import ModuleType

import pytest

from proctor import Context, spec
from proctor.config.load import load_config
from proctor.evidence import layout
from proctor.model import script
from proctor.model.script import Script, load_script
from proctor.spec import campaign_options, context_settings, criterion, expect, model, prices, probe_options
from proctor.spec.check import find_errors
from proctor.spec.load import SpecOverrides, load_spec
from proctor.spec.model import CampaignSpec
from proctor.spec.source_file import decode_bytes
from proctor.spec.struct import Spec
from proctor.surface.cli.app import COMMANDS, answer, find_command
from proctor.surface.cli.command import parse

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
REFERENCE = ROOT / "docs/reference"
TUTORIAL = ROOT / "docs/tutorial.md"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
PAGES = [README, *ROOT.glob("docs/**/*.md")]
SPEC_MODULES = (
    *(model, criterion, probe_options, expect, campaign_options, prices, context_settings),
    *(import_module(f"proctor.spec.{file.stem}") for file in Path(spec.__path__[0]).glob("*_probes.py")),
)
GLOSSARY = {
    *("mission", "suite", "flow", "campaign", "trial", "attempt", "run", "session", "turn", "item", "canary"),
    *("runtime", "runtime chain", "rollout", "capability", "claim", "verified", "probe", "gate", "verdict"),
    *("frame", "event", "evidence", "seal", "ledger", "tripwire", "finding", "error", "failure", "outcome"),
    *("scratch", "containment", "passed", "expected", "unverified", "scored", "result", "infrastructure failure"),
    *("sandbox", "isolation", "pinned program", "peer"),
    *("spec", "workspace", "repeat", "evidence root", "agent process"),
    *("sitting", "mirror", "entry", "thread", "context engine", "give", "held", "projection", "binding", "epoch"),
    *("logical turn", "commit", "degraded"),
}


def blocks(language: str, file: Path) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE)


def shown_yaml() -> Iterator[tuple[str, str]]:
    for file in PAGES:
        for block in blocks("yaml", file):
            if block.startswith("version:"):
                yield file.relative_to(ROOT).as_posix(), block


def structs_of(module: str) -> list[type[Spec]]:
    found, waiting = [], [Spec]
    while waiting:
        waiting += (each := waiting.pop(0)).__subclasses__()
        found += [each] if each is not Spec and each.__module__ == module else []
    return found


def keys_of(*modules: str) -> Counter[str]:
    """Every key that a user may write, and how many structs have it."""
    structs = [struct for module in modules for struct in structs_of(module)]
    tags = [tag for struct in structs if (tag := struct.__struct_config__.tag_field)]
    return Counter([*tags, *(key for struct in structs for key in vars(struct).get("__annotations__", ()))])


def file_names() -> set[str]:
    """The last part of every path that the layout knows."""
    places = (layout.AttemptPaths, layout.RuntimePaths, layout.CampaignPaths)
    return {
        getattr(place(ROOT), name).name
        for place in places
        for name, value in vars(place).items()
        if isinstance(value, property)
    }


@pytest.mark.requirement("surface.docs")
def test_readme_fits_on_one_screen() -> None:
    assert len(README.read_text().splitlines()) <= 60


@pytest.mark.requirement("surface.docs")
def test_every_spec_and_script_that_is_shown_can_be_used() -> None:
    shown = list(shown_yaml())
    assert {file for file, _ in shown} >= {"docs/reference/spec.md", "docs/reference/script.md"}
    for file, block in shown:
        if re.search(r"^steps:", block, re.MULTILINE):
            decode_bytes(block.encode(), Script, file=file)
        else:
            assert list(find_errors(decode_bytes(block.encode(), CampaignSpec, file=file))) == []


@pytest.mark.requirement("surface.docs")
@pytest.mark.parametrize(
    ("page", "modules"),
    [("spec.md", SPEC_MODULES), ("script.md", (script,))],
    ids=["spec.md", "script.md"],
)
def test_every_key_has_a_row_and_an_example_in_the_reference(page: str, modules: tuple[ModuleType, ...]) -> None:
    keys, file = keys_of(*(module.__name__ for module in modules)), REFERENCE / page
    rows = re.findall(r"^\| `([a-z_]+)` \|", file.read_text(), re.MULTILINE)
    examples = "".join(blocks("yaml", file))
    assert Counter(rows) == keys
    assert [key for key in keys if not re.search(rf"\b{key}:", examples)] == []


def test_every_file_of_the_evidence_is_explained() -> None:
    told = set(re.findall(r"^\| `([A-Za-z.]+)` \|", (REFERENCE / "evidence.md").read_text(), re.MULTILINE))
    assert {layout.SEAL, *layout.SEALED} <= file_names() <= told


def lay_out(page: Path, folder: Path) -> None:
    """The files that a page shows, each under the name above it."""
    for name, text in re.findall(r"^`([\w./-]+)`:\n\n```[a-z]+\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def test_the_files_of_missions_and_suites_make_specs_that_load(tmp_path: Path) -> None:
    for page in ("missions.md", "suites.md"):
        lay_out(ROOT / "docs/howto" / page, tmp_path)
    loaded = load_spec(tmp_path / "spec.yaml")
    patches = [step.patch for path in loaded.scripts.values() for step in load_script(path).steps if step.patch]
    assert [f"{patch.old}\n" in (tmp_path / "shop" / patch.file).read_text() for patch in patches] == [True]
    suite = load_spec(tmp_path / "suite.yaml", overrides=SpecOverrides(flows=loaded.spec.flows))
    assert [each.id for each in loaded.missions] == [each.id for each in suite.missions] == ["fix-total", "say-hello"]
    [flow] = loaded.spec.flows
    assert loaded.prompts.of(loaded.missions[1], flow.id).startswith("Say hello.\n\nChange as little as you can.")


@pytest.mark.long
@pytest.mark.requirement("surface.docs")
def test_the_probes_of_the_how_to_pass_their_own_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs/howto/probes.md"
    lay_out(page, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert answer(["probe", "check", "total.yaml"]) == 0
    [shown] = [block for block in blocks("console", page) if block.startswith("$ proctor probe check")]
    assert capsys.readouterr().out == shown.partition("\n")[2]


def commands_of(page: Path, *, heading: str = "") -> Iterator[tuple[list[str], str]]:
    """Each command that a page shows below headings with this text, with the output below it."""
    for block in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        if re.match(heading, block):
            yield from _commands_in(block)


def _commands_in(text: str) -> Iterator[tuple[list[str], str]]:
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = shown.partition("\n")
            yield shlex.split(command), output


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.requirement("surface.docs")
@pytest.mark.requirement("session.one")
@pytest.mark.parametrize(
    "heading",
    [
        pytest.param("(?!Continue on another agent)", id="one-agent"),
        pytest.param("Continue on another agent", id="two-agents", marks=pytest.mark.agent("claude_code")),
    ],
)
def test_conversation_of_the_how_to_runs_as_written(
    heading: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs/howto/sessions.md"
    lay_out(page, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("COLUMNS", "200")
        for (program, *words), shown in commands_of(page, heading=heading):
            if program == "proctor":
                assert answer(words) == 0
            else:
                [script] = words
                runpy.run_path(script, run_name="__main__")
            # What differs each time is shown as an ellipsis, and lines that are left out as a line with nothing else.
            pattern = re.escape(shown).replace("\\\n…\\\n", "\n(?:.*\n)*").replace("…", ".*")
            said = capsys.readouterr().out
            assert re.fullmatch(pattern, said), said


def test_config_of_the_how_to_chooses_an_engine(tmp_path: Path) -> None:
    [block] = blocks("toml", ROOT / "docs/howto/sessions.md")
    (tmp_path / "proctor.toml").write_text(block)
    context = load_config(tmp_path).context
    assert context is not None
    assert (context.engine, context.policy, context.tools) == ("window", "strict", "shape")


def test_options_of_sessions_are_those_that_the_how_to_names() -> None:
    page = (ROOT / "docs/howto/sessions.md").read_text()
    for title, names in {
        "field of `proctor.Context`": {each.name for each in fields(Context)},
        "parameter of `proctor.session`": {
            *("before_prompt_build", "before_compaction", "after_compaction", "ephemeral", "thread")
        },
    }.items():
        table = page.partition(f"| {title} ")[2].partition("\n\n")[0]
        rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        assert {word.partition("=")[0] for row in rows for word in re.findall(r"`(.*?)`", row)} == names


@pytest.mark.long
@pytest.mark.real_agent
@pytest.mark.proctor_process
@pytest.mark.requirement("surface.docs")
@pytest.mark.requirement("context.engines")
def test_engine_of_the_how_to_passes_the_check_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs/howto/write-an-engine.md"
    lay_out(page, tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    uv = str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation", "--target", str(site)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("COLUMNS", "200")
        patch.syspath_prepend(site)
        for (program, *words), shown in commands_of(page):
            match program:
                case "pip":
                    subprocess.run([*install, "--python", sys.executable, *words[1:]], check=True)
                    # An editable package is on the path by a file that only `site` reads.
                    addsitedir(str(site))
                    invalidate_caches()
                case "pytest":
                    env = {**os.environ, "PYTHONPATH": str(site)}
                    subprocess.run([sys.executable, "-m", "pytest", "-q", *words], check=True, env=env)
                    capsys.readouterr()
                case _:
                    assert answer(words) == 0
            said = capsys.readouterr().out
            assert re.fullmatch(re.escape(shown).replace("…", ".*"), said, re.DOTALL), said


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_command_that_is_shown_can_be_called_so(file: Path) -> None:
    for line in re.findall(r"^\$ proctor (.*)", "".join(blocks("console", file)), re.MULTILINE):
        words = shlex.split(line.partition(" > ")[0], comments=True)
        name = next(name for name in (words[0], " ".join(words[:2])) if name in COMMANDS)
        parse(name, find_command(name), words[len(name.split()) :])


def test_every_make_target_named_in_a_document_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for file in DOCUMENTS for word in re.findall(r"`make ([a-z]+)", file.read_text())}
    assert named <= targets


def links_of(file: Path) -> Iterator[tuple[Path, str]]:
    """Each link of a document to another file or to a heading: the file, and the anchor if any."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", file.read_text()):
        yield (file.parent / target).resolve() if target else file, anchor


def anchors_of(file: Path) -> set[str]:
    """The anchors that GitHub gives to a document's headings."""
    text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_every_link_resolves(file: Path) -> None:
    links = list(links_of(file))
    assert [target for target, _ in links if not target.exists()] == []
    assert [(target.name, anchor) for target, anchor in links if anchor and anchor not in anchors_of(target)] == []


def test_index_links_every_page() -> None:
    index = ROOT / "docs/index.md"
    linked = {target for target, _ in links_of(index)}
    assert [page for page in ROOT.glob("docs/**/*.md") if page != index and page not in linked] == []


@pytest.mark.requirement("surface.words")
def test_glossary_defines_each_term_once() -> None:
    terms = re.findall(r"^\| \*\*([a-z ]+)\*\* \|", (REFERENCE / "glossary.md").read_text(), re.MULTILINE)
    assert [term for term, times in Counter(terms).items() if times > 1] == []
    assert GLOSSARY - set(terms) == set()


def test_what_agents_must_read_stays_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 120
