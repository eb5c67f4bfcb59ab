"""The credential of a flow's agent: where it is read from, and how the agent program receives it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import InputError
from proctor.evidence.secrets import holds_credential
from proctor.fact import Authority, Fact
from proctor.spec.check_login import key_variable
from proctor.spec.choices import Login, Profile
from proctor.spec.literal import MIN_SECRET_CHARS
from proctor.spec.source_file import read_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where an agent program keeps its user's login, and how it takes a token instead."""

    provider: str
    """The provider whose models the login is for."""
    home_variable: str
    """The environment variable that sets the program's home."""
    home_name: str
    """The name of that home below the user's home, if the variable is not set."""
    file_name: str
    """The file in the program's home that holds the login."""
    command: str
    """The command that logs a user in."""
    token_variable: str
    """The environment variable in which the program takes a token of the provider."""

    def home(self, environ: Mapping[str, str]) -> Path:
        """Return the program's home in the user's environment. It need not exist."""
        home = environ.get(self.home_variable)
        return Path(home) if home else Path(environ.get("HOME") or Path.home()) / self.home_name

    def file(self, environ: Mapping[str, str]) -> Path:
        """Return the user's login file. It need not exist."""
        return self.home(environ) / self.file_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential, its source and how the agent receives it."""

    login: Login
    source: str | None = None
    """Where it was read from, in words."""
    source_variable: str | None = None
    """The variable in Proctor's environment that it was read from."""
    variable: str | None = None
    """The variable in the agent's environment that holds it."""
    file: Path | None = None
    """The user's own login file, if the login is inherited."""
    value: str | None = field(default=None, repr=False)

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that the agent's environment needs for it."""
        return {} if self.variable is None or self.value is None else {self.variable: self.value}

    def fact(self) -> Fact:
        """Return where the credential comes from and how it is passed on, without its value."""
        return Fact(
            value={"login": self.login.value, "from": self.source, "givenIn": self.variable},
            authority=Authority.OBSERVED,
            source="the flow's login, as found before the run",
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
    """Find the credential for a flow. `token` is the name of a variable, or a file.

    Raises InputError if the credential is missing or cannot be used.
    """
    match login:
        case Login.NONE:
            return NO_CREDENTIAL
        case Login.API_KEY:
            variable = key_variable(provider)
            return _from_variable(login, variable, variable=variable, environ=environ)
        case Login.TOKEN:
            is_native = account is not None and account.provider == provider
            token_variable = account.token_variable if account is not None and is_native else None
            if isinstance(token, Path):
                return _from_file(token, variable=token_variable or key_variable(provider))
            assert token is not None, "a spec without `token` is refused earlier"
            return _from_variable(login, token, variable=token_variable or token, environ=environ)
        case Login.INHERIT:
            return _inherited(provider, account=account, profile=profile, environ=environ)


def _from_variable(login: Login, name: str, *, variable: str, environ: Mapping[str, str]) -> Credential:
    value = environ.get(name, "").strip()
    if not value:
        problem = "is empty" if name in environ else "is not set"
        raise InputError(
            "policy.login",
            f"the variable {name}, which should hold the {'key' if login is Login.API_KEY else 'token'}, {problem}",
            suggestion=f"Set it in the environment of Proctor: `export {name}=…`.",
        )
    if login is Login.TOKEN:
        _refuse_short(value, holder=f"the variable {name}")
    return Credential(login=login, source=f"variable {name}", source_variable=name, variable=variable, value=value)


def _from_file(path: Path, *, variable: str) -> Credential:
    value = read_source(path).decode("utf-8", "replace").strip()
    if len(value.split()) != 1:
        raise InputError(
            "policy.login",
            f"{path.name} must contain one token and nothing else",
            suggestion="Write only the token to the file, or name a variable that holds it under `token`.",
        )
    _refuse_short(value, holder=path.name)
    return Credential(login=Login.TOKEN, source=f"file {path.name}", variable=variable, value=value)


def _refuse_short(value: str, *, holder: str) -> None:
    """Raise InputError if a token is too short to be masked in the evidence."""
    if len(value) < MIN_SECRET_CHARS:
        what = (
            f"{holder} holds fewer than {MIN_SECRET_CHARS} characters, which is too short to be masked in the evidence"
        )
        raise InputError("policy.login", what, suggestion="Check that it holds the complete token.")


def _inherited(provider: str, *, account: Account | None, profile: Profile, environ: Mapping[str, str]) -> Credential:
    if account is None or account.provider != provider:
        what = (
            f"this runtime has no login to inherit for {provider}"
            if account is None
            else f"the user's login is for {account.provider}, not for {provider}"
        )
        raise InputError("policy.login", what, suggestion="Write `login: api-key`.")
    file = account.file(environ)
    problem = login_problem(file)
    if profile is Profile.MINE:
        # A keyring may hold the login instead. The program itself reports whether it has one.
        return Credential(login=Login.INHERIT, source=f"your own {account.home_name}", file=None if problem else file)
    if problem is not None:
        raise InputError(
            "policy.login",
            f"the user is not logged in: {problem}",
            suggestion=f"Run `{account.command}`, then try again. A login kept in a keyring needs `profile: mine`.",
        )
    # Not the path itself, which would identify the user's machine in the evidence.
    folder = f"${account.home_variable}" if environ.get(account.home_variable) else account.home_name
    return Credential(login=Login.INHERIT, source=f"file {folder}/{account.file_name}", file=file)


def login_problem(file: Path) -> str | None:
    """Return why a file does not hold a login, or None if it does."""
    if not file.is_file():
        return f"{file} does not exist"
    try:
        data = read_source(file)
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"{file} cannot be read as a login: {error}"
    except InputError as error:
        return f"{file} cannot be read as a login: {error.what}"
    return None if holds_credential(data) else f"{file} holds no credential"
