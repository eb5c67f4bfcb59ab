"""The probe kind `api_smoke`: start a service in the fence, send requests, and compare its responses outside."""

from collections.abc import Iterator
from dataclasses import replace

import anyio.to_thread
import msgspec

from proctor.evidence.artifacts import Judged
from proctor.probe.command import format_bytes, judge_missing
from proctor.probe.kind import Judgement, ProbeWorkspace
from proctor.probe.model import Verdict
from proctor.probe.observe import observe
from proctor.probe.services import (
    HttpExchange,
    ServiceObservation,
    ServiceSteps,
    describe_exchange,
    find_service_problems,
    join_problems,
    judge_absent,
    judge_unobserved,
    program_result,
    show_headers,
)
from proctor.spec.duration import parse_duration_s
from proctor.spec.json_value import is_same_json, parse_json
from proctor.spec.service_probes import ApiSmoke, CheckedRequest


class ApiObservation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the program in the fence observed."""

    service: ServiceObservation
    exchanges: list[HttpExchange]


async def judge(spec: ApiSmoke, workspace: ProbeWorkspace) -> Judgement:
    """Run the service, send the requests of `spec`, and judge the responses."""
    argv = spec.argv
    missing = judge_missing(argv, workspace)
    if missing is not None:
        return replace(missing, judged=Judged.OUTSIDE)
    timeout_s = parse_duration_s(spec.timeout)
    steps = ServiceSteps.of(spec.service, spec.requests, timeout=spec.timeout)
    seen = await observe(workspace, "api", steps, ApiObservation, timeout_s=timeout_s, records=argv)
    observed = seen.value
    if observed is None:
        return judge_unobserved(argv, seen.finished, timeout_s=timeout_s)
    service = observed.service
    exit_code = None if service.stop is None else service.stop.exit
    finished = program_result(seen.finished, exit_code=exit_code, output=service.output)
    if service.ready is not None and service.ready.exit is not None:
        absent = judge_absent(spec.service.start, workspace, finished)
        if absent is not None:
            return replace(absent, argv=argv, finished=finished)
    problems = await anyio.to_thread.run_sync(lambda: [*_find_problems(spec, observed, workspace)])
    count = len(spec.requests)
    summary = f"{count} {'request was' if count == 1 else 'requests were'} answered as expected"
    return Judgement(
        verdict=Verdict.FAIL if problems else Verdict.PASS,
        summary=join_problems(problems) or summary,
        argv=argv,
        finished=finished,
        judged=Judged.OUTSIDE,
        artifacts={"responses.json": msgspec.json.format(msgspec.json.encode(observed.exchanges), indent=2)},
    )


def _find_problems(spec: ApiSmoke, observed: ApiObservation, workspace: ProbeWorkspace) -> Iterator[str]:
    ready = observed.service.ready
    if ready is not None and ready.is_listening:
        if len(observed.exchanges) != len(spec.requests):
            yield "what was observed cannot be read"
            return
        for request, exchange in zip(spec.requests, observed.exchanges, strict=True):
            problem = _find_difference(request, exchange, workspace)
            if problem is not None:
                yield f"{request.method} {request.path[:100]} {problem}"
    yield from find_service_problems(observed.service)


def _find_difference(request: CheckedRequest, exchange: HttpExchange, workspace: ProbeWorkspace) -> str | None:
    """Return what was received in place of the expected response; None if it is as expected."""
    expect, answered = request.expect, describe_exchange(exchange)
    if exchange.problem is not None:
        return answered
    try:
        data = exchange.data
    except UnicodeEncodeError:
        return "was observed in a way that cannot be read"
    if exchange.status != expect.status:
        return f"{answered} and the body {format_bytes(data, workspace)}"
    if not all(_header(exchange, name) == value for name, value in expect.headers.items()):
        return f"{answered} and the headers {show_headers(exchange.headers)}"
    is_other_body = expect.body is not None and data != expect.body.encode()
    if is_other_body or (expect.json is not None and not _is_json(data, expect.json, expect.ignore)):
        return f"{answered} and the body {format_bytes(data, workspace)}"
    return None


def _header(exchange: HttpExchange, name: str) -> str | None:
    """Return the value of a header; several with the same name are one, as HTTP defines it."""
    values = [value for other, value in exchange.headers if other.lower() == name.lower()]
    return ", ".join(values) if values else None


def _is_json(data: bytes, expected: object, ignore: list[str]) -> bool:
    try:
        return is_same_json(expected, parse_json(data), ignore=ignore)
    except (ValueError, RecursionError):
        return False
