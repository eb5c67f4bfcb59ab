"""The figures of tools/shape.py, on a package written for the test."""

from pathlib import Path

import msgspec
import pytest

from tools.shape import Shape, Sized, main, measure, render

SOURCES = {
    "__init__.py": '"""A package."""\n',
    "model.py": '"""Conventional."""\n\n\nclass Row:\n    pass\n',
    "big.py": (
        '"""Two lines\nof docstring."""\n'
        "\n"
        "# A comment.\n"
        "from shop.small import TEXT\n"
        "\n"
        "\n"
        "class Row:\n"
        '    """A row."""\n'
        "\n"
        "    size: int\n"
        '    """A field\'s docstring\n'
        '    of two lines."""\n'
        "\n"
        "    def long(self) -> str:\n"
        "        # Explained.\n"
        "        return TEXT\n"
    ),
    "small.py": 'TEXT = """\none\n\n# not a comment\n"""\n',
    "store/__init__.py": "",
    "store/model.py": "class Row:\n    pass\n",
    "store/big.py": "from . import near\nfrom .shared import shared\n\n\nclass Row:\n    pass\n",
    "store/near.py": "def near():\n    from shop.store.shared import shared\n\n    return shared()\n",
    "store/shared.py": "def shared():\n    return 1\n",
    "store/far.py": "FAR = 1\n",
    "other.py": "import shop.store.far\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, source in SOURCES.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path / "shop"


def test_shape_of_a_package(package: Path) -> None:
    assert measure(package) == Shape(
        modules=11,
        code_lines=5 + 2 + 5 + 2 + 4 + 3 + 2 + 1 + 1,
        functions=3,
        function_lines_median=3,
        function_lines_p90=4,
        largest_files=(
            Sized(name="big.py", lines=5),
            Sized(name="small.py", lines=5),
            Sized(name="store/big.py", lines=4),
            Sized(name="store/near.py", lines=3),
            Sized(name="model.py", lines=2),
        ),
        largest_functions=(
            Sized(name="store/near.py:1 near", lines=4),
            Sized(name="big.py:15 long", lines=3),
            Sized(name="store/shared.py:1 shared", lines=2),
        ),
        duplicate_modules={"big": ("big.py", "store/big.py")},
        duplicate_classes={"Row": ("big.py", "store/big.py")},
        fragments=("small.py", "store/near.py"),
    )


def test_shape_calls_no_module_of_80_lines_a_fragment(package: Path) -> None:
    (package / "small.py").write_text("TEXT = 1\n" * 79)
    assert "small.py" in measure(package).fragments

    (package / "small.py").write_text("TEXT = 1\n" * 80)
    assert "small.py" not in measure(package).fragments


def test_shape_text_fits_in_30_lines_however_many_names_there_are(package: Path) -> None:
    for number in range(300):
        folder = package / f"part{number}"
        folder.mkdir()
        (folder / f"name{number % 100}.py").write_text(f"class Name{number % 100}:\n    pass\n")
        (folder / f"user{number}.py").write_text(f"from shop.part{number} import name{number % 100}\n")
    shape = measure(package)

    assert (len(shape.duplicate_modules), len(shape.duplicate_classes), len(shape.fragments)) == (101, 101, 302)
    assert len(render(shape, package).splitlines()) <= 30


def test_shape_enforces_no_limit(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package / "huge.py").write_text("def huge():\n" + "    print()\n" * 5000)

    assert main([str(package)]) == 0
    assert "5001 huge.py" in capsys.readouterr().out


def test_shape_prints_every_name_as_json(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(package), "--json"])

    assert msgspec.json.decode(capsys.readouterr().out, type=Shape) == measure(package)
