"""The words that select missions, the same for every command that takes a spec."""

from pathlib import Path

from proctor.errors import CollectedInputError, InputError
from proctor.spec.load import Given, LoadedSpec, load_spec
from proctor.spec.model import FlowSpec
from proctor.spec.running import SelectSpec
from proctor.surface.cli.command import argument

SELECT = (
    argument("--mission", dest="ids", metavar="ID", action="append", default=[], help="Only this mission; repeatable."),
    argument("--tag", dest="tags", metavar="TAG", action="append", default=[], help="Only missions with this tag."),
    argument(
        "--glob", dest="globs", metavar="GLOB", action="append", default=[], help="Only missions whose id fits: fix-*."
    ),
    argument("--range", dest="range_", metavar="N-M", default=None, help="Only these by place: 2-5, or 7."),
)

_WORDS = {"ids": "--mission", "tags": "--tag", "globs": "--glob", "range": "--range"}


def selection(*, ids: list[str], tags: list[str], globs: list[str], range_: str | None) -> SelectSpec:
    """What the words of SELECT come to."""
    return SelectSpec(ids=ids, tags=tags, globs=globs, range=range_)


def load_selected(spec: Path, select: SelectSpec, *, flows: list[FlowSpec] | None = None) -> LoadedSpec:
    """As `load_spec`; what is wrong with the words is told of the words."""
    try:
        return load_spec(spec, given=Given(select=select, flows=flows))
    except InputError as error:
        each = error.errors if isinstance(error, CollectedInputError) else (error,)
        if any(one.file is not None for one in each):
            raise
        told = tuple(_of_the_words(one) for one in each)
        raise (told[0] if len(told) == 1 else CollectedInputError(told)) from error


def _of_the_words(error: InputError) -> InputError:
    word = None if error.key is None else _WORDS[error.key.partition("[")[0]]
    return InputError(error.code, error.what, key=word, suggestion=error.suggestion)
