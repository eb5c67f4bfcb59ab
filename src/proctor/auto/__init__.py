"""`proctor auto`: rounds of work on one goal until a probe verifies it, a budget ends, or nothing gets better.

Public: `model` (the rows of rounds.jsonl), `state` (their fold), `rounds_log` (the file).
"""
