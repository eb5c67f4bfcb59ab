"""Proctor runs coding agents through their own runtimes and keeps proof of what they did."""

__version__ = "0.1.0"
