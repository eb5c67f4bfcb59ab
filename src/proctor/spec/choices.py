"""The choices of a flow that evidence records too. Reading evidence imports them without the rest of a spec."""

from enum import StrEnum

SCRIPTED = "scripted"
"""The provider that plays the mission's script."""


class Isolation(StrEnum):
    """Whether attempts share an agent process."""

    SHARED = "shared"
    """One agent process for all attempts of the flow."""

    PROCESS = "process"
    """A separate agent process for each attempt."""


class Sandbox(StrEnum):
    """The agent's own sandbox."""

    READ_ONLY = "read-only"
    """The agent may not write files."""

    WORKSPACE_WRITE = "workspace-write"
    """The agent may write inside the workspace."""

    DANGER_FULL_ACCESS = "danger-full-access"
    """The agent has no sandbox."""


class Approvals(StrEnum):
    """How the agent's requests for approval are answered."""

    DENY = "deny"
    """Deny every request. The agent can still ask, so that each denial is recorded."""

    ACCEPT = "accept"
    """Accept every request."""

    WORKSPACE = "workspace"
    """Accept changes inside the workspace, and deny everything else."""

    ASK = "ask"
    """Ask the person at the terminal or a callback. No answer before the deadline is a denial."""


class Login(StrEnum):
    """Where a real model's credential comes from."""

    NONE = "none"
    """No credential. Only the scripted model works without one."""

    API_KEY = "api-key"
    """The provider's variable in Proctor's environment, such as OPENAI_API_KEY."""

    INHERIT = "inherit"
    """The user's own login to the agent program."""

    TOKEN = "token"  # noqa: S105
    """The variable or file that `token` names."""


class Profile(StrEnum):
    """Whose settings, hooks and servers the agent uses."""

    FRESH = "fresh"
    """A new home folder with only Proctor's settings."""

    MINE = "mine"
    """The user's home folder and settings."""


class Persistence(StrEnum):
    """Whether the agent stores the thread."""

    EPHEMERAL = "ephemeral"
    """It does not."""

    PERSISTENT = "persistent"
    """It does, so that the thread can be read back and resumed."""
