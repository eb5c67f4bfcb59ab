"""The suite that checks a context engine: `check_engine(create)` runs it and returns a report.

An author's test is `assert not check_engine(create).failures`.
"""

from proctor.evidence.proofs import Result
from proctor.testing.engines.engine_case import EngineCase, EngineReport, EngineVerdict
from proctor.testing.engines.engine_suite import check_engine, engine_cases

__all__ = ["EngineCase", "EngineReport", "EngineVerdict", "Result", "check_engine", "engine_cases"]
