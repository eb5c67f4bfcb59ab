"""What a flow's agent logs in with: where it comes from, by name, and how the agent's program is given it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import InputError
from proctor.evidence.secrets import holds_credential
from proctor.fact import Authority, Fact
from proctor.spec.check_login import key_variable
from proctor.spec.literal import LEAST_CHARS
from proctor.spec.marked import read_source
from proctor.spec.model import Login, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where an agent program keeps its user's login, and how it takes another one.

    `provider` is whose models that login is for. A token of that provider goes into `token_variable`.
    """

    provider: str
    home_variable: str
    home_name: str
    file_name: str
    command: str
    token_variable: str

    def home(self, environ: Mapping[str, str]) -> Path:
        """The user's own, whether it is there or not."""
        named = environ.get(self.home_variable)
        return Path(named) if named else Path(environ.get("HOME") or Path.home()) / self.home_name

    def file(self, environ: Mapping[str, str]) -> Path:
        return self.home(environ) / self.file_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A login by name. `variable` is what the agent's process finds it in; `file` is the user's own, if it is that."""

    login: Login
    source: str | None = None
    source_variable: str | None = None
    variable: str | None = None
    file: Path | None = None
    value: str | None = field(default=None, repr=False)

    @property
    def given(self) -> Mapping[str, str]:
        """What the agent's environment holds because of it."""
        return {} if self.variable is None or self.value is None else {self.variable: self.value}

    def fact(self) -> Fact:
        """Where it was looked for and how it is handed over; never what it is."""
        return Fact(
            value={"login": self.login.value, "from": self.source, "givenIn": self.variable},
            authority=Authority.OBSERVED,
            source="the flow's login, found before the run began",
        )


NO_CREDENTIAL = Credential(login=Login.NONE)


def find_credential(
    login: Login,
    *,
    provider: str,
    token: str | Path | None,
    account: Account | None,
    profile: Profile,
    environ: Mapping[str, str],
) -> Credential:
    """InputError with what to do, where it is not to be had. `token` is a variable's name or a file."""
    match login:
        case Login.NONE:
            return NO_CREDENTIAL
        case Login.API_KEY:
            variable = key_variable(provider)
            return _from_variable(login, variable, given_in=variable, environ=environ)
        case Login.TOKEN:
            is_native = account is not None and account.provider == provider
            given_in = account.token_variable if account is not None and is_native else None
            if isinstance(token, Path):
                return _from_file(token, given_in=given_in or key_variable(provider))
            assert token is not None, "a spec whose token is missing is refused before"
            return _from_variable(login, token, given_in=given_in or token, environ=environ)
        case Login.INHERIT:
            return _inherited(provider, account=account, profile=profile, environ=environ)


def _from_variable(login: Login, name: str, *, given_in: str, environ: Mapping[str, str]) -> Credential:
    value = environ.get(name, "").strip()
    if not value:
        is_set = "is empty" if name in environ else "is not set"
        raise InputError(
            "policy.login",
            f"the variable {name}, which should hold the {'key' if login is Login.API_KEY else 'token'}, {is_set}",
            suggestion=f"Set it where you run Proctor: `export {name}=…`.",
        )
    if login is Login.TOKEN:
        _refuse_short(value, holder=f"the variable {name}")
    return Credential(login=login, source=f"variable {name}", source_variable=name, variable=given_in, value=value)


def _from_file(path: Path, *, given_in: str) -> Credential:
    value = read_source(path).decode("utf-8", "replace").strip()
    if len(value.split()) != 1:
        raise InputError(
            "policy.login",
            f"{path.name} should hold one token and nothing else",
            suggestion="Put the token alone into the file, or into a variable that `token:` names.",
        )
    _refuse_short(value, holder=path.name)
    return Credential(login=Login.TOKEN, source=f"file {path.name}", variable=given_in, value=value)


def _refuse_short(value: str, *, holder: str) -> None:
    """What is declared as a secret must be one that can be masked."""
    if len(value) < LEAST_CHARS:
        what = f"{holder} holds fewer than {LEAST_CHARS} characters, which cannot be kept out of the evidence"
        raise InputError("policy.login", what, suggestion="See that it holds the whole token.")


def _inherited(provider: str, *, account: Account | None, profile: Profile, environ: Mapping[str, str]) -> Credential:
    if account is None or account.provider != provider:
        whose = "this runtime has no login of its own" if account is None else f"your login is for {account.provider}"
        raise InputError("policy.login", f"{whose}, not for {provider}", suggestion="Write `login: api-key`.")
    file = account.file(environ)
    fault = login_fault(file)
    if profile is Profile.MINE:
        # A keyring may hold it instead: the program itself will tell.
        return Credential(login=Login.INHERIT, source=f"your own {account.home_name}", file=None if fault else file)
    if fault is not None:
        raise InputError(
            "policy.login",
            f"you are not logged in: {fault}",
            suggestion=f"Run `{account.command}`, then try again. A login kept in a keyring needs `profile: mine`.",
        )
    # Not the path itself, which would tell the evidence whose machine this was.
    folder = f"${account.home_variable}" if environ.get(account.home_variable) else account.home_name
    return Credential(login=Login.INHERIT, source=f"file {folder}/{account.file_name}", file=file)


def login_fault(file: Path) -> str | None:
    """Why a file is not one that an agent program keeps a login in."""
    if not file.is_file():
        return f"there is no {file}"
    try:
        data = read_source(file)
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"{file} cannot be read as a login: {error}"
    except InputError as error:
        return f"{file} cannot be read as a login: {error.what}"
    return None if holds_credential(data) else f"{file} holds no credential"
