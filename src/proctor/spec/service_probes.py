"""Structs of a spec: probes that run a service or a command and observe what it answers and what it changes."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta

from proctor.spec.argv import argv_of
from proctor.spec.duration import parse_duration_s
from proctor.spec.glob import compile_glob
from proctor.spec.pointer import is_pointer
from proctor.spec.probe_options import ExitCode, KeyProblem, ProbeOptions, is_inside, texts_of
from proctor.spec.struct import Command, Duration, Spec, Text, Texts

_METHOD = re.compile(r"[A-Z]{1,20}")
_PATH = re.compile(r"/[!-~]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~\xa0-\xff]*")
_SELECT = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
# What may contain a semicolon that ends no statement.
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)

Status = Annotated[int, Meta(ge=100, le=599)]
SqlRows = list[list[str | int | float | None]]


class ServiceSpec(Spec, frozen=True, kw_only=True):
    """`service`: how a service is started and stopped."""

    start: Command
    """The command that starts the service: a list is argv, a string is run with `bash -c`. `{port}` is replaced by the
    port of 127.0.0.1 that it must listen on, which is also in the variable PORT."""

    ready: Duration = "10s"
    """How long it may take until the port accepts connections. Default 10 s."""

    stop: Duration = "5s"
    """How long it may take to exit after SIGTERM. Default 5 s."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line that starts the service."""
        return argv_of(self.start)

    @property
    def durations(self) -> dict[str, Duration]:
        """The durations, by their key in the probe."""
        return {"service.ready": self.ready, "service.stop": self.stop}


class RequestSpec(Spec, frozen=True, kw_only=True):
    """`request`: an HTTP request to the service."""

    method: Text = "GET"
    """The method, in capital letters. Default `GET`."""

    path: Text
    """The path, which begins with `/`, with the query if there is one."""

    headers: dict[str, str] = {}
    """The headers. Default: none besides those that HTTP requires."""

    body: str | None = None
    """The body, sent as UTF-8. Default: none."""

    def problems(self, key: str) -> Iterator[KeyProblem]:
        """Yield what HTTP does not allow. `key` is the request's key in the probe."""
        yield from _method_problems(self.method, key=f"{key}.method")
        yield from _path_problems(self.path, key=f"{key}.path")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                yield KeyProblem("spec.type", f"`{name[:60]}` is not a valid header", key=f"{key}.headers")


class ResponseExpect(Spec, frozen=True, kw_only=True):
    """`expect`: what a response must be."""

    status: Status = 200
    """The status code. Default 200."""

    headers: dict[str, str] = {}
    """Headers that the response must have, with exactly these values. Capital letters in names do not matter. Default:
    not compared."""

    body: str | None = None
    """The whole body, compared byte for byte. Default: not compared."""

    json: Any = None
    """The whole body as JSON: 1 equals 1.0, and the order of keys does not matter. Default: not compared."""

    ignore: Texts = []
    """JSON pointers (RFC 6901) of values that are left out when `json` is compared. Default: none."""


class CheckedRequest(RequestSpec, frozen=True, kw_only=True):
    """One of `requests`: an HTTP request, and what its response must be."""

    expect: ResponseExpect = ResponseExpect()
    """What the response must be. Default: any response with the status 200."""

    def problems(self, key: str) -> Iterator[KeyProblem]:
        yield from super().problems(key)
        yield from _json_problems(self.expect.body, self.expect.json, self.expect.ignore, key=f"{key}.expect")


class ApiSmoke(ProbeOptions, tag_field="kind", tag="api_smoke", frozen=True, kw_only=True):
    """A probe that starts a service, sends requests to it and compares the responses."""

    service: ServiceSpec
    """How the service is started and stopped."""

    requests: Annotated[list[CheckedRequest], Meta(min_length=1)]
    """The requests, sent one after the other, each over its own connection."""

    timeout: Duration = "1m"
    """Longest duration; the probe fails after it. Default 1 minute."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> ApiSmoke(service=ServiceSpec(start="make run"), requests=[CheckedRequest(path="/")]).argv
        ('bash', '-c', 'make run')
        """
        return self.service.argv

    @property
    def expected_values(self) -> tuple[str, ...]:
        """
        >>> answer = ResponseExpect(body="ok: 42", headers={"ETag": "abc1"})
        >>> probe = ApiSmoke(service=ServiceSpec(start="./serve"), requests=[CheckedRequest(path="/", expect=answer)])
        >>> probe.expected_values
        ('abc1', 'ok: 42')
        """
        expects = (request.expect for request in self.requests)
        return tuple(text for each in expects for text in texts_of([each.headers, each.body, each.json]))

    @property
    def durations(self) -> dict[str, Duration]:
        return super().durations | self.service.durations

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        yield from _timeout_problems(self.service, self.timeout)
        for at, request in enumerate(self.requests):
            yield from request.problems(f"requests[{at}]")


class ChangeKind(StrEnum):
    """What happened to a file."""

    CREATED = "created"
    CHANGED = "changed"
    """Its content, its kind or whether it is executable."""
    DELETED = "deleted"


class StatedChange(Spec, frozen=True, kw_only=True):
    """One of `changes`: a file that must have changed."""

    path: Text
    """Path of the file in the workspace."""

    change: ChangeKind
    """`created`, `changed` or `deleted`."""

    golden: Text | None = None
    """Path of a file in the spec's folder with the content that the file must have afterwards. Default: any content."""


class SqliteQuery(Spec, frozen=True, kw_only=True):
    """One of `queries`: what a SQLite database must contain."""

    database: Text
    """Path of the database file in the workspace. The file itself may change."""

    sql: Text
    """One `SELECT` statement."""

    before: SqlRows | None = None
    """The rows that it must return before the trigger, each a list of values. Default: not compared."""

    after: SqlRows
    """The rows that it must return after the trigger, each a list of values."""


class SinkCall(Spec, frozen=True, kw_only=True):
    """One of `calls`: a request that must arrive at the sink."""

    method: Text = "POST"
    """The method. Default `POST`."""

    path: Text
    """The path, with the query if there is one."""

    body: str | None = None
    """The whole body, compared byte for byte. Default: not compared."""

    json: Any = None
    """The whole body as JSON. Default: not compared."""

    ignore: Texts = []
    """JSON pointers of values that are left out when `json` is compared. Default: none."""


class SideEffect(ProbeOptions, tag_field="kind", tag="side_effect", frozen=True, kw_only=True):
    """A probe that runs a trigger, and compares what it changed with what it must change, and nothing else."""

    command: Command | None = None
    """The trigger, as a command: a list is argv, a string is run with `bash -c`. `{sink}` is the address of the sink,
    which is also in the variable PROCTOR_SINK. Default: none; then `service` and `request` are required."""

    service: ServiceSpec | None = None
    """The trigger, as a service that gets `request` and is then stopped. `{sink}` is replaced in its command. Default:
    none."""

    request: RequestSpec | None = None
    """The request to `service`. Any response is accepted."""

    changes: list[StatedChange] = []
    """The files that must have changed. Default: none."""

    queries: list[SqliteQuery] = []
    """What SQLite databases must contain. Default: not looked at."""

    calls: list[SinkCall] = []
    """The requests that must arrive at the sink, in this order. Default: none."""

    allow: Texts = []
    """Globs of other files that may change. Default: none."""

    exit: ExitCode = 0
    """Exit status of `command` that passes, 0 to 255. Default 0."""

    timeout: Duration = "1m"
    """Longest duration; the probe fails after it. Default 1 minute."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> SideEffect(command=["python3", "order.py"]).argv
        ('python3', 'order.py')
        """
        if self.command is not None:
            return argv_of(self.command)
        return () if self.service is None else self.service.argv

    @property
    def files(self) -> dict[str, str]:
        goldens = {f"changes[{at}].golden": each.golden for at, each in enumerate(self.changes)}
        return super().files | {key: path for key, path in goldens.items() if path is not None}

    @property
    def expected_values(self) -> tuple[str, ...]:
        rows = [value for query in self.queries for row in (*query.after, *(query.before or ())) for value in row]
        calls = [text for call in self.calls for text in texts_of([call.body, call.json])]
        return (*texts_of(rows), *calls)

    @property
    def durations(self) -> dict[str, Duration]:
        return super().durations | ({} if self.service is None else self.service.durations)

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        yield from self._trigger_problems()
        if self.service is not None:
            yield from _timeout_problems(self.service, self.timeout)
        if self.request is not None:
            yield from self.request.problems("request")
        yield from self._change_problems()
        for at, query in enumerate(self.queries):
            yield from _inside_problems(query.database, key=f"queries[{at}].database")
            if not _is_one_select(query.sql):
                yield KeyProblem("spec.type", "it is not one `SELECT` statement", key=f"queries[{at}].sql")
        for at, call in enumerate(self.calls):
            yield from _method_problems(call.method, key=f"calls[{at}].method")
            yield from _path_problems(call.path, key=f"calls[{at}].path")
            yield from _json_problems(call.body, call.json, call.ignore, key=f"calls[{at}]")
        for at, glob in enumerate(self.allow):
            try:
                compile_glob(glob)
            except ValueError as error:
                yield KeyProblem("spec.type", str(error), key=f"allow[{at}]")

    def _trigger_problems(self) -> Iterator[KeyProblem]:
        if self.command is None and self.service is None:
            suggestion = "Add `command:`, or `service:` and `request:`."
            what = "it needs the key `command` or `service`"
            yield KeyProblem("spec.missing-key", what, key="command", suggestion=suggestion)
        if self.command is not None:
            for name in ("service", "request"):
                if getattr(self, name) is not None:
                    what = f"`{name}` has no effect beside `command`"
                    yield KeyProblem("spec.unsupported", what, key=name, suggestion=f"Remove `{name}`.")
        elif self.service is not None and self.request is None:
            yield KeyProblem("spec.missing-key", "`service` needs the key `request`", key="request")
        if self.command is None and self.exit:
            yield KeyProblem("spec.unsupported", "`exit` has no effect without `command`", key="exit")

    def _change_problems(self) -> Iterator[KeyProblem]:
        seen = set[str]()
        for at, each in enumerate(self.changes):
            yield from _inside_problems(each.path, key=f"changes[{at}].path")
            if each.path in seen:
                yield KeyProblem("spec.duplicate-id", f"`{each.path}` is listed twice", key=f"changes[{at}].path")
            seen.add(each.path)
            if each.golden is not None and each.change is ChangeKind.DELETED:
                what = "`golden` has no effect on a deleted file"
                yield KeyProblem("spec.unsupported", what, key=f"changes[{at}].golden")


def _method_problems(method: str, *, key: str) -> Iterator[KeyProblem]:
    if not _METHOD.fullmatch(method):
        yield KeyProblem("spec.type", f"`{method[:60]}` is not a method such as GET or POST", key=key)


def _path_problems(path: str, *, key: str) -> Iterator[KeyProblem]:
    if not _PATH.fullmatch(path):
        what = f"`{path[:60]}` is not a path of a URL, such as `/orders?page=2`"
        suggestion = "Begin it with `/`, and write other characters than ASCII with `%`."
        yield KeyProblem("spec.type", what, key=key, suggestion=suggestion)


def _inside_problems(path: str, *, key: str) -> Iterator[KeyProblem]:
    if not is_inside(path) or path.endswith("/"):
        yield KeyProblem("spec.type", f"`{path}` is not a file inside the workspace", key=key)


def _json_problems(body: str | None, json: Any, ignore: list[str], *, key: str) -> Iterator[KeyProblem]:
    if body is not None and json is not None:
        what = "`body` and `json` both state the body"
        yield KeyProblem("spec.unsupported", what, key=f"{key}.body", suggestion="Remove one of them.")
    if ignore and json is None:
        yield KeyProblem("spec.unsupported", "`ignore` has no effect without `json`", key=f"{key}.ignore")
    for at, pointer in enumerate(ignore):
        if not is_pointer(pointer) or not pointer:
            what = f"`{pointer[:60]}` is not a JSON pointer, such as `/items/0/id`"
            yield KeyProblem("spec.type", what, key=f"{key}.ignore[{at}]")


def _timeout_problems(service: ServiceSpec, timeout: Duration) -> Iterator[KeyProblem]:
    try:
        ready_s, stop_s, timeout_s = map(parse_duration_s, (service.ready, service.stop, timeout))
    except ValueError:
        return  # reported elsewhere
    if ready_s + stop_s >= timeout_s:
        what = f"{timeout_s:g} s are not longer than `service.ready` and `service.stop` together"
        yield KeyProblem("spec.type", what, key="timeout")


def _is_one_select(sql: str) -> bool:
    """
    >>> [_is_one_select(sql) for sql in ("select ';';", "WITH a AS (SELECT 1) SELECT * FROM a", "DELETE FROM a")]
    [True, True, False]
    >>> _is_one_select("select 1; select 2")
    False
    """
    return _SELECT.match(sql) is not None and ";" not in _QUOTED.sub("", sql).rstrip().removesuffix(";")
