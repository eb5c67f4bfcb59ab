"""The `proctor` command. Answers --version before anything heavy is imported."""

import sys

from proctor import __version__


def main() -> None:
    """Run the command line; exits with the codes of errors.Exit."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"proctor {__version__}\n")
        return
    try:
        # Imported here so that --version costs no more than the interpreter.
        from proctor.surface.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # errors.Exit.INTERRUPTED, which may not be there yet


if __name__ == "__main__":
    main()
