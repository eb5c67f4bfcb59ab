"""What `import proctor` costs and offers, and what it says to those who ask wrongly."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor import api
from proctor.event import model
from tests.api.talk import bounded, script


@pytest.mark.proctor_process
def test_nothing_is_imported_until_it_is_used() -> None:
    told = "import sys, proctor; dir(proctor); print([name for name in sys.modules if name.startswith('proctor')])"
    said = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout
    assert said == "['proctor']\n"


@pytest.mark.requirement("surface.api")
def test_the_package_offers_what_the_api_does_and_every_event() -> None:
    assert set(api.__all__) == proctor._PUBLIC  # type: ignore[attr-defined]
    assert {event.__name__ for event in model.Event.__args__} <= set(api.__all__)
    assert set(api.__all__) <= set(dir(proctor))
    with pytest.raises(AttributeError, match="has no attribute 'sesion'"):
        _ = proctor.sesion  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asks", "code", "where"),
    [
        (lambda s: proctor.session("codex_ap_server", script=s), "spec.unknown-runtime", "session: runtime"),
        (lambda _: proctor.session(), "spec.missing-key", "session: model"),
        (lambda _: proctor.session(script="no/such.yaml"), "spec.missing-file", "session: script"),
        (lambda _: proctor.session(model="gpt-5.5"), "spec.type", "session: model"),
        (lambda s: proctor.session(script=s, workspace="no/such"), "spec.missing-file", "session: workspace"),
        (lambda s: proctor.session(script=s, evidence="tape"), "spec.type", "session: evidence"),  # type: ignore[arg-type]
        (lambda s: proctor.session(script=s, sandbox="none"), "spec.type", "session: sandbox"),  # type: ignore[arg-type]
        (lambda s: proctor.session(script=s, approvals="maybe"), "spec.type", "session: approvals"),  # type: ignore[arg-type]
        (lambda s: proctor.session(script=s, approval_deadline="soon"), "spec.type", "session: approval_deadline"),
        (lambda s: proctor.session(script=s, limits=proctor.Limits(turn="soon")), "spec.type", "session: limits.turn"),
        (lambda s: proctor.session(script=s, limits=proctor.Limits(usd=1)), "spec.type", "session: limits.usd"),
        (
            lambda s: proctor.session(script=s, limits=proctor.Limits(mission="1m")),
            "spec.type",
            "session: limits.mission",
        ),
        (
            lambda s: proctor.session(script=s, limits=proctor.Limits(campaign="1m")),
            "spec.type",
            "session: limits.campaign",
        ),
        (
            lambda s: proctor.session(script=s, workspace=s.parent, evidence="disk", root=s.parent / "deep" / "root"),
            "spec.unsupported",
            "session: workspace",
        ),
        (lambda s: proctor.session(script=s, options={"no": 1}), "spec.unknown-key", None),
    ],
)
def test_who_asks_wrongly_is_told_where_and_what(
    tmp_path: Path, asks: Callable[[Path], AbstractAsyncContextManager[Any]], code: str, where: str | None
) -> None:
    async def test() -> None:
        async with asks(script(tmp_path, {"say": "Hello."})):
            pass

    with pytest.raises(proctor.InputError) as told:
        bounded(test)
    assert told.value.code == code
    assert where is None or told.value.where == where


@pytest.mark.parametrize(
    ("asks", "suggestion"),
    [
        (lambda s: proctor.session("codx", script=s), "Did you mean `codex_app_server`?"),
        (lambda _: proctor.session(script="no/such.yaml"), "Paths are relative to the current folder, FOLDER."),
    ],
)
def test_wrong_argument_of_a_session_has_advice_about_that_argument(
    tmp_path: Path,
    asks: Callable[[Path], AbstractAsyncContextManager[Any]],
    suggestion: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with asks(script(tmp_path, {"say": "Hello."})):
            pass

    with pytest.raises(proctor.InputError) as raised:
        bounded(test)
    assert raised.value.suggestion == suggestion.replace("FOLDER", str(tmp_path))


@pytest.mark.real_agent
def test_beside_others_no_agent_has_full_access(tmp_path: Path) -> None:
    async def test() -> None:
        async with proctor.pool() as pool:
            with pytest.raises(proctor.InputError) as told:
                pool.session(script=script(tmp_path, {"say": "Hello."}), sandbox="danger-full-access")
            assert told.value.code == "policy.shared-full-access"

    bounded(test)
