"""A price file: what a model's tokens cost, and since when. Proctor has no prices of its own."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Final, Literal

from msgspec import Meta

from proctor.errors import InputError
from proctor.event.model import Tokens
from proctor.spec.marked import Marked, decode_bytes
from proctor.spec.model import SCRIPTED, CampaignSpec, ModelSpec
from proctor.spec.near import nearest
from proctor.spec.struct import Spec, Text

Usd = Annotated[float, Meta(ge=0, le=1_000_000)]

_PER: Final = 1_000_000
_MOST: Final = 2**53


class Price(Spec, frozen=True, kw_only=True):
    """US dollars for a million tokens. Input that was cached costs what other input does, unless it is said."""

    input: Usd
    output: Usd
    cached_input: Usd | None = None


class Prices(Spec, frozen=True, kw_only=True):
    """Of models by `provider/name`, as they were on a day."""

    version: Literal[1]
    since: date
    models: Annotated[dict[Text, Price], Meta(min_length=1)]

    def usd(self, model: str, tokens: Tokens | None) -> float | None:
        """None where the model has no price here, or where it is not known what was used, or told as it cannot be.

        >>> prices = Prices(version=1, since=date(2026, 11, 1), models={"a/b": Price(input=2, output=10)})
        >>> prices.usd("a/b", Tokens(input=500_000, output=100_000, total=600_000))
        2.0
        >>> prices.usd("a/c", Tokens(input=1, output=1, total=2)) is prices.usd("a/b", None) is None
        True
        >>> prices.usd("a/b", Tokens(input=10**400, output=0, total=10**400))
        """
        price = self.models.get(model)
        if price is None or tokens is None or not _can_be(tokens):
            return None
        if price.cached_input is None or price.cached_input == price.input:
            return (tokens.input * price.input + tokens.output * price.output) / _PER
        if tokens.cached_input is None:
            return None
        fresh = tokens.input - tokens.cached_input
        spent = fresh * price.input + tokens.cached_input * price.cached_input + tokens.output * price.output
        return spent / _PER


def _can_be(tokens: Tokens) -> bool:
    """Whether anybody can have used as much: an agent may say anything."""
    return 0 <= (tokens.cached_input or 0) <= tokens.input <= _MOST and 0 <= tokens.output <= _MOST


def price_key(provider: str, name: str | None) -> str:
    """How a price file calls a model.

    >>> price_key("openai", "gpt-x"), price_key("scripted", None)
    ('openai/gpt-x', 'scripted')
    """
    return f"{provider}/{name}" if name else provider


def usd_of(prices: Prices | None, *, provider: str, name: str | None, tokens: Tokens | None) -> float | None:
    """What so many tokens of a model cost. Without a price it is unknown, but scripted tokens are free."""
    if is_free(prices, provider=provider, name=name):
        return None if tokens is None else 0.0  # a command may have asked another model, and not told
    return None if prices is None else prices.usd(price_key(provider, name), tokens)


def is_free(prices: Prices | None, *, provider: str, name: str | None) -> bool:
    """Whether nobody is paid for its tokens.

    >>> is_free(None, provider="scripted", name=None), is_free(None, provider="openai", name="gpt-x")
    (True, False)
    """
    return provider == SCRIPTED and (prices is None or price_key(provider, name) not in prices.models)


def decode_prices(data: bytes, *, file: str) -> Prices:
    """InputError with all that is wrong in what was read from `file`."""
    return decode_bytes(data, Prices, file=file).value


def price_faults(marked: Marked[CampaignSpec], prices: Prices | None) -> Iterator[InputError]:
    """A budget that nothing could be held to."""
    spec = marked.value
    if spec.limits.usd is None:
        return
    if spec.prices is None:
        suggestion = "Add `prices:` with a file that says what the models' tokens cost, or take the limit out."
        what = "a budget needs prices, and there are none"
        yield marked.problem("spec.missing-key", what, key="limits.usd", suggestion=suggestion)
    if prices is None:
        return
    for at, flow in enumerate(spec.flows):
        model: ModelSpec = flow.model or spec.model
        key = price_key(model.provider, model.name)
        if model.provider != SCRIPTED and key not in prices.models:
            close = nearest(key, prices.models)
            hint = f"It has `{close}`: is that the one?" if close else f"Add it to {spec.prices}."
            what = f"`limits.usd` needs the price of {key}, and {spec.prices} has none"
            where = "model" if flow.model is None else f"flows[{at}].model"
            yield marked.problem("spec.missing-key", what, key=where, suggestion=hint)
