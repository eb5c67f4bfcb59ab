"""Kinds of probe that installed packages offer by entry point. A plugin is imported only if the config names it."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, Final, Protocol

from proctor.config.model import Config
from proctor.config.plugins import find_missing_member, offers_of
from proctor.ids import RuntimeId
from proctor.spec.probe_options import ProbeOptions
from proctor.spec.task_classes import known_kinds

GROUP: Final = "proctor.probes"
"""The group of entry points that name kinds of probe. An entry point has the name of its kind."""


class ProbePlugin(Protocol):
    """One kind of probe. It may also have `lay_out`, a `proctor.probe.kind.LayOut`."""

    spec: type[ProbeOptions]
    """The keys of the kind: a frozen struct with `tag_field="kind"`, whose tag is the name of the entry point."""

    def judge(self, spec: Any, workspace: Any, /) -> Awaitable[Any]:
        """Judge the workspace: a `proctor.probe.kind.ProbeKind`."""
        ...


# Plugins that a config of this process names, by their struct: what runs a probe has no config.
_admitted: Final[dict[type, ProbePlugin]] = {}


def find_plugin_kind(kind: str, config: Config) -> type[ProbeOptions] | None:
    """Import the plugin for a kind of probe and return its struct; None if no package offers the kind.

    Raises InputError if the config does not name the plugin. Raises MachineError if it cannot be used.
    """
    offer = offers_of(GROUP).get(RuntimeId(kind))
    if offer is None or kind in known_kinds():
        return None
    plugin: ProbePlugin = offer.load(config, find_problem=partial(_find_problem, kind=kind))
    _admitted[plugin.spec] = plugin
    return plugin.spec


def plugin_of(spec: ProbeOptions) -> ProbePlugin | None:
    """Return the plugin that judges a probe; None if its kind is built in, or no config named the plugin."""
    return _admitted.get(type(spec))


def _find_problem(loaded: Any, kind: str) -> str | None:
    """Return why an object does not satisfy `ProbePlugin`, without calling any of its methods."""
    if not hasattr(loaded, "spec"):
        return "it has no `spec`"
    if (problem := find_missing_member(loaded, ProbePlugin)) is not None:
        return problem
    if not isinstance(loaded.spec, type) or not issubclass(loaded.spec, ProbeOptions):
        return "its `spec` is not a struct that derives from ProbeOptions"
    config = loaded.spec.__struct_config__
    if (config.tag_field, config.tag) != ("kind", kind):
        return f'its `spec` does not have tag_field="kind" and tag="{kind}"'
    if not config.frozen or not config.forbid_unknown_fields:
        return "its `spec` is not frozen, or accepts unknown keys"
    return None if callable(getattr(loaded, "lay_out", print)) else "its `lay_out` is not callable"
