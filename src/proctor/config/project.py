"""Load a spec together with what its config adds: the only way in which commands and the library load specs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.config.load import load_config
from proctor.config.probe_plugins import find_plugin_kind
from proctor.config.task_classes import find_task_classes
from proctor.spec.load import NO_OVERRIDES, Extensions, LoadedSpec, SpecOverrides, load_built, load_spec
from proctor.spec.model import CampaignSpec
from proctor.spec.task_classes import ClassProbe, TaskClass, find_class, probes_of


def load_project_spec(path: Path, *, overrides: SpecOverrides = NO_OVERRIDES) -> LoadedSpec:
    """Load a spec file. Its config is the one for its folder. Raises InputError."""
    return load_spec(path, overrides=overrides, extensions=find_extensions(path.absolute().parent))


def load_project_built(
    built: CampaignSpec | Mapping[str, Any],
    *,
    name: str,
    folder: Path,
    overrides: SpecOverrides = NO_OVERRIDES,
    ignored_key: str = "",
) -> LoadedSpec:
    """Load a spec that was built in Python, with the config for `folder`, as `load_built` does. Raises InputError."""
    return load_built(
        built,
        name=name,
        folder=folder,
        overrides=overrides,
        ignored_key=ignored_key,
        extensions=find_extensions(folder),
    )


def probes_for_task_class(name: str) -> tuple[ClassProbe, ...]:
    """Return the probes that a task class requires: built in, or of the config of the current folder.

    Raises InputError if there is no such class, or if the config is wrong.

    >>> [each.kind for each in probes_for_task_class("data_pipeline")]
    ['headless_run', 'output_fixture_diff']
    """
    return probes_of(find_class(name, _task_classes(Path.cwd())))


def find_extensions(folder: Path) -> Extensions:
    """Return what the config for a folder adds to its specs. The config is read when it is needed."""
    return Extensions(
        task_classes=lambda: _task_classes(folder), find_kind=lambda kind: find_plugin_kind(kind, load_config(folder))
    )


def _task_classes(folder: Path) -> Mapping[str, TaskClass]:
    config = load_config(folder)
    return find_task_classes(config, find_kind=lambda kind: find_plugin_kind(kind, config))
