"""Price files: dated, in dollars a million tokens; what is not known costs nobody knows what."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from proctor.event.model import Tokens
from proctor.spec.load import load_spec
from proctor.spec.prices import Price, Prices, decode_prices
from tests.spec.good import write

Told: TypeAlias = Callable[[Callable[[], object]], list[Any]]

PRICES = """\
version: 1
since: 2026-11-01
models:
  "openai/gpt-x": {input: 1.25, cached_input: 0.125, output: 10}
  local/llama: {input: 0, output: 0}
"""
SPEC = """\
version: 1
campaign: night
missions: [{id: a, prompt: A, script: say.yaml}]
flows:
  - {id: scripted, runtime: [one]}
  - {id: real, runtime: [one], login: api-key, model: {provider: openai, name: gpt-x}}
limits: {usd: 5}
prices: prices.yaml
"""


def read_prices(folder: Path) -> Prices:
    return decode_prices((folder / "prices.yaml").read_bytes(), file="prices.yaml")


def test_a_price_file_says_what_tokens_cost_and_since_when(folder: Path) -> None:
    (folder / "prices.yaml").write_text(PRICES)
    assert read_prices(folder) == Prices(
        version=1,
        since=date(2026, 11, 1),
        models={
            "openai/gpt-x": Price(input=1.25, cached_input=0.125, output=10),
            "local/llama": Price(input=0, output=0),
        },
    )


@pytest.mark.parametrize(
    ("model", "tokens", "usd"),
    [
        ("openai/gpt-x", Tokens(input=1_000_000, output=0, total=1_000_000, cached_input=0), 1.25),
        ("openai/gpt-x", Tokens(input=1_000_000, output=0, total=1_000_000, cached_input=1_000_000), 0.125),
        ("openai/gpt-x", Tokens(input=400_000, output=100_000, total=500_000, cached_input=200_000), 1.275),
        # How much of the input was cached nobody has said, and it matters here.
        ("openai/gpt-x", Tokens(input=400_000, output=100_000, total=500_000), None),
        # More was cached than there was, which an agent may say and nobody can be charged for.
        ("openai/gpt-x", Tokens(input=1, output=0, total=1, cached_input=1_000_000), None),
        ("local/llama", Tokens(input=400_000, output=100_000, total=500_000), 0.0),
        ("openai/gpt-y", Tokens(input=1, output=1, total=2, cached_input=0), None),
        ("openai/gpt-x", None, None),
    ],
)
def test_what_an_attempt_cost(folder: Path, model: str, tokens: Tokens | None, usd: float | None) -> None:
    (folder / "prices.yaml").write_text(PRICES)
    cost = read_prices(folder).usd(model, tokens)
    assert cost == (None if usd is None else pytest.approx(usd))


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "what"),
    [
        ("2026-11-01", "2026-13-01", 2, "since", "expected a date, as in 2026-11-01, found a string"),
        ("2026-11-01", "today", 2, "since", "expected a date, as in 2026-11-01, found a string"),
        ("input: 1.25", "input: -1", 4, 'models["openai/gpt-x"].input', "expected a number >= 0.0, found -1"),
        (
            "input: 1.25",
            "input: 1.0e+308",
            4,
            'models["openai/gpt-x"].input',
            "expected a number <= 1000000.0, found 1e+308",
        ),
        ("input: 1.25, ", "", 4, 'models["openai/gpt-x"].input', "required key `input` is missing"),
        ("output: 10", "outptu: 10", 4, 'models["openai/gpt-x"].outptu', "unknown key `outptu`"),
    ],
)
def test_what_is_wrong_in_a_price_file_is_told_with_its_line(
    folder: Path, told: Told, old: str, new: str, line: int, key: str, what: str
) -> None:
    (folder / "prices.yaml").write_text(PRICES.replace(old, new, 1))
    found = told(lambda: load_spec(write(folder, SPEC)))
    assert [each[1:4] for each in found] == [(line, key, what)]


def test_a_budget_that_has_its_prices_is_taken(folder: Path) -> None:
    (folder / "prices.yaml").write_text(PRICES)
    loaded = load_spec(write(folder, SPEC))
    assert (loaded.prices, list(loaded.sources)) == (read_prices(folder), ["prices.yaml"])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "prices: prices.yaml\n",
            "",
            (
                "spec.missing-key",
                7,
                "limits.usd",
                "`limits.usd` needs the key `prices`",
                "Add `prices:` with the path of a price file, or remove the limit.",
            ),
        ),
        (
            "name: gpt-x",
            "name: gpt-y",
            (
                "spec.missing-key",
                6,
                "flows[1].model",
                "`limits.usd` needs the price of `openai/gpt-y`, which prices.yaml does not have",
                "Did you mean `openai/gpt-x`?",
            ),
        ),
        (
            "prices: prices.yaml",
            "prices: price.yaml",
            ("spec.missing-file", 8, "prices", "`price.yaml` does not exist", "Did you mean `prices.yaml`?"),
        ),
    ],
)
def test_a_budget_without_its_prices_is_refused(
    folder: Path, told: Told, old: str, new: str, fault: tuple[Any, ...]
) -> None:
    (folder / "prices.yaml").write_text(PRICES)
    assert told(lambda: load_spec(write(folder, SPEC.replace(old, new)))) == [fault]
