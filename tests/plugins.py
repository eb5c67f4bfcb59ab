"""Packages as pip leaves them, in a folder of the test's own: what another author's runtime looks like to Proctor."""

from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path,
    distribution: str,
    *,
    points: Mapping[str, str],
    modules: Mapping[str, str],
    dialects: Mapping[str, str] | None = None,
    probes: Mapping[str, str] | None = None,
    engines: Mapping[str, str] | None = None,
) -> None:
    """A distribution with its entry points, runtime id → `module:object`. The folder must be on the path."""
    about = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    groups = {
        "proctor.runtimes": points,
        "proctor.dialects": dialects or {},
        "proctor.probes": probes or {},
        "proctor.engines": engines or {},
    }
    lines = [f"[{group}]\n" + "".join(f"{id_} = {value}\n" for id_, value in groups[group].items()) for group in groups]
    (about / "entry_points.txt").write_text("\n".join(lines))
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)


LIKE_CODEX = """
from proctor.runtime.codex_app_server import CodexAppServer


class Like(CodexAppServer):
    id = "{id}"


RUNTIME = Like()
"""
"""The real Codex app-server under another id."""
