"""Loads the check of the test tiers, and the reset of signals, for every folder of tests."""

pytest_plugins = ("tests.tiers", "tests.background")
