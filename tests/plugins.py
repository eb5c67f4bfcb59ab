"""Packages as pip leaves them, in a folder of the test's own: what another author's runtime looks like to Proctor."""

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, distribution: str, *, points: Mapping[str, str], modules: Mapping[str, str]) -> None:
    """A distribution with its entry points, runtime id → `module:object`. The folder must be on the path."""
    about = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{id_} = {value}" for id_, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[proctor.runtimes]", *lines, ""]))
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)


LIKE_CODEX = """
from proctor.runtime.codex_app_server import CodexAppServer


class Like(CodexAppServer):
    id = "{id}"


RUNTIME = Like()
"""
"""The real Codex app-server under another id."""
