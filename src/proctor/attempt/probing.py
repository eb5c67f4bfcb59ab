"""Runs the probes of a mission on a workspace, one after the other: before the agent, after it, or without one."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from proctor.clock import SYSTEM_CLOCK, Clock
from proctor.contain.intent import IntentLog
from proctor.contain.ladder import Containment
from proctor.evidence.redact import Redactor
from proctor.probe.kind import HiddenFiles, ProbeReference, UntouchedTree
from proctor.probe.model import Phase, ProbeRow
from proctor.probe.run import run_probe
from proctor.probe.view import examine_subject
from proctor.spec.model import MissionSpec
from proctor.workspace.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRunner:
    """Runs the probes of one mission, always in the same environment."""

    mission: MissionSpec
    untouched: UntouchedTree
    """The workspace before the agent started."""
    sources: Mapping[str, bytes]
    """Files of the spec that probes need, by their path as the spec has it."""
    hidden_files: HiddenFiles | None
    """The mission's hidden files; None if it has none."""
    scratch: Path
    """An existing folder for views, which the agent cannot see."""
    hidden: Sequence[Path]
    """Paths that a fenced probe must not see, in addition to those that are always hidden."""
    containment: Containment
    intents: IntentLog
    redactor: Redactor
    clock: Clock = SYSTEM_CLOCK
    agent_folders: Sequence[Path] | None = None
    """The only folders that the agent can write to; None if it can write wherever Proctor's user can."""
    keep: Path | None = None
    """The evidence folder for files that final probes keep; None to drop them."""
    baselines: dict[int, ProbeRow] = field(default_factory=dict)
    """The row of each probe on the untouched workspace, by the probe's index. Filled as they are run."""

    async def run(self, phase: Phase, workspace: Path, tree: Snapshot) -> AsyncGenerator[ProbeRow, None]:
        """Run every probe once on a workspace whose snapshot is `tree`, and yield the rows as they are made.

        On the untouched workspace, each guard with a mutant is then run on that too.
        """
        subject = await anyio.to_thread.run_sync(lambda: examine_subject(workspace, tree.digest, tree=tree))
        for index, spec in enumerate(self.mission.probes):
            runs: list[tuple[Phase, bytes | None]] = [(phase, None)]
            if phase is Phase.BASELINE and spec.mutant is not None:
                runs.append((Phase.MUTANT, self.sources[spec.mutant]))
            for each, patch in runs:
                row = await run_probe(
                    spec,
                    index=index,
                    phase=each,
                    subject=subject,
                    scratch=self.scratch,
                    hidden=self.hidden,
                    agent_folders=self.agent_folders,
                    reference=ProbeReference(
                        untouched=self.untouched,
                        protect=self.mission.protect,
                        sources=self.sources,
                        hidden=self.hidden_files,
                        # Run again on the untouched workspace, a probe is judged as if it had not run before.
                        baseline=None if each is Phase.BASELINE else self.baselines.get(index),
                    ),
                    patch=patch,
                    keep=self.keep if phase is Phase.FINAL else None,
                    containment=self.containment,
                    intents=self.intents,
                    redactor=self.redactor,
                    clock=self.clock,
                )
                if each is Phase.BASELINE:
                    self.baselines[index] = row
                yield row
