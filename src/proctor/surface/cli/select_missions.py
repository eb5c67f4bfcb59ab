"""The options that select missions, shared by all commands that take a spec."""

import argparse
from pathlib import Path
from typing import Any

import msgspec

from proctor.config.project import load_project_spec
from proctor.errors import InputError
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.collect_errors import raise_collected
from proctor.spec.load import LoadedSpec, SpecOverrides
from proctor.spec.model import FlowSpec
from proctor.surface.cli.command import Argument, argument


class SelectOption(argparse.Action):
    """Adds its value to the selection, which all selecting options share. `const` is the key in the selection."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        select, key = getattr(namespace, self.dest), str(self.const)
        value = values if key == "range" else [*getattr(select, key), values]
        setattr(namespace, self.dest, msgspec.structs.replace(select, **{key: value}))


def _option(name: str, key: str, *, metavar: str, help_: str) -> Argument:
    default = SelectSpec()
    return argument(name, dest="select", action=SelectOption, const=key, default=default, metavar=metavar, help=help_)


SELECT = (
    _option("--mission", "ids", metavar="ID", help_="Only this mission (repeatable)."),
    _option("--tag", "tags", metavar="TAG", help_="Only missions with this tag (repeatable)."),
    _option("--glob", "globs", metavar="GLOB", help_="Only missions whose id matches, such as fix-* (repeatable)."),
    _option("--range", "range", metavar="N-M", help_="Only missions at these positions: 2-5, or 7."),
)
"""They share the argument `select`."""

_OPTIONS = {
    "ids": "--mission",
    "tags": "--tag",
    "globs": "--glob",
    "range": "--range",
    "flow_ids": "--flow",
    "repeats": "--repeats",
    "model": "--model",
}


def load_selected(spec: Path, select: SelectSpec, *, flows: list[FlowSpec] | None = None) -> LoadedSpec:
    """Load a spec with a selection of missions, and optionally other flows. Raises InputError."""
    return load_with(spec, SpecOverrides(select=select, flows=flows))


def load_with(spec: Path, overrides: SpecOverrides) -> LoadedSpec:
    """Load a spec with the settings of a command.

    Raises InputError, with the option as its key if an option of the selection is wrong.
    """
    try:
        return load_project_spec(spec, overrides=overrides)
    except InputError as error:
        if any(each.file is not None for each in error.all_errors):
            raise
        raise_collected(_with_option(each) for each in error.all_errors)


def _with_option(error: InputError) -> InputError:
    option = None if error.key is None else _OPTIONS[error.key.partition("[")[0]]
    return InputError(error.code, error.what, key=option, suggestion=error.suggestion)
