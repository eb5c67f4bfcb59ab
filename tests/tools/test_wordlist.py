"""The word list: which text is prose, where a word is found, and that any word fails the check."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.prose import CODE, markdown_prose, python_prose
from tools.wordlist import ALLOWED, ENTRIES, find_words, main

ROOT = Path(__file__).parent.parent.parent


def found(text: str, path: str = "src/proctor/x.py") -> list[tuple[int, str]]:
    return [(each.line, each.word) for each in find_words(path, text)]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two occurrences in src and one in docs."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "src/proctor/a.py": '"""The user is told.\n\nNobody waits."""\n',
        "src/proctor/b.py": "x = 1\n",
        "docs/howto/a.md": "# Mend it\n",
        "tools/x.py": "x = 1\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


# ── prose ──


def test_wordlist_finds_a_word_in_a_string_literal() -> None:
    assert found('print("It was told.")\n') == [(1, "told")]


def test_wordlist_finds_a_word_in_a_comment() -> None:
    assert found("x = 1  # whoever\n") == [(1, "whoever")]


def test_wordlist_does_not_match_code() -> None:
    assert found("told = lane is None if cell is none else strategy.whoever\n") == []


def test_wordlist_does_not_match_python_none_in_a_docstring() -> None:
    assert found('"""Where `x` is None. Where there is none."""\n') == [(1, "is none")]


def test_wordlist_does_not_match_a_part_of_a_name() -> None:
    assert found('"""`CellResult`, `strategy_ids` and planes."""\n') == []


def test_wordlist_counts_the_lines_of_a_multi_line_docstring() -> None:
    assert found('x = 1\n\n\ndef f():\n    """First.\n\n    A cell.\n    """\n    # A lane.\n') == [
        (7, "cell"),
        (9, "lane"),
    ]


def test_wordlist_counts_the_lines_of_a_multi_line_f_string() -> None:
    assert found('x = f"""{cell}\n{\n lane!r:>{told}} told\n{"a cell" if told else f"{lane} nobody"}\n"""\n') == [
        (3, "told"),
        (4, "cell"),
        (4, "nobody"),
    ]


def test_wordlist_finds_a_phrase_across_concatenated_literals() -> None:
    assert found('x = (\n    "Where it is "\n    f"none of {these}."\n)\n') == [(2, "is none")]


def test_wordlist_finds_no_phrase_across_separate_literals() -> None:
    assert found('x = ["is", "none"]\n') == []


def test_wordlist_finds_a_phrase_across_a_line_break() -> None:
    assert found('"""It is\n    none."""\n# gone on\n# with\n') == [(1, "is none"), (3, "gone on with")]


def test_wordlist_finds_no_phrase_across_paragraphs() -> None:
    assert found("Where it is\n\nnone is left.\n", "docs/a.md") == []


def test_wordlist_reads_escapes_as_white_space() -> None:
    assert found(r'x = "one\ntold"' + "\n") == [(1, "told")]


def test_wordlist_keeps_raw_literals() -> None:
    assert found(r'x = rf"\w\{cell}\" told"' + "\n") == [(1, "told")]


def test_wordlist_ignores_doctests() -> None:
    assert found('"""Fold it.\n\n>>> cell = 1\n>>> cell\nCell(1)\n\nA cell.\n"""\n') == [(7, "cell")]


def test_wordlist_ignores_link_targets() -> None:
    assert found("See [lanes](docs/lanes.md).\n", "README.md") == [(1, "lanes")]


@pytest.mark.long
def test_prose_has_the_lines_and_columns_of_its_source() -> None:
    for path in ROOT.glob("src/proctor/surface/**/*.py"):
        source = path.read_text()
        pairs = list(zip(python_prose(source), source, strict=True))
        assert [kept for kept, char in pairs if kept not in (char, CODE, " ")] == []
        assert [kept for kept, char in pairs if (kept == "\n") != (char == "\n")] == []


@given(st.text(), st.sampled_from(["'", '"', "'''", '"""']), st.sampled_from(["", "r", "f", "rf"]))
def test_prose_of_any_literal_has_the_length_of_its_source(text: str, quote: str, prefix: str) -> None:
    source = f"x = {prefix}{quote}{text}{quote}  # told\n"
    try:
        compile(source, "x.py", "exec")
    except (SyntaxError, ValueError):
        return
    assert len(python_prose(source)) == len(source)
    assert "told" in python_prose(source)


def test_markdown_prose_keeps_code_blocks() -> None:
    assert markdown_prose("```yaml\nlane: x\n```\n") == "```yaml\nlane: x\n```\n"


# ── the list ──

STYLE = {
    "told": ("It is told.", "It is not to old."),
    "tells of": ("It tells of a row.", "It tells the user often."),
    "whoever": ("Whoever calls it.", "Who ever calls it."),
    "somebody": ("Somebody or nobody.", "Some body of text."),
    "comes to": ("It comes to 4.", "It comes too late."),
    "stands": ("It stands still.", "It understands."),
    "nought": ("Nought is a limit.", "It is not enough."),
    "mend": ("Mend the probe.", "Amend, recommend."),
    "be had": ("It cannot be had.", "It may be hard."),
    "gone on with": ("It is gone on with.", "It is gone, on without it."),
    "let go of": ("Let go of evidence.", "Let it go on."),
    "of its own": ("A folder of its own.", "Its own folder."),
    "whose matter": ("Whose matter it is.", "Those matter."),
    "is none": ("There is none.", "The value is None."),
    "a row a line": ("JSON, a row a line.", "JSON, one row per line."),
}
"""The words that the style guide lists, each in a sentence that contains it and with one that does not."""

PLACES = {
    "comment": ("src/proctor/x.py", "x = 1  # {}\n"),
    "docstring": ("src/proctor/x.py", 'def f():\n    """Fold it.\n\n    {}\n    """\n'),
    "string literal": ("src/proctor/x.py", 'print(f"{{x}} {}")\n'),
    "CLI help": ("src/proctor/surface/cli/x.py", 'argument("--x", help="{}")\n'),
    "Markdown": ("docs/howto/x.md", "# Title\n\n{}\n"),
    "README": ("README.md", "{}\n"),
}
"""Kinds of places, with a file of each and where its text is."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", STYLE)
def test_wordlist_finds_each_word_of_the_style_guide_in_each_kind_of_place(name: str, place: str) -> None:
    path, source = PLACES[place]
    avoided, plain = STYLE[name]
    assert {each.entry.name for each in find_words(path, source.format(avoided))} == {name}
    assert [*find_words(path, source.format(plain))] == []


@pytest.mark.parametrize("name", STYLE)
def test_wordlist_does_not_find_a_word_of_the_style_guide_in_code(name: str) -> None:
    token = name.replace(" ", "_")
    assert found(f"{token} = {token}.{token}(x is None, {token}=1)\n") == []
    assert found(f"x = f'{{{token}}}'\n") == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("JSON, a row a line.", "a row a line"),
        ("There is one file a command.", "one file a command"),
        ("The processes, one a turn.", "one a turn"),
        ("Hold two flows against each other.", "Hold two flows against each other"),
        ("It can be gone on with.", "gone on with"),
        ("All is well.", "All is well"),
        ("nobody's verdict", "nobody's"),
        ("a sandbox of its own", "of its own"),
        ("Strategies", "Strategies"),
    ],
)
def test_wordlist_knows_the_near_forms(text: str, word: str) -> None:
    assert [each for _, each in found(text, "README.md")] == [word]


@pytest.mark.parametrize(
    "text",
    [
        "It gives a runtime a name.",
        "A new one is a file here.",
        "They understand.",
        "Its own folder.",
        "Amended.",
        "A row without a line.",
    ],
)
def test_wordlist_leaves_plain_english_alone(text: str) -> None:
    assert found(text, "README.md") == []


def test_wordlist_names_are_unique_and_matched_by_their_own_pattern() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert [each.entry for each in find_words("README.md", entry.name)] == [entry]


def test_wordlist_allows_old_terms_where_they_are_explained() -> None:
    assert found("A cell was told.", "docs/decisions/0001-x.md") == [(1, "told")]
    assert found("A cell.", "docs/reference/glossary.md") != []
    assert {name for names in ALLOWED.values() for name in names} <= {entry.name for entry in ENTRIES}


# ── the check ──


def test_wordlist_fails_on_any_occurrence_and_says_where(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/howto/a.md:1: Mend: write fix, repair",
        "src/proctor/a.py:1: told: write reported, returned, printed",
        "src/proctor/a.py:3: Nobody: write the caller, the user, none, no one",
    ]


def test_wordlist_passes_without_an_occurrence(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "src/proctor/a.py").write_text("")
    (checkout / "docs/howto/a.md").write_text("")

    assert main([]) == 0
    assert capsys.readouterr().out == "words to avoid: none\n"


def test_wordlist_lists_only_the_paths_it_is_given(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 1
    assert capsys.readouterr().out == "docs/howto/a.md:1: Mend: write fix, repair\n"
    assert main(["tools"]) == 0
    assert capsys.readouterr().out == "words to avoid: none\n"
