"""What programs in the fence report about a service, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from proctor.evidence.artifacts import Judged
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.missing import find_missing
from proctor.probe.model import Fault, Verdict
from proctor.spec.duration import parse_duration_s
from proctor.spec.service_probes import RequestSpec, ServiceSpec
from proctor.spec.struct import Duration
from proctor.transport.process import ExitStatus, ProcessResult

MARGIN_S: Final = 1.0
"""Time for a program in the fence to report, after the last thing that it waits for."""
_SHOWN_CHARS: Final = 200
_NAME_CHARS: Final = 40
_PORTS_NAMED: Final = 3
_PROBLEMS_NAMED: Final = 3
_HEADERS_NAMED: Final = 8


class RequestStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request that a program in the fence sends. It has no expectation."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: str | None

    @classmethod
    def of(cls, spec: RequestSpec) -> "RequestStep":
        """Return the step of a request of the spec."""
        return cls(method=spec.method, path=spec.path, headers=[*spec.headers.items()], body=spec.body)


class ServiceSteps(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A service that a program in the fence starts and stops, and the requests to it."""

    argv: tuple[str, ...]
    ready_s: float
    stop_s: float
    within_s: float
    requests: list[RequestStep]
    is_service: bool = True

    @classmethod
    def of(cls, service: ServiceSpec, requests: Sequence[RequestSpec], *, timeout: Duration) -> "ServiceSteps":
        """Return the steps of a probe with this time limit."""
        stop_s = parse_duration_s(service.stop)
        return cls(
            argv=service.argv,
            ready_s=parse_duration_s(service.ready),
            stop_s=stop_s,
            within_s=parse_duration_s(timeout) - stop_s - MARGIN_S,
            requests=[RequestStep.of(each) for each in requests],
        )


class _Observation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class ReadyObservation(_Observation, frozen=True, kw_only=True):
    """How a service started."""

    is_listening: bool
    after_ms: int
    exit: int | None
    other_ports: list[int]


class StopObservation(_Observation, frozen=True, kw_only=True):
    """How a service ended."""

    had_ended: bool
    exit: int | None
    after_ms: int
    is_still_listening: bool
    left: list[str]


class OutputObservation(_Observation, frozen=True, kw_only=True):
    """The last part of what a program printed, each character one byte."""

    stdout: str
    stderr: str


class ServiceObservation(_Observation, frozen=True, kw_only=True):
    """What a service did from its start to its end."""

    start_error: str | None = None
    ready: ReadyObservation | None = None
    stop: StopObservation | None = None
    output: OutputObservation | None = None


class HttpExchange(_Observation, frozen=True, kw_only=True):
    """What was received for one request."""

    status: int | None
    headers: list[tuple[str, str]]
    body: str
    """Each character is one byte."""
    problem: str | None
    """Why it is not a response: a key of PROBLEMS. None if it is one."""
    after_ms: int = 0

    @property
    def data(self) -> bytes:
        """The body. Raises UnicodeEncodeError if the observation is forged and holds other characters."""
        return self.body.encode("latin-1")


PROBLEMS: Final = {
    "timeout": "was not answered completely within {0:.1f} s",
    "invalid": "was not answered with valid HTTP",
    "connection": "was not answered: the connection was refused or broken",
    "too-large": "was answered with more data than is read",
    "not-sent": "was not sent, because there was no time left",
}


def find_start_problem(ready: ReadyObservation) -> str | None:
    """Return what is wrong with the start of a service; None if it listens on its port and still runs."""
    if ready.exit is not None:
        listens = "" if ready.is_listening else " without listening on its port"
        return f"the service {describe_code(ready.exit)} after {_seconds(ready.after_ms)}{listens}"
    if ready.is_listening:
        return None
    others = ", ".join(map(str, ready.other_ports[:_PORTS_NAMED]))
    elsewhere = f", but on port {others}" if others else ""
    return f"the service did not listen on its port within {_seconds(ready.after_ms)}{elsewhere}"


def find_service_problems(observed: ServiceObservation) -> Iterator[str]:
    """Yield what is wrong with a service, apart from its responses."""
    ready, stop = observed.ready, observed.stop
    if observed.start_error is not None or ready is None or stop is None:
        yield f"the service could not be started: {(observed.start_error or '')[:_SHOWN_CHARS]}"
        return
    if (problem := find_start_problem(ready)) is not None:
        yield problem
    elif stop.had_ended:
        yield f"the service {'' if stop.exit is None else describe_code(stop.exit)} before it was stopped"
    if not stop.had_ended and stop.exit is None:
        yield f"the service still ran {_seconds(stop.after_ms)} after SIGTERM"
    if stop.left:
        yield f"it left processes behind: {', '.join(name[:_NAME_CHARS] for name in stop.left[:_PROBLEMS_NAMED])}"
    elif stop.is_still_listening and stop.exit is not None:
        yield "its port still accepts connections after its end"


def describe_exchange(exchange: HttpExchange) -> str:
    """Return how a request was answered, without headers and body."""
    if exchange.problem is not None:
        return PROBLEMS.get(exchange.problem, "was not answered").format(exchange.after_ms / 1000)
    return f"was answered with {exchange.status}"


def show_headers(headers: Sequence[tuple[str, str]]) -> str:
    """Return some headers in one line."""
    shown = "; ".join(f"{name[:_NAME_CHARS]}: {value[:_NAME_CHARS]}" for name, value in headers[:_HEADERS_NAMED])
    return repr(shown)


def describe_code(code: int) -> str:
    """
    >>> describe_code(0), describe_code(-9)
    ('exited 0', 'was killed by signal 9')
    """
    return f"exited {code}" if code >= 0 else f"was killed by signal {-code}"


def join_problems(problems: Sequence[str]) -> str:
    """Return the first problems in one line."""
    more = f"; and {len(problems) - _PROBLEMS_NAMED} more" if len(problems) > _PROBLEMS_NAMED else ""
    return "; ".join(problems[:_PROBLEMS_NAMED]) + more


def program_result(
    finished: ProcessResult, *, exit_code: int | None, output: OutputObservation | None
) -> ProcessResult:
    """Return the result of the product's program in place of that of the program that observed it."""
    status = None
    if exit_code is not None:
        status = ExitStatus(code=exit_code) if exit_code >= 0 else ExitStatus(signal=-exit_code)
    return ProcessResult(
        exit=status,
        stdout=b"" if output is None else output.stdout.encode("latin-1", "replace"),
        stderr=b"" if output is None else output.stderr.encode("latin-1", "replace"),
        timed_out=finished.timed_out,
        stdout_cut=False,
        stderr_cut=False,
    )


def judge_unobserved(argv: tuple[str, ...], finished: ProcessResult, *, timeout_s: float) -> Judgement:
    """Return the judgement if there are no observations."""
    summary = f"did not end within {timeout_s:g} s" if finished.timed_out else "what was observed cannot be read"
    # Its stdout is what could not be read.
    shown = ProcessResult(
        exit=finished.exit,
        stdout=b"",
        stderr=finished.stderr,
        timed_out=finished.timed_out,
        stdout_cut=False,
        stderr_cut=finished.stderr_cut,
    )
    return Judgement(verdict=Verdict.FAIL, summary=summary, argv=argv, finished=shown, judged=Judged.OUTSIDE)


def judge_absent(command: list[str] | str, workspace: ProbeWorkspace, finished: ProcessResult) -> Judgement | None:
    """Return the judgement if a program that ended by itself shows that the machine lacks what it needs."""
    if (absent := find_missing(command, finished, has_tool=workspace.has_tool)) is None:
        return None
    summary = f"{absent.name} is not on this machine"
    return Judgement(verdict=Verdict.UNAVAILABLE, fault=absent.fault or Fault.WORKSPACE, summary=summary)


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"
