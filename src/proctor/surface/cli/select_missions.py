"""The words that select missions, the same for every command that takes a spec."""

import argparse
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import InputError
from proctor.spec.campaign_options import SelectSpec
from proctor.spec.collect_errors import raise_collected
from proctor.spec.load import LoadedSpec, SpecOverrides, load_spec
from proctor.spec.model import FlowSpec
from proctor.surface.cli.command import Argument, argument


class SelectOption(argparse.Action):
    """Each word narrows one selection, which all of them share; `const` is the key of it."""

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


def _word(name: str, key: str, *, metavar: str, help_: str) -> Argument:
    default = SelectSpec()
    return argument(name, dest="select", action=SelectOption, const=key, default=default, metavar=metavar, help=help_)


SELECT = (
    _word("--mission", "ids", metavar="ID", help_="Only this mission; may be said again."),
    _word("--tag", "tags", metavar="TAG", help_="Only missions with this tag; may be said again."),
    _word("--glob", "globs", metavar="GLOB", help_="Only missions whose id fits, as fix-*; may be said again."),
    _word("--range", "range", metavar="N-M", help_="Only missions in these places: 2-5, or 7."),
)
"""Together they fill `select`."""

_WORDS = {"ids": "--mission", "tags": "--tag", "globs": "--glob", "range": "--range"}


def load_selected(spec: Path, select: SelectSpec, *, flows: list[FlowSpec] | None = None) -> LoadedSpec:
    """As `load_spec`; what is wrong with the words is told of the words."""
    try:
        return load_spec(spec, overrides=SpecOverrides(select=select, flows=flows))
    except InputError as error:
        if any(each.file is not None for each in error.all_errors):
            raise
        raise_collected(_of_the_words(each) for each in error.all_errors)


def _of_the_words(error: InputError) -> InputError:
    word = None if error.key is None else _WORDS[error.key.partition("[")[0]]
    return InputError(error.code, error.what, key=word, suggestion=error.suggestion)
