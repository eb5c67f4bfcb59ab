"""The registry of probe kinds. A new kind is a file in this folder and a line below."""

from typing import Final

from proctor.probe.kind import LayOut, ProbeKind
from proctor.probe.kinds import headless_run, test_suite_parity, unit_tests
from proctor.probe.suite import lay_out_suite

KINDS: Final[dict[str, ProbeKind]] = {
    "headless_run": headless_run.judge,
    "unit_tests": unit_tests.judge,
    "test_suite_parity": test_suite_parity.judge,
}
LAYOUTS: Final[dict[str, LayOut]] = {
    "unit_tests": lay_out_suite,
    "test_suite_parity": lay_out_suite,
}
"""How kinds change the view before they run. The others run on the workspace as it is."""
