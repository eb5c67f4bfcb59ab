"""The parts of the engine suite that run in another process."""

import json
import os
import signal
import sys
import tempfile
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import anyio

from proctor import canonical, places
from proctor.contain.bundled import bundled_bwrap
from proctor.contain.intent import open_intents
from proctor.contain.ladder import choose, survey
from proctor.contain.launch import new_marker, wrap
from proctor.context.history import ListedHistory
from proctor.context.payload import json_text
from proctor.errors import ProctorError
from proctor.testing.engines import conversations
from proctor.testing.engines.conversations import messages_of
from proctor.testing.engines.engine_subject import EngineSubject
from proctor.testing.unproven import NotApplicableError, UnprovenError
from proctor.transport.process import run_once

_PROCESS_S: Final = 60.0
_MOST_BYTES: Final = 64 * 1024

_DONE: Final = "engine check: "
"""What the process prints before its result. An engine may print other lines."""


def resolve(entry_point: str) -> Any:
    """Import `module:name`. Raises what the import raises."""
    module, _, name = entry_point.partition(":")
    return attrgetter(name)(import_module(module))


async def run(subject: EngineSubject, what: str, *, folder: Path | None = None, hash_seed: str = "0") -> str:
    """Do something in another process, and return the result that it prints.

    `commit` commits some turns in a folder, and kills the process with SIGKILL when the last commit has returned.
    `assemble` prints the digest of what is assembled.

    Raises UnprovenError if it fails, and NotApplicableError if another process cannot run the engine.
    """
    if subject.entry_point is None:
        raise NotApplicableError('another process cannot import the function: pass `entry_point="module:name"`')
    folder = folder or subject.new_folder()
    argv = _argv(what, subject.entry_point, str(folder), json.dumps(dict(subject.options)))
    env = {**os.environ, "PYTHONPATH": _search_path(), "PYTHONHASHSEED": hash_seed}
    try:
        containment = choose(survey(bundled_bwrap=bundled_bwrap()))
        async with open_intents(places.spawns_dir()) as intents:
            plan = wrap(containment, argv, env=env, cwd=folder, marker=new_marker())
            ended = await run_once(plan, intents=intents, timeout_s=_PROCESS_S, max_output_bytes=_MOST_BYTES)
    except ProctorError as error:
        raise NotApplicableError(f"no other process could be started: {error}") from error
    for line in ended.stdout.decode(errors="replace").splitlines():
        if line.startswith(_DONE):
            return line.removeprefix(_DONE)
    if ended.timed_out:
        raise UnprovenError(f"the other process did not end within {_PROCESS_S:g} s")
    last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
    raise UnprovenError(f"the other process failed: {''.join(last) or 'it printed nothing'}")


def _argv(*arguments: str) -> list[str]:
    return [sys.executable, "-c", f"import {__name__} as inside; inside.main()", *arguments]


def _search_path() -> str:
    return os.pathsep.join(str(Path(each).absolute()) for each in sys.path)


async def assembled_digest(subject: EngineSubject, folder: Path) -> str:
    """Return the digest of what is assembled for a conversation, at two budgets."""
    turns = [*conversations.few_turns(), *conversations.large_turns(40)[6:]]
    async with subject.engine(folder) as engine:
        await engine.bootstrap(ListedHistory(messages_of(turns)))
        await engine.maintain("bootstrap")
        texts = [json_text(await engine.assemble(turns, tokens=tokens)) for tokens in (20_000, 1_000)]
    return canonical.digest_bytes("\n".join(texts).encode("utf-8", "surrogatepass"))


def main() -> None:
    """Do what the arguments say: `commit` or `assemble`, the entry point, the folder and the options as JSON."""
    what, entry_point, folder, options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        subject = EngineSubject(
            create=resolve(entry_point),
            options=json.loads(options),
            folder=Path(scratch),
            entry_point=None,
            engine_id=None,
        )
        if what == "assemble":
            print(_DONE + anyio.run(assembled_digest, subject, Path(folder)))  # noqa: T201
        else:
            _commit_in_child(subject, Path(folder))


def _commit_in_child(subject: EngineSubject, folder: Path) -> None:
    """Commit in a child process that is killed. The first process of a namespace cannot kill itself."""
    child = os.fork()
    if child == 0:
        try:
            anyio.run(partial(_commit_and_die, subject, folder))
        finally:
            sys.stderr.flush()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        print(f"{_DONE}killed")  # noqa: T201
        return
    raise SystemExit(f"the commit failed, with status {status}")


async def _commit_and_die(subject: EngineSubject, folder: Path) -> None:
    async with subject.engine(folder) as engine:
        await engine.commit_all(conversations.few_turns())
        os.kill(os.getpid(), signal.SIGKILL)
