"""The agent's home and settings: a fresh folder with ours alone, or the user's own where a flow says so."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import disk_refusal
from proctor.evidence.secrets import holds_credential
from proctor.runtime.base import HostAsk, SessionAsk
from proctor.runtime.codex.account import ACCOUNT, uses_account
from proctor.runtime.codex.catalog import catalog
from proctor.runtime.environment import refuse_tmpdir_above
from proctor.spec.model import Login, Profile

PROVIDER = "proctor"
# How patient the program is with its provider, by its own names: what a flow's options may set.
PATIENCE = {
    "request_max_retries": f"model_providers.{PROVIDER}.request_max_retries",
    "stream_max_retries": f"model_providers.{PROVIDER}.stream_max_retries",
    "stream_idle_timeout_ms": f"model_providers.{PROVIDER}.stream_idle_timeout_ms",
    "unbounded_connection_retries": "features.unbounded_connection_retries",
}


def codex_home(ask: HostAsk) -> Path:
    """The folder that the program takes for its own."""
    return ask.user_home if ask.profile is Profile.MINE and ask.user_home is not None else ask.home


def write_home(ask: HostAsk) -> None:
    """config.toml and the model catalog. The agent appends to the config itself, so the home stays writable.

    An inherited login is a link to the user's own file, never a copy: its tokens are replaced by use, and the program
    writes the new ones through the link (docs/decisions/0005-inherited-logins.md).
    """
    refuse_tmpdir_above(codex_home(ask), Path(ask.env.get("TMPDIR", str(ask.tmp))))
    try:
        ask.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        ask.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ask.model.provider == "scripted":
            _models(ask.home).write_bytes(catalog(ask.model.name))
        if codex_home(ask) != ask.home:
            return
        lines = [f"{key} = {toml(value)}" for key, value in {**_model(ask), **_OURS}.items()]
        (ask.home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if ask.model.login is Login.INHERIT and ask.user_home is not None:
            (ask.home / ACCOUNT.file_name).symlink_to(ask.user_home / ACCOUNT.file_name)
    except OSError as error:
        raise disk_refusal(error, path=ask.home) from error


def return_login(ask: HostAsk) -> None:
    """What a renewal has put in the place of the link belongs to the user, who would be logged out without it.

    What holds no credential stays here: theirs may still be good. The version we know writes through the link, so that
    there is nothing to do.
    """
    ours = ask.home / ACCOUNT.file_name
    if ask.model.login is not Login.INHERIT or ask.user_home is None or ours.is_symlink() or not ours.is_file():
        return
    # It may be a link of the user's own, which stays one.
    theirs = (ask.user_home / ACCOUNT.file_name).resolve()
    draft = theirs.with_name(f"{theirs.name}.{ask.process}")
    try:
        if not holds_credential(ours.read_bytes()):
            return
        shutil.copy2(ours, draft)
        draft.replace(theirs)
    except OSError as error:
        raise disk_refusal(error, path=theirs) from error


def own_variables(ask: HostAsk) -> dict[str, str]:
    """What the program's process is told of its folders."""
    home = str(codex_home(ask))
    # The user's own HOME is there with the user's own profile only.
    return {"CODEX_HOME": home, "HOME": ask.env.get("HOME", home), "TMPDIR": ask.env.get("TMPDIR", str(ask.tmp))}


def overrides(ask: HostAsk) -> list[str]:
    """Arguments that lay our model over the user's own settings, whose file is left alone."""
    if codex_home(ask) == ask.home:
        return []
    return as_arguments(_model(ask))


def _models(home: Path) -> Path:
    return home / "models.json"


_OURS: Mapping[str, Any] = {
    "check_for_update_on_startup": False,
    "web_search": "disabled",
    "allow_login_shell": False,
    # This one alone keeps a program without a login from calling out by itself.
    "features.plugins": False,
    # With a login it would also call the user's own connectors.
    "features.apps": False,
    "features.shell_snapshot": False,
    # Else it tries to reach its provider for ever, and only our clock would end that.
    "features.unbounded_connection_retries": False,
    "skills.bundled.enabled": False,
    "analytics.enabled": False,
    "feedback.enabled": False,
}


def _model(ask: HostAsk) -> dict[str, Any]:
    model, provider = ask.model, f"model_providers.{PROVIDER}"
    settings = {
        "model": model.name,
        "model_provider": PROVIDER,
        "model_catalog_json": str(_models(ask.home)) if model.provider == "scripted" else None,
        f"{provider}.name": model.provider,
        f"{provider}.base_url": model.base_url,
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": None if uses_account(model) else model.key_variable,
        f"{provider}.requires_openai_auth": True if uses_account(model) else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def toml(value: Any) -> str:
    """
    >>> toml({"A b": ["x", True, 1]})
    '{"A b"=["x",true,1]}'
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(str(key))}={toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(toml, value)) + "]"
    # A TOML basic string is spelled like a JSON one, but for DEL.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def as_arguments(settings: Mapping[str, Any]) -> list[str]:
    """How settings are given on the command line, where they outweigh those in files."""
    return [word for key, value in settings.items() for word in ("-c", f"{key}={toml(value)}")]


def thread_settings(ask: SessionAsk) -> dict[str, Any]:
    """What is set for one thread: own model URL, own marker, own temporary folder as the only extra writable root."""
    settings: dict[str, Any] = {
        "shell_environment_policy.set": {"PROCTOR_ATTEMPT": ask.attempt, "TMPDIR": str(ask.tmp)},
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "sandbox_workspace_write.exclude_tmpdir_env_var": True,
        "sandbox_workspace_write.writable_roots": [str(ask.tmp)],
    }
    if ask.model.key_variable is not None:
        # Without this the program hands its provider key to every shell child.
        settings["shell_environment_policy.exclude"] = [ask.model.key_variable]
    if ask.model.base_url is not None:
        settings[f"model_providers.{PROVIDER}.base_url"] = ask.model.base_url
    settings |= {key: ask.options[name] for name, key in PATIENCE.items() if name in ask.options}
    if ask.profile is Profile.MINE:
        # Said here, and as a table, it is not written into the user's own config.toml.
        settings["projects"] = {str(ask.workspace.resolve()): {"trust_level": "trusted"}}
    return settings
