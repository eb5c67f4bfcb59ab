"""Warnings of Codex: the channel says whose they are, rules only name what a line of stderr is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.event.model import WarningRaised
from proctor.event.row import Direction
from proctor.runtime.codex.warnings import CHANNELS, ERROR_ITEM, RULES, STDERR, attribute_warning
from tests.runtime.stories import Story, at

# As people have recorded them of 0.117 to 0.147; the words are in the program of 0.163 too.
SNAPSHOT = (
    '2026-04-12T17:45:47.295243Z  WARN codex_core::shell_snapshot: Failed to delete shell snapshot at "/h/.codex/x": '
    'Os { code: 2, kind: NotFound, message: "No such file or directory" }'
)
MIGRATION = (
    "2026-04-08T14:03:06Z  WARN codex_state::runtime: failed to open state db at /h/.codex/state_5.sqlite: "
    "migration 21 was previously applied but is missing in the resolved migrations"
)
PLUGINS = (
    "2026-04-23T03:38:08.103577Z  WARN codex_core::plugins::manager: failed to warm featured plugin ids cache "
    "error=remote plugin sync request to https://example.invalid/plugins/featured failed with status 403 Forbidden"
)
GROUP = "WARN codex_rmcp_client::rmcp_client: Failed to terminate MCP process group 37060: Operation not permitted"


@pytest.mark.requirement("runtime.warnings")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PLUGINS, "codex.plugin-cache/1"),
        ("WARN failed to read remote plugin cache directory /h", "codex.plugin-cache/1"),
        ("WARN failed to remove stale remote plugin cache entry /h", "codex.plugin-cache/1"),
        (MIGRATION, "codex.state-migration/1"),
        ("migration 3 was previously applied but has been modified", "codex.state-migration/1"),
        (SNAPSHOT, "codex.shell-snapshot/1"),
        ("ERROR Shell snapshot validation failed: x", "codex.shell-snapshot/1"),
        (GROUP, "codex.mcp-process-group/1"),
        ("WARN Failed to kill MCP process group 5: x", "codex.mcp-process-group/1"),
        ("Reading additional input from stdin...", None),
        ("thread/read failed while backfilling turn items for turn completion", None),
    ],
)
def test_the_classes_of_stderr_are_process_warnings_and_known_by_rule(text: str, rule: str | None) -> None:
    [warning] = Story().row(Direction.ERR, text=text)
    assert warning == WarningRaised(source="process", text=text, channel="stderr", rule=rule, **at(1))
    assert warning.is_inferred is (rule is not None)


_ALARMING = st.sampled_from([PLUGINS, MIGRATION, SNAPSHOT, GROUP, "thread/read failed", "configWarning", "history"])


@pytest.mark.requirement("runtime.warnings")
@given(st.text(max_size=40), _ALARMING, st.text(max_size=40))
def test_whatever_stands_on_stderr_is_a_process_warning(before: str, text: str, after: str) -> None:
    [warning] = Story().row(Direction.ERR, text=f"{before}{text}{after}")
    assert isinstance(warning, WarningRaised)
    assert (warning.source, warning.channel) == ("process", "stderr")


@pytest.mark.requirement("runtime.warnings")
@given(st.sampled_from(sorted(set(CHANNELS) - {STDERR, ERROR_ITEM})), st.text() | _ALARMING)
def test_a_channel_of_its_own_needs_no_rule(channel: str, text: str) -> None:
    assert attribute_warning(channel, text) == (CHANNELS[channel], None)


def test_one_channel_for_everything_is_told_apart_by_rule() -> None:
    assert attribute_warning(ERROR_ITEM, "`x` is deprecated. Use y.") == ("deprecation", "codex.item-deprecation/1")
    assert attribute_warning(ERROR_ITEM, "Model metadata for `m` not found.") == (
        "provider",
        "codex.item-model-metadata/1",
    )
    assert attribute_warning(ERROR_ITEM, "MCP client for `m` failed to start") == ("mcp", "codex.item-mcp/1")
    assert attribute_warning(ERROR_ITEM, GROUP) == ("thread", None)
    assert attribute_warning("someday/new", "x") == ("protocol", None)


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
