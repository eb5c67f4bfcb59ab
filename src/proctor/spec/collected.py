"""All that is wrong, told at once and in order."""

from collections.abc import Iterable
from typing import Final, NoReturn

from proctor.errors import CollectedInputError, InputError
from proctor.spec.literal import unspoken

MAX_PROBLEMS: Final = 100


def raise_collected(problems: Iterable[InputError]) -> NoReturn:
    """One fault as itself, several as one error: file by file as they are first told of, each in its own order."""
    found = list(problems)
    files = {problem.file: at for at, problem in reversed(list(enumerate(found)))}
    found.sort(key=lambda problem: (files[problem.file], problem.line or 0))
    ordered = [_unspoken(each) for each in found[:MAX_PROBLEMS]]
    raise ordered[0] if len(ordered) == 1 else CollectedInputError(tuple(ordered))


def _unspoken(problem: InputError) -> InputError:
    """The same without a secret, which may stand where a name, an id or a path was meant to."""
    key, suggestion = (text and unspoken(text) for text in (problem.key, problem.suggestion))
    what = unspoken(problem.what)
    if (what, key, suggestion) == (problem.what, problem.key, problem.suggestion):
        return problem
    return InputError(problem.code, what, file=problem.file, line=problem.line, key=key, suggestion=suggestion)
