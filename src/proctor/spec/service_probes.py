"""Structs of a spec: probes that run a service or a command and look at what it does to its surroundings."""

from proctor.spec.argv import argv_of
from proctor.spec.struct import Command, Duration, Spec


class ServiceSpec(Spec, frozen=True, kw_only=True):
    """`service`: how a service is started and stopped."""

    start: Command
    """The command that starts the service: a list is argv, a string is run with `bash -c`. `{port}` is replaced by the
    port that it must listen on, which is also in the variable PORT."""

    ready: Duration = "10s"
    """How long it may take until the port accepts connections. Default 10 s."""

    stop: Duration = "5s"
    """How long it may take to exit after SIGTERM. Default 5 s."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line that starts the service."""
        return argv_of(self.start)
