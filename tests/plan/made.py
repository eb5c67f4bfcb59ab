"""Parts of plans, made for tests."""

from proctor.plan.model import Schedule

SCHEDULE = Schedule(
    parallel=4,
    runtimes={},
    providers={},
    per_credential=None,
    start_interval_ms=0,
    retries=2,
    backoff_ms=2000,
    longest_wait_ms=6 * 3600 * 1000,
    mission_ms=None,
    campaign_ms=None,
    usd=None,
)
