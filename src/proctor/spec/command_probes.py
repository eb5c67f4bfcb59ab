"""Structs of a spec: probes that run commands and compare what they print or write."""

from proctor.spec.argv import argv_of
from proctor.spec.probe_options import ExitCode, ProbeOptions
from proctor.spec.struct import Command, Duration


class HeadlessRun(ProbeOptions, tag_field="kind", tag="headless_run", frozen=True, kw_only=True):
    """A probe that runs a command in a view of the workspace."""

    command: Command
    """The command: a list is argv, a string is run with `bash -c`."""

    stdout: str | None = None
    """Standard output that passes, compared byte for byte. Default: not compared."""

    exit: ExitCode = 0
    """Exit status that passes, 0 to 255. Default 0."""

    timeout: Duration = "30s"
    """Longest duration; the probe fails after it. Default 30 s."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> HeadlessRun(command="make test").argv
        ('bash', '-c', 'make test')
        """
        return argv_of(self.command)

    @property
    def expected_values(self) -> tuple[str, ...]:
        return () if self.stdout is None else (self.stdout,)
