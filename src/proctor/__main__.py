"""The `proctor` command. Answers --version before anything heavy is imported."""

import gc
import sys

from proctor import __version__

# Modules, rows and events come by the thousand and hold no cycles: looking for some after every 700 finds little.
_GC_AFTER = 20_000


def main() -> None:
    """Run the command line; exits with the codes of errors.Exit."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"proctor {__version__}\n")
        return
    try:
        collect_seldom()
        # Imported here so that --version costs no more than the interpreter.
        from proctor.surface.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # errors.Exit.INTERRUPTED, which may not be there yet


def collect_seldom() -> None:
    """For a process that is ours alone."""
    gc.set_threshold(_GC_AFTER, 10, 10)


if __name__ == "__main__":
    main()
