"""Programs that say 30 frames of an agent's wire and think nothing: only for benchmarks, never a proof of a runtime."""
