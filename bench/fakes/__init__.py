"""Fake agents for benchmarks. Each sends 30 frames of an agent's protocol; they never prove that a runtime works."""
