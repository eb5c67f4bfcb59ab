"""What Codex says of its login: reported, unknown where it is mute, and refused where it has none."""

import pytest

from proctor.errors import PeerError
from proctor.fact import UNKNOWN, Authority, Fact
from proctor.runtime.base import ModelChoice
from proctor.runtime.codex_app_server.login import observe_login
from proctor.spec.choices import Login
from tests.runtime.twin import Handler, Request, Twin, connected, run

INHERITED = ModelChoice(provider="openai", name="m", login=Login.INHERIT)
TOKEN = ModelChoice(provider="openai", name="m", login=Login.TOKEN, key_variable="CODEX_ACCESS_TOKEN")
KEY = ModelChoice(provider="p", name="m", login=Login.API_KEY, key_variable="P_API_KEY")
ELSEWHERE = ModelChoice(provider="p", name="m", login=Login.TOKEN, key_variable="CODEX_ACCESS_TOKEN")
SCRIPTED = ModelChoice(provider="scripted", name="m")


def observed(model: ModelChoice, handler: Handler | None = None) -> Fact | PeerError:
    async def test() -> Fact | PeerError:
        async with connected(Twin({} if handler is None else {"getAuthStatus": handler})) as line:
            try:
                return await observe_login(line.connection, model)
            except PeerError as error:
                return error

    return run(test)


def status(method: object) -> Handler:
    def reply(twin: Twin, request: Request) -> None:
        twin.reply(request, {"authMethod": method, "authToken": None, "requiresOpenaiAuth": True})

    return reply


@pytest.mark.requirement("runtime.credential")
@pytest.mark.parametrize("model", [INHERITED, TOKEN])
def test_what_it_says_is_reported(model: ModelChoice) -> None:
    fact = observed(model, status("chatgpt"))
    assert fact == Fact(value="chatgpt", authority=Authority.REPORTED, source="getAuthStatus.authMethod")


@pytest.mark.parametrize(
    ("model", "what"), [(INHERITED, "the user's login: run `codex login`"), (TOKEN, "the token: create a new token")]
)
def test_without_a_login_there_is_no_session_though_it_would_ask_the_model_bare(model: ModelChoice, what: str) -> None:
    refused = observed(model, status(None))
    assert isinstance(refused, PeerError)
    assert (refused.code, refused.what) == ("peer.login", f"Codex did not accept {what}")


def test_a_version_that_does_not_know_the_question_leaves_it_unknown() -> None:
    def refuse(twin: Twin, request: Request) -> None:
        twin.refuse(request, code=-32600, message="unknown variant")

    assert observed(INHERITED, refuse) == UNKNOWN


def test_a_provider_with_a_key_of_its_own_is_not_asked_about() -> None:
    assert observed(SCRIPTED) == UNKNOWN
    source = "the settings name the variable; Codex does not report whether it uses it"
    named = Fact(value="explicit-api-key", authority=Authority.INFERRED, source=source)
    assert [observed(KEY), observed(ELSEWHERE)] == [named, named]
