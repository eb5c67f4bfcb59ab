"""Many attempts at once: twenty on the real Codex in either isolation, and five hundred within every limit."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from proctor.attempt.machine import State
from proctor.campaign.watch import CampaignWatcher
from proctor.event.outcome import Outcome
from proctor.evidence.live import LiveLimit
from proctor.ids import AttemptId, RuntimeId
from tests.acceptance.many_agent import write_program
from tests.lab import Lab, jsonl, mission, report_of, runner_ref_of, say_done

TWENTY = 20
# `make chaos` does it five times.
TIMES = range(int(os.environ.get("PROCTOR_TIMES", "1")))


class OpensWhenAllAreIn(CampaignWatcher):
    """Opens a gate when so many attempts are in their turns at the same time."""

    def __init__(self, gate: Path, *, all_of: int) -> None:
        self._gate = gate
        self._all_of = all_of
        self._in_turn: set[AttemptId] = set()

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        if state is State.TURN_RUNNING:
            self._in_turn.add(attempt)
        else:
            self._in_turn.discard(attempt)
        if len(self._in_turn) == self._all_of:
            self._gate.touch()


@pytest.mark.real_agent
@pytest.mark.requirement("schedule.isolation")
@pytest.mark.requirement("attempt.fresh-session")
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize(("isolation", "processes"), [("shared", 1), ("process", TWENTY)])
def test_twenty_native_attempts_at_once_all_succeed_in_sessions_of_their_own(
    lab: Lab, tmp_path: Path, isolation: str, processes: int, time: int
) -> None:
    gate = tmp_path / "gate"
    waits = f"until [ -e {gate} ]; do sleep 0.1; done"
    missions = [
        mission(
            f"m{number:02}",
            {"run": {"command": f"{waits}; echo mark-{number:02} | tee mine.txt", "wait": "60s"}},
            say_done(f"mark-{number:02}"),
            expect={"outcome": "completed", "answer": f"mark-{number:02}", "workspace": {"only": ["mine.txt"]}},
        )
        for number in range(TWENTY)
    ]
    spec = lab.write_spec(missions, flow={"isolation": isolation}, schedule={"parallel": TWENTY})
    result = lab.run(spec, watcher=OpensWhenAllAreIn(gate, all_of=TWENTY))

    assert gate.exists(), "all were in their turns at the same time"
    attempts = lab.attempts()
    assert sorted(attempts) == [f"m{number:02}.codex.r1.1" for number in range(TWENTY)]
    reports = [report_of(paths) for paths in attempts.values()]
    assert [(report.outcome, report.expectation.met) for report in reports] == [(Outcome.COMPLETED, True)] * TWENTY
    refs = [runner_ref_of(paths) for paths in attempts.values()]
    assert len({ref.session_id for ref in refs}) == len({ref.thread_id for ref in refs}) == TWENTY
    assert len({ref.process_id for ref in refs}) == processes
    for name, paths in attempts.items():
        [call] = jsonl(paths.tool_calls)
        # Not what the call printed: of a command that ends at once a busy Codex now and then tells no output.
        assert (call["ok"], f"+mark-{name[1:3]}\n" in paths.workspace_diff.read_text()) == (True, True)
    assert result.how == "done"
    lab.assert_all_evidence_is_valid()


# ── five hundred ──

LIMITS = {
    "all": 64,
    "runtime:codex_app_server": 44,
    "runtime:process": 24,
    "provider:alpha": 20,
    "provider:beta": 30,
}
FLOWS = {
    "alpha-one": ("codex_app_server", "alpha"),
    "alpha-two": ("codex_app_server", "alpha"),
    "beta-one": ("codex_app_server", "beta"),
    "beta-two": ("codex_app_server", "beta"),
    "command": ("process", "gamma"),
}
MISSIONS = 100


class Counts(CampaignWatcher):
    """The most at a time by each key, as the attempts themselves show it; and what the scheduler says of itself."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.pictures: list[tuple[LiveLimit, ...]] = []
        self.settled_ids: set[AttemptId] = set()
        self._now: Counter[str] = Counter()
        self._running: set[AttemptId] = set()

    def started(self, attempt: AttemptId, *, runtime_id: RuntimeId) -> None:
        self._running.add(attempt)
        for key in _keys(attempt):
            self._now[key] += 1
            self.most[key] = max(self.most[key], self._now[key])

    def state_entered(self, attempt: AttemptId, state: State) -> None:
        # From here on its agent is at rest, and its places may be another's.
        if state is State.SETTLING and attempt in self._running:
            self._running.discard(attempt)
            self._now.subtract(_keys(attempt))

    def scheduled(self, limits: tuple[LiveLimit, ...], *, waiting: int) -> None:
        self.pictures.append(limits)


def _keys(attempt: AttemptId) -> tuple[str, ...]:
    runtime_id, provider = FLOWS[attempt.split(".")[1]]
    return "all", f"runtime:{runtime_id}", f"provider:{provider}"


def counted(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """How many turns there are of whom, after each line of an agent's own log."""
    now: Counter[str] = Counter()
    for line in lines:
        sign, _, whose = line.partition(" ")
        now[whose] += 1 if sign == "+" else -1
        now["in all"] += 1 if sign == "+" else -1
        yield whose, now[whose]
        yield "in all", now["in all"]


def most_of(log: Path) -> Counter[str]:
    most: Counter[str] = Counter()
    for whose, now in counted(log.read_text().splitlines()):
        most[whose] = max(most[whose], now)
    return most


@pytest.mark.long
@pytest.mark.requirement("schedule.pool")
def test_five_hundred_attempts_at_sixty_four_keep_every_limit_at_every_instant(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.is_other_agent_allowed = True
    turns, commands = tmp_path / "turns.log", tmp_path / "commands.log"
    monkeypatch.setenv("PROCTOR_CODEX", str(write_program(tmp_path / "codex", log=turns)))
    for provider in ("ALPHA", "BETA", "GAMMA"):
        monkeypatch.setenv(f"{provider}_API_KEY", f"no-key-of-{provider}")
    shell = f"""read -rd '' prompt; echo '+ gamma' >> {commands}; sleep 0.05; echo '- gamma' >> {commands}
        echo 'PROCTOR-RESULT: {{"done": true, "answer": ""}}'"""
    flows = [
        {
            "id": flow,
            "runtime": [runtime_id],
            "model": {"provider": provider, "name": "none", "base_url": f"http://127.0.0.1:1/{provider}"},
            "login": "api-key",
            **({"contain": "none", "options": {"process": {"command": shell}}} if runtime_id == "process" else {}),
        }
        for flow, (runtime_id, provider) in FLOWS.items()
    ]
    spec = lab.write_spec(
        [mission(f"m{number}") for number in range(MISSIONS)],
        flows=flows,
        schedule={
            "parallel": LIMITS["all"],
            "runtimes": {key.partition(":")[2]: most for key, most in LIMITS.items() if key.startswith("runtime:")},
            "providers": {key.partition(":")[2]: most for key, most in LIMITS.items() if key.startswith("provider")},
        },
    )
    counts = Counts()
    result = lab.run(spec, watcher=counts)

    assert len(result.attempts) == len(FLOWS) * MISSIONS == 500
    assert {each.summary.outcome for each in result.attempts if each.summary is not None} == {Outcome.COMPLETED}
    # As the attempts show it: never above a limit, and up to those that come first, so that no slot was left idle.
    assert all(counts.most[key] <= most for key, most in LIMITS.items())
    for key in ("all", "runtime:codex_app_server", "provider:alpha"):
        assert counts.most[key] == LIMITS[key]
    # As the scheduler says it.
    told = {limit.key: limit for picture in counts.pictures for limit in picture}
    assert {key: told[key].maximum for key in LIMITS} == LIMITS
    assert all(
        limit.taken <= limit.current_maximum <= limit.maximum for picture in counts.pictures for limit in picture
    )
    # As the agents themselves count it.
    agents = most_of(turns)
    assert agents["alpha"] <= LIMITS["provider:alpha"]
    assert agents["beta"] <= LIMITS["provider:beta"]
    assert agents["in all"] <= LIMITS["runtime:codex_app_server"]
    assert most_of(commands)["gamma"] <= LIMITS["runtime:process"]
    for log, whole in ((turns, 400), (commands, 100)):
        assert sum(line.startswith("+") for line in log.read_text().splitlines()) == whole
