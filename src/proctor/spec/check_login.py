"""What a well-formed spec may still get wrong about logins and variables, each fault with its place."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from proctor.errors import InputError
from proctor.spec.literal import looks_secret
from proctor.spec.marked import Marked
from proctor.spec.model import SCRIPTED, CampaignSpec, FlowSpec, Isolation, Login, ModelSpec, SecretFile
from proctor.spec.tree import child_path

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MODEL_VARIABLES: Final = (
    *("OPENAI_*KEY", "OPENAI_*TOKEN*", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "ANTHROPIC_*", "CLAUDE_CODE_*TOKEN"),
    *("GEMINI_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY", "COHERE_API_KEY"),
    *("OPENROUTER_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "CEREBRAS_API_KEY", "PERPLEXITY_API_KEY"),
    *("HF_TOKEN", "COPILOT_*TOKEN", "CURSOR_API_KEY"),
)
"""The credentials of models, which only a flow's `login` hands on."""


def key_variable(provider: str) -> str:
    """The variable of ours that holds a provider's API key.

    >>> key_variable("my-host")
    'MY_HOST_API_KEY'
    """
    return f"{re.sub(r'[^A-Za-z0-9]', '_', provider).upper()}_API_KEY"


def is_of_a_model(variable: str, spec: CampaignSpec) -> bool:
    """Whether a variable is the credential of a known provider, or of one that the spec names."""
    providers = {(flow.model or spec.model).provider for flow in spec.flows}
    own = map(key_variable, providers - {SCRIPTED})
    return variable in own or any(fnmatchcase(variable, pattern) for pattern in MODEL_VARIABLES)


def inherited_key(spec: CampaignSpec, at: int, key: str) -> str:
    """Where a flow's setting is written: in the flow, or for all flows; in the flow where it is in neither."""
    is_for_all = getattr(spec.flows[at], key) is None and getattr(spec, key) not in (None, Login.NONE, ModelSpec())
    return key if is_for_all else f"flows[{at}].{key}"


def login_faults(marked: Marked[CampaignSpec]) -> Iterator[InputError]:
    """What the model, login and token of each flow come to together."""
    spec = marked.value
    yield from _token_faults(marked, "token", spec.token)
    for at, flow in enumerate(spec.flows):
        yield from _token_faults(marked, f"flows[{at}].token", flow.token)
        yield from _flow_faults(marked, at, flow)


def _token_faults(marked: Marked[CampaignSpec], key: str, token: str | SecretFile | None) -> Iterator[InputError]:
    # One that looks like a secret is told as that.
    if isinstance(token, str) and not VARIABLE.fullmatch(token) and not looks_secret(token, name="token"):
        yield _not_a_variable(marked, key)


def _flow_faults(marked: Marked[CampaignSpec], at: int, flow: FlowSpec) -> Iterator[InputError]:
    spec = marked.value
    model, login, token = flow.model or spec.model, flow.login or spec.login, flow.token or spec.token
    if flow.token is not None and login is not Login.TOKEN:
        suggestion = "Write `login: token`, or take it out."
        yield marked.problem(
            "spec.unsupported", "only `login: token` uses it", key=f"flows[{at}].token", suggestion=suggestion
        )
    if model.provider == SCRIPTED:
        return
    where = inherited_key(spec, at, "login")
    if not model.name:
        what = f"{model.provider} is a real model and needs a name"
        yield marked.problem("spec.missing-key", what, key=f"{inherited_key(spec, at, 'model')}.name")
    if login is Login.NONE:
        variable = key_variable(model.provider)
        yield marked.problem(
            "policy.login",
            f"{model.provider} is a real model and needs a login",
            key=where,
            suggestion=f"Write `login: api-key` and set {variable}; or `inherit`, to use your own login to the agent.",
        )
    if login is Login.TOKEN and token is None:
        suggestion = "Add `token:` with the name of the variable that holds it, or `token: {file: …}`."
        yield marked.problem(
            "spec.missing-key", "`login: token` needs its `token`", key=f"flows[{at}].token", suggestion=suggestion
        )
    if login is Login.INHERIT and flow.isolation is not Isolation.SHARED:
        yield marked.problem(
            "spec.unsupported",
            "one process alone may use your own login: a second would renew it behind the first one's back",
            key=f"flows[{at}].isolation",
            suggestion="Write `isolation: shared`, or another login.",
        )


def variable_faults(marked: Marked[CampaignSpec], key: str, flow: FlowSpec) -> Iterator[InputError]:
    """Names that no variable can have, and those asked for in two ways."""
    for name in flow.env:
        if not VARIABLE.fullmatch(name):
            where = child_path(f"{key}.env", name)
            yield marked.problem("spec.type", "not a name that a variable can have", key=where)
    for at, name in enumerate(flow.forward):
        where = f"{key}.forward[{at}]"
        if not VARIABLE.fullmatch(name):
            yield _not_a_variable(marked, where)
        elif name in flow.env:
            yield marked.problem("spec.duplicate-key", f"`env` sets {name} too", key=where)


def _not_a_variable(marked: Marked[CampaignSpec], key: str) -> InputError:
    # What stands there may be a secret, so it is not repeated.
    what = "not the name of an environment variable"
    return marked.problem("spec.type", what, key=key, suggestion="Write the variable's name alone, without `$`.")
