"""Print the shape of the package: modules, code lines, duplicate names, fragments, largest files and functions."""

import argparse
import ast
import io
import math
import sys
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

PACKAGE: Final = Path("src/proctor")
CONVENTIONAL: Final = frozenset({"__init__", "model", "normalize", "session", "wire"})
"""Modules that several packages may have; classes defined in them may repeat too."""
FRAGMENT_LINES: Final = 80
"""A module with fewer lines than this is a fragment if its only importer sits in the same folder."""
LARGEST: Final = 5
SHOWN: Final = 12
"""Names printed of each list; `--json` has all of them."""
WIDTH: Final = 120

_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A file (code lines) or a function (all lines from `def` to its end)."""

    name: str
    lines: int


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The figures of one package. Paths are relative to its folder."""

    modules: int
    code_lines: int
    functions: int
    function_lines_median: float
    function_lines_p90: int
    largest_files: tuple[Sized, ...]
    largest_functions: tuple[Sized, ...]
    duplicate_modules: dict[str, tuple[str, ...]]
    duplicate_classes: dict[str, tuple[str, ...]]
    fragments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed source file."""

    path: Path
    dotted: str
    lines: int
    code_lines: int
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def measure(package: Path) -> Shape:
    """Measure every module below a package's folder."""
    modules = [_parse(path, package) for path in sorted(package.rglob("*.py"))]
    functions = [each for module in modules for each in _functions(module)]
    lengths = sorted(each.lines for each in functions)
    files = (Sized(name=module.path.as_posix(), lines=module.code_lines) for module in modules)
    unconventional = [module for module in modules if module.path.stem not in CONVENTIONAL]
    return Shape(
        modules=len(modules),
        code_lines=sum(module.code_lines for module in modules),
        functions=len(functions),
        function_lines_median=median(lengths) if lengths else 0,
        function_lines_p90=lengths[math.ceil(len(lengths) * 0.9) - 1] if lengths else 0,
        largest_files=_largest(files),
        largest_functions=_largest(functions),
        duplicate_modules=_duplicates((module.path.stem, module.path.as_posix()) for module in unconventional),
        duplicate_classes=_duplicates(
            (node.name, module.path.as_posix())
            for module in unconventional
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
        ),
        fragments=tuple(_fragments(modules)),
    )


def _parse(path: Path, package: Path) -> Module:
    source = path.read_text(encoding="utf-8")
    relative = path.relative_to(package)
    parts = [package.name, *relative.with_suffix("").parts]
    tree = ast.parse(source)
    return Module(
        path=relative,
        dotted=".".join(parts[:-1] if parts[-1] == "__init__" else parts),
        lines=len(source.splitlines()),
        code_lines=len(code_lines(source, tree)),
        tree=tree,
    )


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that are neither blank nor only comment nor docstring.

    A string that is a statement is a docstring wherever it is: those below a field document the field.
    """
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _functions(module: Module) -> Iterator[Sized]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Sized(name=f"{module.path.as_posix()}:{node.lineno} {node.name}", lines=lines)


def _largest(sized: Iterable[Sized]) -> tuple[Sized, ...]:
    return tuple(sorted(sized, key=lambda each: (-each.lines, each.name))[:LARGEST])


def _duplicates(named: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    places = defaultdict(set)
    for name, place in named:
        places[name].add(place)
    repeated = {name: tuple(sorted(found)) for name, found in places.items() if len(found) > 1}
    return dict(sorted(repeated.items(), key=lambda item: (-len(item[1]), item[0])))


def _fragments(modules: Sequence[Module]) -> Iterator[str]:
    known = {module.dotted: module for module in modules}
    importers: dict[str, set[Path]] = defaultdict(set)
    for module in modules:
        for name in _imported(module, known):
            if name != module.dotted:
                importers[name].add(module.path)
    for module in modules:
        if module.is_package or module.lines >= FRAGMENT_LINES:
            continue
        match tuple(importers[module.dotted]):
            case (importer,) if importer.parent == module.path.parent:
                yield module.path.as_posix()


def _imported(module: Module, known: Iterable[str]) -> Iterator[str]:
    """Name the modules of the package that a module imports, also inside its functions."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                wanted = [alias.name for alias in names]
            case ast.ImportFrom(module=source, names=names, level=level):
                here = module.dotted.split(".")
                base = here[: len(here) - level + module.is_package] if level else []
                origin = ".".join([*base, *([source] if source else [])])
                # `from package import name` imports the module of that name, where there is one.
                children = [f"{origin}.{alias.name}" for alias in names]
                wanted = [child if child in known else origin for child in children]
            case _:
                continue
        yield from (name for name in wanted if name in known)


def render(shape: Shape, package: Path) -> str:
    """Write the figures as text, in at most 30 lines."""
    return "\n".join(_lines(shape, package))


def _lines(shape: Shape, package: Path) -> Iterator[str]:
    yield f"{package.as_posix()}: {shape.modules} modules, {shape.code_lines} code lines"
    median_lines, p90_lines = shape.function_lines_median, shape.function_lines_p90
    yield f"{shape.functions} functions: median {median_lines:g} lines, p90 {p90_lines} lines"
    yield "largest files (code lines)"
    yield from (f"  {each.lines:4} {each.name}" for each in shape.largest_files)
    yield "largest functions (lines)"
    yield from (f"  {each.lines:4} {each.name}" for each in shape.largest_functions)
    for title, names in (("module", shape.duplicate_modules), ("class", shape.duplicate_classes)):
        yield f"duplicate {title} names: {len(names)}"
        yield from _shown([f"{name} ×{len(places)}" for name, places in names.items()])
    yield f"single-importer fragments (under {FRAGMENT_LINES} lines): {len(shape.fragments)}"
    yield from _shown(shape.fragments)


def _shown(names: Sequence[str]) -> Iterator[str]:
    rest = [f"and {len(names) - SHOWN} more (--json lists them)"] if len(names) > SHOWN else []
    yield from textwrap.wrap(
        ", ".join([*names[:SHOWN], *rest]),
        width=WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.shape", description=__doc__)
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="the folder of the package")
    parser.add_argument("--json", action="store_true", help="print every figure and name as JSON")
    given = parser.parse_args(arguments)
    shape = measure(given.package)
    print(msgspec.json.format(msgspec.json.encode(shape)).decode() if given.json else render(shape, given.package))
    return 0


if __name__ == "__main__":
    sys.exit(main())
