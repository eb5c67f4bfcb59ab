"""What a type checker sees of the package; at run time it is imported when it is first used."""

from proctor.api import *  # noqa: F403

__version__: str
