"""The agent's own home: a fresh folder with our settings, outside the evidence and outside its temporary folder."""

from pathlib import Path
from typing import Any

import msgspec

from proctor.errors import disk_refusal
from proctor.runtime.base import HostAsk, SessionAsk
from proctor.runtime.codex_app_server.catalog import catalog
from proctor.runtime.environment import refuse_tmpdir_above

PROVIDER = "proctor"


def write_home(ask: HostAsk) -> None:
    """config.toml and the model catalog. The agent appends to the config itself, so the home stays writable."""
    refuse_tmpdir_above(ask.home, Path(ask.env.get("TMPDIR", str(ask.tmp))))
    try:
        ask.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        ask.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ask.model.provider == "scripted":
            _models(ask.home).write_bytes(catalog(ask.model.name))
        (ask.home / "config.toml").write_text(_config(ask), encoding="utf-8")
    except OSError as error:
        raise disk_refusal(error, path=ask.home) from error


def _models(home: Path) -> Path:
    return home / "models.json"


def _config(ask: HostAsk) -> str:
    lines = [
        *_line("model", ask.model.name),
        *_line("model_provider", PROVIDER),
        *_line("check_for_update_on_startup", value=False),
        *_line("web_search", "disabled"),
        *_line("allow_login_shell", value=False),
    ]
    if ask.model.provider == "scripted":
        lines += _line("model_catalog_json", str(_models(ask.home)))
    lines += [
        f"[model_providers.{PROVIDER}]",
        *_line("name", ask.model.provider),
        *_line("base_url", ask.model.base_url),
        *_line("wire_api", "responses"),
        *_line("env_key", ask.model.key_variable),
        "[features]",
        # This one alone keeps the program from calling out by itself.
        *_line("plugins", value=False),
        *_line("shell_snapshot", value=False),
        "[skills.bundled]",
        *_line("enabled", value=False),
        "[analytics]",
        *_line("enabled", value=False),
        "[feedback]",
        *_line("enabled", value=False),
    ]
    return "\n".join(lines) + "\n"


def _line(key: str, value: str | bool | None) -> list[str]:
    # A TOML basic string is spelled like a JSON one.
    return [] if value is None else [f"{key} = {msgspec.json.encode(value).decode()}"]


def thread_params(ask: SessionAsk) -> dict[str, Any]:
    """thread/start: own model URL, own marker, own temporary folder as the only extra writable root."""
    config: dict[str, Any] = {
        "shell_environment_policy.set": {"PROCTOR_ATTEMPT": ask.attempt, "TMPDIR": str(ask.tmp)},
        "sandbox_workspace_write.exclude_slash_tmp": True,
        "sandbox_workspace_write.exclude_tmpdir_env_var": True,
        "sandbox_workspace_write.writable_roots": [str(ask.tmp)],
    }
    if ask.model.key_variable is not None:
        # Without this the program hands its provider key to every shell child.
        config["shell_environment_policy.exclude"] = [ask.model.key_variable]
    if ask.model.base_url is not None:
        config[f"model_providers.{PROVIDER}.base_url"] = ask.model.base_url
    return {
        "cwd": str(ask.workspace),
        "ephemeral": True,
        "model": ask.model.name,
        "modelProvider": PROVIDER,
        "sandbox": ask.sandbox.value,
        # The agent is told to ask, and the policy answers, so that a denial is evidence.
        "approvalPolicy": "on-request",
        "config": config,
    }
