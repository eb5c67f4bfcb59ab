"""Loads the check of the test tiers for every folder of tests."""

pytest_plugins = ("tests.tiers",)
