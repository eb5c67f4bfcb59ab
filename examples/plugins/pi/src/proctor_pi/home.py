"""The parameters of one pi session: its own home, its command line and its fences."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.contain.fences import Fences
from proctor.errors import InputError, disk_error
from proctor.fact import Fact
from proctor.runtime.agent_fences import agent_fences, fences_fact
from proctor.runtime.base import HostRequest, ModelChoice, SessionRequest
from proctor_pi import kept
from proctor_pi.program import installation

PROVIDER: Final = "proctor"
APIS: Final = ("openai-responses", "openai-completions", "anthropic-messages")
OPTIONS: Final = frozenset({"api", "max_retries", "retry_delay_ms"})
OWN_VARIABLES: Final = frozenset({"HOME", "PI_CODING_AGENT_DIR", "PI_OFFLINE"})

# Otherwise pi would run what it finds in the workspace's `.pi` folder, or let it change the prompt.
_PLAIN: Final = ("--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """How to start pi for one session."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    fences: Fences | None
    fences_fact: Fact
    kept_in: Path | None
    """The folder in which pi stores the session; None if it is not stored."""
    is_moved: bool
    """Whether the stored session was changed to another workspace."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raise InputError if an option has an invalid value."""
    api = options.get("api", APIS[0])
    if api not in APIS:
        raise InputError("spec.type", f"`api` must be one of {', '.join(APIS)}, not {api!r}")
    for name in ("max_retries", "retry_delay_ms"):
        value = options.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError("spec.type", f"`{name}` must be an integer of at least 0, not {value!r}")


def sessions_of(host: HostRequest) -> Path:
    """Return the folder with a subfolder for each stored session. A session can write only its own subfolder."""
    return host.home / "sessions"


def lay_out(host: HostRequest, request: SessionRequest) -> Home:
    """Create a new home for a session, so that no two sessions share settings."""
    sessions = sessions_of(host)
    try:
        sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="pi-", dir=host.home))
        request.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = _settings(request.model, request.options)
        (own / "settings.json").write_bytes(msgspec.json.encode(settings))
        (own / "models.json").write_bytes(msgspec.json.encode(_models(request.model, request.options)))
        (own / "ask.js").write_bytes(resources.files("proctor_pi").joinpath("ask.js").read_bytes())
    except OSError as error:
        raise disk_error(error, path=host.home) from error
    keeping = _keeping(request, sessions)
    kept_in = keeping.folder
    # pi has no sandbox itself.
    fences = agent_fences(
        request,
        home=own,
        search_path=host.env.get("PATH", ""),
        writable=() if kept_in is None else (kept_in,),
        readable=(installation(host.program), *keeping.readable),
    )
    provider = request.model.provider if request.model.base_url is None else PROVIDER
    return Home(
        argv=(
            *("node", host.program.real_path, "--mode", "rpc", *_PLAIN, "--extension", str(own / "ask.js")),
            *("--provider", provider, "--model", request.model.name),
            *(("--no-session",) if kept_in is None else ("--session-dir", str(kept_in))),
            *keeping.words,
        ),
        env={
            "HOME": str(own),
            "PI_CODING_AGENT_DIR": str(own),
            # Otherwise it checks for updates and reports its installation.
            "PI_OFFLINE": "1",
            "TMPDIR": host.env.get("TMPDIR", str(request.tmp)),
        },
        fences=fences,
        fences_fact=fences_fact(fences, request, home=own, **({} if kept_in is None else {"sessions": kept_in})),
        kept_in=kept_in,
        is_moved=keeping.is_moved,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keeping:
    """Where a session is stored, and the stored session that it continues or forks."""

    folder: Path | None
    words: tuple[str, ...] = ()
    readable: tuple[Path, ...] = ()
    is_moved: bool = False


def _keeping(request: SessionRequest, sessions: Path) -> _Keeping:
    if request.resume is not None:
        folder = kept.folder_of(sessions, request.resume)
        file = kept.find(folder, request.resume)
        return _Keeping(folder=folder, words=("--session", str(file)), is_moved=kept.move(file, request.workspace))
    if request.fork is not None:
        file = kept.find(kept.folder_of(sessions, request.fork), request.fork)
        return _Keeping(folder=kept.new_folder(sessions), words=("--fork", str(file)), readable=(file.parent,))
    return _Keeping(folder=kept.new_folder(sessions) if request.is_persistent else None)


def _settings(model: ModelChoice, options: Mapping[str, Any]) -> dict[str, Any]:
    retry = {
        "maxRetries": options.get("max_retries"),
        "baseDelayMs": options.get("retry_delay_ms"),
        # The provider library would retry without reporting it.
        "provider": {"maxRetries": 0},
    }
    settings: dict[str, Any] = {
        "retry": {key: value for key, value in retry.items() if value is not None},
        "enableInstallTelemetry": False,
    }
    if model.key_variable is not None:
        # Otherwise pi passes its provider's key to every command it runs.
        settings["shellCommandPrefix"] = f"unset {model.key_variable}"
    return settings


def _models(model: ModelChoice, options: Mapping[str, Any]) -> dict[str, Any]:
    if model.base_url is None:
        return {"providers": {}}
    return {
        "providers": {
            PROVIDER: {
                "baseUrl": model.base_url,
                "api": options.get("api", APIS[0]),
                # The name of a variable. If no such variable is set, pi takes the name itself as the key.
                "apiKey": model.key_variable or "none",
                "models": [{"id": model.name}],
            }
        }
    }
