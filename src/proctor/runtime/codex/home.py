"""Codex's home and settings: a new folder with Proctor's settings, or the user's own home."""

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.contain.identity import ATTEMPT_VARIABLE
from proctor.errors import disk_error
from proctor.evidence.secrets import holds_credential
from proctor.runtime.base import HostRequest, SessionRequest
from proctor.runtime.codex.account import ACCOUNT, uses_account
from proctor.runtime.codex.catalog import catalog
from proctor.runtime.environment import refuse_tmpdir_above
from proctor.spec.choices import Login, Profile

PROVIDER = "proctor"
BASE_URL = f"model_providers.{PROVIDER}.base_url"
_PROFILE = ".config.toml"
# The flow options for retries and timeouts, with the Codex setting for each.
RETRY_OPTIONS = {
    "request_max_retries": f"model_providers.{PROVIDER}.request_max_retries",
    "stream_max_retries": f"model_providers.{PROVIDER}.stream_max_retries",
    "stream_idle_timeout_ms": f"model_providers.{PROVIDER}.stream_idle_timeout_ms",
    "unbounded_connection_retries": "features.unbounded_connection_retries",
}


def codex_home(request: HostRequest) -> Path:
    """Return the folder for CODEX_HOME."""
    return request.user_home if request.profile is Profile.MINE and request.user_home is not None else request.home


def write_home(request: HostRequest) -> None:
    """Write config.toml and the model catalog. Codex itself appends to the config, so the home stays writable.

    An inherited login is a link to the user's file, not a copy: Codex replaces its tokens when it uses them, and
    writes the new ones through the link (docs/decisions/0005-inherited-logins.md).
    """
    refuse_tmpdir_above(codex_home(request), Path(request.env.get("TMPDIR", str(request.tmp))))
    try:
        request.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        request.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
        if request.model.provider == "scripted":
            _models(request.home).write_bytes(catalog(request.model.name))
        if codex_home(request) != request.home:
            return
        (request.home / "config.toml").write_text(_toml_lines({**_model(request), **_OURS}), encoding="utf-8")
        link = request.home / ACCOUNT.file_name
        # The home of a session that continues has it already.
        if request.model.login is Login.INHERIT and request.user_home is not None and not link.is_symlink():
            link.symlink_to(request.user_home / ACCOUNT.file_name)
    except OSError as error:
        raise disk_error(error, path=request.home) from error


def return_login(request: HostRequest) -> None:
    """Copy the login back to the user if Codex replaced the link by a file, so that the user stays logged in.

    A file without a credential is not copied. Codex 0.163 writes through the link, so that there is nothing to copy.
    """
    ours = request.home / ACCOUNT.file_name
    if request.model.login is not Login.INHERIT or request.user_home is None or ours.is_symlink() or not ours.is_file():
        return
    # If the user's file is a link, it stays one.
    theirs = (request.user_home / ACCOUNT.file_name).resolve()
    draft = theirs.with_name(f"{theirs.name}.{request.process}")
    try:
        if not holds_credential(ours.read_bytes()):
            return
        shutil.copy2(ours, draft)
        draft.replace(theirs)
    except OSError as error:
        raise disk_error(error, path=theirs) from error


def own_variables(request: HostRequest) -> dict[str, str]:
    """Return the environment variables for the program's folders."""
    home = str(codex_home(request))
    # The user's HOME is in the environment only with the user's own profile.
    return {
        "CODEX_HOME": home,
        "HOME": request.env.get("HOME", home),
        "TMPDIR": request.env.get("TMPDIR", str(request.tmp)),
    }


def mcp_servers(request: HostRequest) -> frozenset[str]:
    """Return the names of the MCP servers that the settings of this home enable; none if they cannot be read."""
    try:
        settings = tomllib.loads((codex_home(request) / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    servers = settings.get("mcp_servers")
    if not isinstance(servers, dict):
        return frozenset()
    return frozenset(
        name for name, server in servers.items() if isinstance(server, dict) and server.get("enabled") is not False
    )


def overrides(request: HostRequest) -> dict[str, Any]:
    """Return the settings of the model if the settings file is the user's own, which is not changed."""
    return {} if codex_home(request) == request.home else _model(request)


HOME_INDEXES: Final = ("*.sqlite", "*.sqlite-shm", "*.sqlite-wal")
"""Codex's databases. They name rollout files by absolute path, and are made again from these (seen with 0.163)."""


def _models(home: Path) -> Path:
    return home / "models.json"


_OURS: Mapping[str, Any] = {
    "check_for_update_on_startup": False,
    "web_search": "disabled",
    "allow_login_shell": False,
    # Without a login, Codex makes no network requests if this is off.
    "features.plugins": False,
    # With a login, Codex would also call the user's connectors.
    "features.apps": False,
    "features.shell_snapshot": False,
    # Otherwise Codex retries an unreachable provider until a clock of Proctor fires.
    "features.unbounded_connection_retries": False,
    "skills.bundled.enabled": False,
    "analytics.enabled": False,
    "feedback.enabled": False,
}


def _model(request: HostRequest) -> dict[str, Any]:
    model, provider = request.model, f"model_providers.{PROVIDER}"
    settings = {
        "model": model.name,
        "model_provider": PROVIDER,
        "model_catalog_json": str(_models(request.home)) if model.provider == "scripted" else None,
        f"{provider}.name": model.provider,
        BASE_URL: model.base_url,
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": None if uses_account(model) else model.key_variable,
        f"{provider}.requires_openai_auth": True if uses_account(model) else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def toml(value: Any) -> str:
    """Encode a value as TOML.

    >>> toml({"A b": ["x", True, 1]})
    '{"A b"=["x",true,1]}'
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(str(key))}={toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(toml, value)) + "]"
    # A TOML basic string has the syntax of a JSON string, except for DEL.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def _toml_lines(settings: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in settings.items())


@contextmanager
def written_profile(settings: Mapping[str, Any], *, home: Path) -> Iterator[str]:
    """Write settings to a temporary profile that only this user can read, and yield its name for `--profile`."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="proctor-", suffix=_PROFILE, dir=home)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_toml_lines(settings))
    except OSError as error:
        raise disk_error(error, path=home) from error
    try:
        yield Path(name).name.removesuffix(_PROFILE)
    finally:
        Path(name).unlink(missing_ok=True)


def as_arguments(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as command line arguments, which take precedence over files."""
    return [word for key, value in settings.items() for word in ("-c", f"{key}={toml(value)}")]


def thread_settings(request: SessionRequest) -> dict[str, Any]:
    """Return the settings of one thread: model URL, attempt marker, and its temporary folder as a writable root."""
    settings: dict[str, Any] = {
        "shell_environment_policy.set": {ATTEMPT_VARIABLE: request.attempt, "TMPDIR": str(request.tmp)},
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "sandbox_workspace_write.exclude_tmpdir_env_var": True,
        "sandbox_workspace_write.writable_roots": [str(request.tmp)],
    }
    if request.model.key_variable is not None:
        # Without this, Codex passes the provider key to every shell command.
        settings["shell_environment_policy.exclude"] = [request.model.key_variable]
    if request.model.base_url is not None:
        settings[BASE_URL] = request.model.base_url
    settings |= {key: request.options[name] for name, key in RETRY_OPTIONS.items() if name in request.options}
    if request.profile is Profile.MINE:
        # Set here and as a table, it is not written to the user's config.toml.
        settings["projects"] = {str(request.workspace.resolve()): {"trust_level": "trusted"}}
    return settings
