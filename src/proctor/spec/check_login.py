"""Check the logins and variables of a decoded spec. Each error names its file, line and key."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from proctor.errors import InputError
from proctor.spec.campaign_options import SecretFile
from proctor.spec.choices import SCRIPTED, Isolation, Login
from proctor.spec.literal import looks_secret
from proctor.spec.model import CampaignSpec, FlowSpec, ModelSpec
from proctor.spec.source_file import SourceFile
from proctor.spec.tree import child_path

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MODEL_VARIABLES: Final = (
    *("OPENAI_*KEY", "OPENAI_*TOKEN*", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "ANTHROPIC_*", "CLAUDE_CODE_*TOKEN"),
    *("GEMINI_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY", "COHERE_API_KEY"),
    *("OPENROUTER_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "CEREBRAS_API_KEY", "PERPLEXITY_API_KEY"),
    *("HF_TOKEN", "COPILOT_*TOKEN", "CURSOR_API_KEY"),
)
"""Patterns of variables with a model's credential, which only a flow's `login` passes to an agent."""


def key_variable(provider: str) -> str:
    """Return the variable in Proctor's environment that contains a provider's API key.

    >>> key_variable("my-host")
    'MY_HOST_API_KEY'
    """
    return f"{re.sub(r'[^A-Za-z0-9]', '_', provider).upper()}_API_KEY"


def is_model_credential(variable: str, spec: CampaignSpec) -> bool:
    """Return whether a variable is the credential of a known provider, or of one that the spec names."""
    providers = {(flow.model or spec.model).provider for flow in spec.flows}
    spec_variables = map(key_variable, providers - {SCRIPTED})
    return variable in spec_variables or any(fnmatchcase(variable, pattern) for pattern in MODEL_VARIABLES)


def inherited_key(spec: CampaignSpec, at: int, key: str) -> str:
    """Return the key of a flow's setting: the campaign's key if only the campaign sets it, else the flow's."""
    is_for_all = getattr(spec.flows[at], key) is None and getattr(spec, key) not in (None, Login.NONE, ModelSpec())
    return key if is_for_all else f"flows[{at}].{key}"


def login_errors(source_file: SourceFile[CampaignSpec]) -> Iterator[InputError]:
    """Yield the errors in each flow's combination of model, login and token."""
    spec = source_file.value
    yield from _token_errors(source_file, "token", spec.token)
    for at, flow in enumerate(spec.flows):
        yield from _token_errors(source_file, f"flows[{at}].token", flow.token)
        yield from _flow_errors(source_file, at, flow)


def _token_errors(
    source_file: SourceFile[CampaignSpec], key: str, token: str | SecretFile | None
) -> Iterator[InputError]:
    # A value that looks like a secret is reported as a literal secret.
    if isinstance(token, str) and not VARIABLE.fullmatch(token) and not looks_secret(token, name="token"):
        yield _not_a_variable(source_file, key)


def _flow_errors(source_file: SourceFile[CampaignSpec], at: int, flow: FlowSpec) -> Iterator[InputError]:
    spec = source_file.value
    model, login, token = flow.model or spec.model, flow.login or spec.login, flow.token or spec.token
    if flow.token is not None and login is not Login.TOKEN:
        suggestion = "Write `login: token`, or remove `token`."
        yield source_file.error(
            "spec.unsupported",
            f"`token` has no effect with `login: {login.value}`",
            key=f"flows[{at}].token",
            suggestion=suggestion,
        )
    if model.provider == SCRIPTED:
        return
    where = inherited_key(spec, at, "login")
    if not model.name:
        what = f"the provider `{model.provider}` needs `model.name`"
        yield source_file.error("spec.missing-key", what, key=f"{inherited_key(spec, at, 'model')}.name")
    if login is Login.NONE:
        variable = key_variable(model.provider)
        yield source_file.error(
            "policy.login",
            f"the provider `{model.provider}` needs a login, and this is `login: none`",
            key=where,
            suggestion=f"Write `login: api-key` and set {variable}, or write `login: inherit` to use your own login.",
        )
    if login is Login.TOKEN and token is None:
        suggestion = "Add `token:` with the name of the variable that contains the token, or `token: {file: …}`."
        yield source_file.error(
            "spec.missing-key", "`login: token` needs the key `token`", key=f"flows[{at}].token", suggestion=suggestion
        )
    if login is Login.INHERIT and flow.isolation is not Isolation.SHARED:
        yield source_file.error(
            "spec.unsupported",
            "`login: inherit` works with one process only: a second would renew the login and invalidate the first's",
            key=f"flows[{at}].isolation",
            suggestion="Write `isolation: shared`, or use another login.",
        )


def variable_errors(source_file: SourceFile[CampaignSpec], key: str, flow: FlowSpec) -> Iterator[InputError]:
    """Yield an error for each invalid variable name, and for each variable in both `env` and `forward`."""
    for name in flow.env:
        if not VARIABLE.fullmatch(name):
            where = child_path(f"{key}.env", name)
            yield source_file.error("spec.type", f"`{name}` is not a valid variable name", key=where)
    for at, name in enumerate(flow.forward):
        where = f"{key}.forward[{at}]"
        if not VARIABLE.fullmatch(name):
            yield _not_a_variable(source_file, where)
        elif name in flow.env:
            yield source_file.error("spec.duplicate-key", f"`{name}` is also set in `env`", key=where)


def _not_a_variable(source_file: SourceFile[CampaignSpec], key: str) -> InputError:
    # The value may be a secret, so the message does not repeat it.
    what = "this is not the name of an environment variable"
    return source_file.error("spec.type", what, key=key, suggestion="Write the variable's name alone, without `$`.")
