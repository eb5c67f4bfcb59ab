"""The entry point of the `proctor` command, which answers --version before it imports anything slow."""

import gc
import sys

from proctor import __version__

# Python's default of 700 scans too often: modules, rows and events are created by the thousand and contain no cycles.
_GC_AFTER = 100_000


def main() -> None:
    """Run the command line. The exit status is one of `errors.Exit`."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"proctor {__version__}\n")
        return
    try:
        relax_gc()
        # Imported here so that --version starts as fast as the interpreter.
        from proctor.surface.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # errors.Exit.INTERRUPTED, which may not be imported yet


def relax_gc() -> None:
    """Run the garbage collector less often. Only for a process that runs Proctor alone."""
    gc.set_threshold(_GC_AFTER, 10, 10)


if __name__ == "__main__":
    main()
