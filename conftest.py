"""Loads the check of the test tiers, the reset of signals and the settings of garbage collection, for all tests."""

pytest_plugins = ("tests.tiers", "tests.background", "tests.garbage")
