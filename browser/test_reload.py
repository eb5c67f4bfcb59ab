"""A real browser on the example application: reloaded in the middle of a turn, it shows every event once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.examples.served import served

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PATIENCE_MS = 60_000


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page
        browser.close()


def told(page: Page) -> list[tuple[int, str]]:
    """Every line of the page, as it stands there."""
    rows = page.eval_on_selector_all(
        "#events li", "lines => lines.map(each => [each.dataset.offset, each.dataset.type])"
    )
    return [(int(offset), type_) for offset, type_ in rows]


@pytest.mark.real_agent
@pytest.mark.requirement("surface.embed")
def test_a_page_reloaded_in_the_middle_of_a_turn_shows_every_event_once_and_can_still_answer(
    tmp_path: Path, page: Page
) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with served(tmp_path) as server:
        page.goto(server.url)
        expect(page.locator("[data-type='session.began']")).to_have_count(1)
        address = page.url
        page.fill("#prompt", "Look around.")
        page.click("#say button")
        expect(page.locator("[data-type='text.streamed']").first).to_be_visible()
        assert "turn.ended" not in [type_ for _, type_ in told(page)]
        page.reload()
        assert page.url == address
        allow = page.get_by_role("button", name="Allow")
        expect(allow).to_have_count(1)
        page.reload()
        allow.click()
        expect(page.locator("[data-type='approval.resolved']")).to_have_count(1)
        expect(allow).to_have_count(0)
        expect(page.locator("[data-type='turn.ended']")).to_have_count(1)
        # The last thing after a turn is that its terminals are cleaned.
        expect(page.locator("li", has_text="replied thread/backgroundTerminals/clean")).to_have_count(1)
        seen = told(page)
        assert [offset for offset, _ in seen] == list(range(1, len(seen) + 1))
        types = [type_ for _, type_ in seen]
        assert [types.count(each) for each in ("prompt.sent", "approval.asked", "tool.ended", "turn.ended")] == [1] * 4
        page.reload()
        expect(page.locator("#events li")).to_have_count(len(seen))
        assert told(page) == seen
        server.stop()
        assert server.processes() == []
