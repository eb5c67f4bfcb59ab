"""Run the conformance suite on every runtime and write the compatibility page of a checkout (`make matrix`)."""

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proctor.evidence.layout import render_artifact
from proctor.runtime.registry import runtime_by_id, runtime_ids
from proctor.surface.matrix import matrix, render_markdown
from proctor.surface.prove import prove
from proctor.testing.conformance.subject import isolations_of

PAGE = Path("docs/reference/matrix.md")
FIGURES = PAGE.with_suffix(".json")


def write(checkout: Path, plugins: Sequence[str]) -> None:
    """Run every case on our runtimes and on these plugins, then write the page and its figures."""
    checkout = checkout.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # Plugins are those that the config of the current folder names.
        Path("proctor.toml").write_text(f"plugins = {msgspec.json.encode(plugins).decode()}\n", encoding="utf-8")
        for runtime_id in runtime_ids():
            runtime = runtime_by_id(runtime_id)
            for transport in runtime.transports:
                for isolation in isolations_of(runtime):
                    proven = prove(runtime_id, folder=Path(folder), transport=transport, isolation=isolation.value)
                    print(runtime_id, transport, isolation.value, proven.exit.name, file=sys.stderr)
        found = matrix(Path(folder))
    (checkout / FIGURES).write_bytes(render_artifact(found))
    (checkout / PAGE).write_text(render_markdown(found), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2:])
