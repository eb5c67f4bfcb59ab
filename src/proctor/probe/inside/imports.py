"""Import one module in this interpreter, and report from which file, and which names it has."""

# The workspace's Python runs this file, and may be older than Proctor's.
from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from typing import Any

from .protocol import answer

_TEXT_CHARS = 300


def main() -> None:
    """Answer one request."""
    answer(observe)


def observe(request: dict[str, Any]) -> dict[str, Any]:
    """Import the module, look for its names, and then import a module that does not exist."""
    # Neither Proctor's programs nor the folder of this one are part of a fresh interpreter.
    sys.path[:1] = [os.path.normpath(os.path.join(os.getcwd(), folder)) for folder in request["path"]]  # noqa: PTH109, PTH118
    sys.argv[:] = [""]
    run, import_module = _watch_loaders(), importlib.import_module
    name = request["module"]
    module, error = _import(import_module, name)
    file = None
    if name in run:
        executed, file = run[name]
        if executed is not module or executed is not sys.modules.get(name):
            file, error = None, error or "the module put something else in its place"
    _, control = _import(import_module, request["missing"])
    return {
        "file": file,
        "error": error,
        "has": [each for each in request["names"] if _has(module, each)],
        "missing": control,
    }


def _watch_loaders() -> dict[str, tuple[Any, str]]:
    """Return a mapping that receives each module whose file was run to its end, and the path of that file."""
    run: dict[str, tuple[Any, str]] = {}

    def watch(loader: Any) -> None:
        original = loader.exec_module

        def exec_module(self: Any, module: Any) -> None:
            name = self.name
            original(self, module)
            run[name] = (module, os.path.abspath(self.path))  # noqa: PTH100

        loader.exec_module = exec_module

    machinery = importlib.machinery
    for loader in (machinery.SourceFileLoader, machinery.SourcelessFileLoader, machinery.ExtensionFileLoader):
        watch(loader)
    return run


def _import(import_module: Any, name: str) -> tuple[Any, str | None]:
    """Return the module, or why it cannot be imported."""
    try:
        return import_module(name), None
    except BaseException as error:  # also SystemExit
        return None, _describe(error)


def _describe(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = ""
    shown = f"{kind}: {text}"[:_TEXT_CHARS]
    return shown.encode("utf-8", "backslashreplace").decode()


def _has(module: Any, name: str) -> bool:
    try:
        getattr(module, name)
    except BaseException:
        return False
    return True
