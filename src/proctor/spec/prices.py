"""The price file, which says what a model's tokens cost. Proctor has no built-in prices."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Final, Literal

from msgspec import Meta

from proctor.errors import InputError
from proctor.event.model import Tokens
from proctor.spec.choices import SCRIPTED
from proctor.spec.model import CampaignSpec, ModelSpec
from proctor.spec.source_file import SourceFile, decode_bytes
from proctor.spec.struct import Spec, Text
from proctor.spec.suggest import nearest

Usd = Annotated[float, Meta(ge=0, le=1_000_000)]

_TOKENS_PER_PRICE: Final = 1_000_000
_MAX_TOKENS: Final = 2**53


class Price(Spec, frozen=True, kw_only=True):
    """The price of a model's tokens, in US dollars per million tokens."""

    input: Usd
    """Price of input tokens."""

    output: Usd
    """Price of output tokens."""

    cached_input: Usd | None = None
    """Price of cached input tokens. Default: that of `input`."""


class Prices(Spec, frozen=True, kw_only=True):
    """A whole price file."""

    version: Literal[1]
    """Version of the format: 1."""

    since: date
    """The day from which the prices are valid."""

    models: Annotated[dict[Text, Price], Meta(min_length=1)]
    """The prices, by `provider/name` of the model."""

    def usd(self, model: str, tokens: Tokens | None) -> float | None:
        """Return the cost in US dollars; None without a price, or if the tokens are unknown or impossible.

        >>> prices = Prices(version=1, since=date(2026, 11, 1), models={"a/b": Price(input=2, output=10)})
        >>> prices.usd("a/b", Tokens(input=500_000, output=100_000, total=600_000))
        2.0
        >>> prices.usd("a/c", Tokens(input=1, output=1, total=2)) is prices.usd("a/b", None) is None
        True
        >>> prices.usd("a/b", Tokens(input=10**400, output=0, total=10**400))
        """
        price = self.models.get(model)
        if price is None or tokens is None or not _is_plausible(tokens):
            return None
        if price.cached_input is None or price.cached_input == price.input:
            return (tokens.input * price.input + tokens.output * price.output) / _TOKENS_PER_PRICE
        if tokens.cached_input is None:
            return None
        uncached = tokens.input - tokens.cached_input
        cost = uncached * price.input + tokens.cached_input * price.cached_input + tokens.output * price.output
        return cost / _TOKENS_PER_PRICE


def _is_plausible(tokens: Tokens) -> bool:
    """Return whether numbers of tokens are possible. An agent may report any number."""
    return 0 <= (tokens.cached_input or 0) <= tokens.input <= _MAX_TOKENS and 0 <= tokens.output <= _MAX_TOKENS


def price_key(provider: str, name: str | None) -> str:
    """Return the key of a model in a price file.

    >>> price_key("openai", "gpt-x"), price_key("scripted", None)
    ('openai/gpt-x', 'scripted')
    """
    return f"{provider}/{name}" if name else provider


def usd_of(prices: Prices | None, *, provider: str, name: str | None, tokens: Tokens | None) -> float | None:
    """Return the cost of tokens in US dollars; None if unknown. The scripted model is free."""
    if is_free(prices, provider=provider, name=name):
        return None if tokens is None else 0.0  # a command may have used another model without reporting it
    return None if prices is None else prices.usd(price_key(provider, name), tokens)


def is_free(prices: Prices | None, *, provider: str, name: str | None) -> bool:
    """Return whether a model's tokens are free: the scripted model, unless it has a price.

    >>> is_free(None, provider="scripted", name=None), is_free(None, provider="openai", name="gpt-x")
    (True, False)
    """
    return provider == SCRIPTED and (prices is None or price_key(provider, name) not in prices.models)


def decode_prices(data: bytes, *, file: str) -> Prices:
    """Decode a price file. Raises InputError with all errors, at `file`."""
    return decode_bytes(data, Prices, file=file).value


def price_errors(source_file: SourceFile[CampaignSpec], prices: Prices | None) -> Iterator[InputError]:
    """Yield an error if `limits.usd` cannot be enforced for lack of prices."""
    spec = source_file.value
    if spec.limits.usd is None:
        return
    if spec.prices is None:
        suggestion = "Add `prices:` with the path of a price file, or remove the limit."
        what = "`limits.usd` needs the key `prices`"
        yield source_file.error("spec.missing-key", what, key="limits.usd", suggestion=suggestion)
    if prices is None:
        return
    for at, flow in enumerate(spec.flows):
        model: ModelSpec = flow.model or spec.model
        key = price_key(model.provider, model.name)
        if model.provider != SCRIPTED and key not in prices.models:
            close = nearest(key, prices.models)
            hint = f"Did you mean `{close}`?" if close else f"Add `{key}` to {spec.prices}."
            what = f"`limits.usd` needs the price of `{key}`, which {spec.prices} does not have"
            where = "model" if flow.model is None else f"flows[{at}].model"
            yield source_file.error("spec.missing-key", what, key=where, suggestion=hint)
