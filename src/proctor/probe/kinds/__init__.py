"""The registry of probe kinds. A new kind is a file in this folder and a line below."""

from typing import Final

from proctor.probe.kind import LayOut, ProbeKind
from proctor.probe.kinds import (
    api_smoke,
    browser_smoke,
    headless_run,
    import_smoke,
    output_fixture_diff,
    render_hash,
    side_effect,
    sim_trace,
    stdout_golden,
    test_suite_parity,
    unit_tests,
)
from proctor.probe.suite_run import lay_out_suite

KINDS: Final[dict[str, ProbeKind]] = {
    "api_smoke": api_smoke.judge,
    "browser_smoke": browser_smoke.judge,
    "headless_run": headless_run.judge,
    "import_smoke": import_smoke.judge,
    "output_fixture_diff": output_fixture_diff.judge,
    "render_hash": render_hash.judge,
    "side_effect": side_effect.judge,
    "sim_trace": sim_trace.judge,
    "stdout_golden": stdout_golden.judge,
    "test_suite_parity": test_suite_parity.judge,
    "unit_tests": unit_tests.judge,
}
LAYOUTS: Final[dict[str, LayOut]] = {
    "output_fixture_diff": output_fixture_diff.lay_out,
    "render_hash": render_hash.lay_out,
    "side_effect": side_effect.lay_out,
    "test_suite_parity": lay_out_suite,
    "unit_tests": lay_out_suite,
}
"""How kinds change the view before they run. The others run on the workspace as it is."""
