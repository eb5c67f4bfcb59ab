"""A campaign in a separate process: `python -m bench.campaign SPEC ROOT STATE` runs it and prints its cost.

With `--growth N` it also prints how the cost of its N attempts grew.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec

from bench.cost import Cost, Meter, in_own_process, write_cost
from bench.growth import GrowthMeter
from proctor.__main__ import relax_gc
from proctor.attempt.machine import State
from proctor.campaign.run import run_campaign
from proctor.campaign.watch import CampaignWatcher
from proctor.ids import AttemptId
from proctor.spec.load import load_spec

KEY = "BENCH_API_KEY"
PARALLEL = 16
# The largest number of repeats that a spec may have.
_MOST_REPEATS = 1000


def campaign_cost(
    folder: Path,
    *,
    spec: Mapping[str, object],
    env: Mapping[str, str],
    since: State = State.PREPARING,
    growth_of: int | None = None,
) -> Cost:
    """Return the cost of all attempts from when the first one is in that state. Evidence goes to `folder`/evidence."""
    folder.mkdir()
    file = folder / "spec.yaml"
    file.write_bytes(msgspec.json.encode(spec))  # JSON is valid YAML
    words = (
        str(file),
        str(folder / "evidence"),
        since.value,
        *(() if growth_of is None else ("--growth", str(growth_of))),
    )
    return in_own_process("bench.campaign", *words, env={KEY: "none-needed-here", **env})


def spec_of(
    attempts: int,
    *,
    isolation: str,
    runtime: str = "codex_app_server",
    base_url: str = "http://127.0.0.1:1/v1",
    flow: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return a spec with empty workspaces and no probes. This process serves no model for it."""
    missions = -(-attempts // _MOST_REPEATS)
    assert attempts % missions == 0
    return {
        "version": 1,
        "campaign": "bench",
        "missions": [{"id": f"m{number}", "prompt": "Do it."} for number in range(missions)],
        "flows": [{"id": "f", "runtime": [runtime], "isolation": isolation, **(flow or {})}],
        "model": {"provider": "bench", "name": "gpt-5", "base_url": base_url},
        "login": "api-key",
        "repeats": attempts // missions,
        "schedule": {"parallel": PARALLEL},
    }


class FromTheFirst(CampaignWatcher):
    """Starts a meter when the first attempt is in a state, so that the preflight checks are not measured."""

    def __init__(self, since: State, growth: GrowthMeter | None) -> None:
        self.meter: Meter | None = None
        self._since = since
        self._growth = growth

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if self.meter is None and state is self._since:
            self.meter = Meter()
        if self._growth is not None and state is State.SEALED:
            self._growth.ended()


def main() -> None:
    relax_gc()
    parser = argparse.ArgumentParser()
    for name in ("spec", "root", "since"):
        parser.add_argument(name)
    parser.add_argument("--growth", type=int)
    asked = parser.parse_args()
    growth = None if asked.growth is None else GrowthMeter(asked.growth)
    loaded, watcher = load_spec(Path(asked.spec)), FromTheFirst(State(asked.since), growth)
    result = anyio.run(lambda: run_campaign(loaded, root=Path(asked.root), watcher=watcher))
    assert watcher.meter is not None
    cost = watcher.meter.read()
    for attempt in result.attempts:
        assert attempt.state is State.SEALED, attempt
        assert attempt.summary is not None
        assert attempt.summary.outcome == "completed", attempt
    write_cost(cost if growth is None else msgspec.structs.replace(cost, growth=growth.read()))


if __name__ == "__main__":
    main()
