"""Use a page in Chromium, in the fence, and write down what it shows. Needs playwright, unlike the other programs."""

import asyncio
import base64
import os
import re
import tempfile
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from .protocol import answer
from .service import Service, find_free_port

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, ConsoleMessage, Dialog, Page, Playwright, Request, Route

T = TypeVar("T")

MAX_LINES = 50
MAX_LINE_CHARS = 1000
MAX_TEXT_CHARS = 10_001
"""One character more than can be expected: a longer text never looks equal."""
MAX_SCREENSHOT_BYTES = 8 * 1024 * 1024
MAX_TRACE_BYTES = 12 * 1024 * 1024

OPEN_S = 15.0
ACTION_S = 5.0
"""How long an element may take to appear."""
STILL_S = 0.25
"""For how long the page must be without a change and a request."""
SETTLE_S = 5.0
"""How long a page may take to settle. What it shows then is taken."""
POLL_S = 0.05
FINISH_S = 3.0
"""How long each part of the end may take: screenshot, trace, closing the browser."""

FLAGS = (
    "--disable-gpu --disable-quic --disable-component-update --disable-sync --no-first-run --no-default-browser-check "
    "--disable-dev-shm-usage --force-color-profile=srgb --font-render-hinting=none --hide-scrollbars"
).split()
SHORT_FOLDER = "/tmp"  # noqa: S108
# Requests that stay open.
STREAMS = ("eventsource", "websocket")
NOT_ALLOWED = "Not allowed to load local resource: "
NETWORK_LOG = "Failed to load resource: "
NO_REACTION = "the page did not react in time"
ABORTED = "net::ERR_ABORTED"

# An element that is not visible shows nothing.
READ = f"""elements => elements.length !== 1 ? [elements.length, ""] : [1, elements.map(each =>
  each.checkVisibility({{opacityProperty: true, visibilityProperty: true}})
    ? String(each instanceof HTMLInputElement || each instanceof HTMLTextAreaElement ? each.value : each.innerText)
    : "")[0].slice(0, {MAX_TEXT_CHARS})]"""
READ_TITLE = f"() => document.title.slice(0, {MAX_TEXT_CHARS})"


class Lines:
    """The first of the lines of one kind that were observed, and their number."""

    def __init__(self) -> None:
        self.first = list[str]()
        self.total = 0

    def add(self, line: str) -> None:
        self.total += 1
        if len(self.first) < MAX_LINES:
            self.first.append(clean(line, MAX_LINE_CHARS))

    def seen(self) -> dict[str, Any]:
        return {"first": self.first, "total": self.total}


def clean(value: object, limit: int) -> str:
    """Return a text that JSON can hold: a page may use half of a character."""
    return str(value)[:limit].encode(errors="replace").decode()


class Session:
    """One page, and everything that was observed of it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.console, self.page_errors, self.requests = Lines(), Lines(), Lines()
        self.dialogs, self.blocked, self.popups, self.downloads = Lines(), Lines(), Lines(), Lines()
        self.steps = list[dict[str, Any]]()
        self.in_flight: set[Request] = set()
        self.origin = ""
        self.file = ""
        self.has_crashed = False

    def left_s(self, until: str = "stepsUntilS") -> float:
        return max(0.05, float(self.request[until]) - time.monotonic())

    # ── what the page does ──

    def watch(self, context: "BrowserContext", page: "Page") -> None:
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.page_errors.add(_first_line(error.error)))
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)
        context.on("requestfinished", self._on_finished)
        context.on("requestfailed", self._on_failed)
        context.on("response", lambda response: self._on_response(response.request, response.status))
        context.on("page", self._on_popup)
        page.on("download", lambda download: self.downloads.add(download.url))
        page.on("crash", lambda _: self._on_crash())

    def _on_console(self, message: "ConsoleMessage") -> None:
        if message.type != "error":
            return
        text = message.text
        # Lines without arguments are Chromium's own.
        if not message.args and text.startswith(NOT_ALLOWED):
            self.blocked.add(text.removeprefix(NOT_ALLOWED))
        elif message.args or not text.startswith(NETWORK_LOG):
            self.console.add(text)

    async def _on_dialog(self, dialog: "Dialog") -> None:
        self.dialogs.add(f"{dialog.type} {dialog.message!r}")
        with suppress(Exception):
            await dialog.dismiss()

    def _on_request(self, request: "Request") -> None:
        if request.resource_type not in STREAMS:
            self.in_flight.add(request)

    def _on_finished(self, request: "Request") -> None:
        self.in_flight.discard(request)

    def _on_failed(self, request: "Request") -> None:
        self.in_flight.discard(request)
        # A page that is left, or that itself gives up, aborts its requests. What is blocked is listed as such.
        if request.failure not in (None, ABORTED) and not self._is_forbidden(request):
            self.requests.add(f"{self._describe(request)} {request.failure}")

    def _on_response(self, request: "Request", status: int) -> None:
        if status >= 400:
            self.requests.add(f"{self._describe(request)} {status}")

    def _describe(self, request: "Request") -> str:
        """Without the address of the service: its port is another one each time."""
        return f"{request.method} {request.url.removeprefix(self.origin) if self.origin else request.url}"

    async def _on_popup(self, page: "Page") -> None:
        self.popups.add(page.url)
        with suppress(Exception):
            await page.close()

    def _on_crash(self) -> None:
        self.has_crashed = True

    def _is_forbidden(self, request: "Request") -> bool:
        """Return whether a request for a file is one that the page may not make."""
        parts = urlsplit(request.url)
        if parts.scheme != "file":
            return False
        if not self.file:
            return True
        path = os.path.normpath(unquote(parts.path))
        if request.is_navigation_request():
            return path != self.file
        return not path.startswith(f"{os.getcwd()}/")  # noqa: PTH109

    async def on_file(self, route: "Route") -> None:
        with suppress(Exception):
            if self._is_forbidden(route.request):
                self.blocked.add(route.request.url)
                await route.abort("blockedbyclient")
            else:
                await route.continue_()

    # ── what is done in the page ──

    async def play(self, page: "Page") -> None:
        for step in self.request["steps"]:
            seen: dict[str, Any] = {"problem": None, "title": "", "elements": [], "isSettled": False}
            self.steps.append(seen)
            try:
                await self._act(page, step)
                await self._settle(page, step["read"], seen)
            except TimeoutError:
                seen["problem"] = NO_REACTION
            except _playwright_errors() as error:
                seen["problem"] = "the page crashed" if self.has_crashed else clean(_first_line(error), MAX_LINE_CHARS)
            if seen["problem"] is not None:
                return

    async def _act(self, page: "Page", step: dict[str, Any]) -> None:
        target = step["target"]
        limit_ms = min(OPEN_S if step["action"] == "open" else ACTION_S, self.left_s()) * 1000
        match step["action"]:
            case "open":
                await page.goto(self._address(target), timeout=limit_ms)
            case "click":
                await page.locator(f"css={target}").click(timeout=limit_ms)
            case "fill":
                await page.locator(f"css={target}").fill(step["value"], timeout=limit_ms)
            case "press" if step["selector"] is not None:
                await page.locator(f"css={step['selector']}").press(target, timeout=limit_ms)
            case _:
                await within(page.keyboard.press(target), limit_ms / 1000)

    def _address(self, target: str) -> str:
        if not self.file:
            return f"{self.origin}{target}"
        at = min((target.find(mark) for mark in "?#" if mark in target), default=len(target))
        return f"file://{quote(self.file)}{target[at:]}"

    async def _settle(self, page: "Page", selectors: list[str], seen: dict[str, Any]) -> None:
        """Wait until nothing is requested and nothing that is observed changes."""
        began_s = changed_s = time.monotonic()
        last: Any = None
        while True:
            now: Any = None
            try:
                now = await within(self._read(page, selectors), min(SETTLE_S, self.left_s()))
            except _playwright_errors():
                # A page that is being replaced cannot be read.
                if self.has_crashed or page.is_closed() or time.monotonic() - began_s > SETTLE_S:
                    raise
            at_s = time.monotonic()
            if now is None or now != last or self.in_flight:
                last, changed_s = now, at_s
            is_settled = now is not None and at_s - changed_s >= STILL_S
            if now is not None and (is_settled or at_s - began_s > SETTLE_S):
                seen.update(title=now[0], elements=now[1], isSettled=is_settled)
                return
            await asyncio.sleep(POLL_S)

    async def _read(self, page: "Page", selectors: list[str]) -> tuple[str, list[dict[str, Any]]]:
        title = clean(await page.evaluate(READ_TITLE), MAX_TEXT_CHARS)
        elements = list[dict[str, Any]]()
        for selector in selectors:
            seen = await page.locator(f"css={selector}").evaluate_all(READ)
            count, text = seen if isinstance(seen, list) and len(seen) == 2 else (0, "")
            elements.append({"count": int(count), "text": clean(text, MAX_TEXT_CHARS)})
        return title, elements


async def within(work: Awaitable[T], limit_s: float) -> T:
    """Await something for at most so long: Chromium never answers for a page that hangs."""
    task = asyncio.ensure_future(work)
    try:
        # Unlike `wait_for`, this does not wait until a cancelled task has ended.
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError
    return task.result()


def _playwright_errors() -> type[Exception]:
    from playwright.async_api import Error

    return Error


def _first_line(error: object) -> str:
    return re.sub(r"^[A-Z]\w+\.\w+: ", "", (str(error).splitlines() or [""])[0])


def _why_not_started(error: str) -> str:
    """Return the line that says it, of an error that also holds the command line and the whole log."""
    lines = error.splitlines() or ["it did not start in time"]
    log = [line.partition("[err] ")[2] for line in lines if "[err] " in line]
    return next((line for line in log if "FATAL" in line), (log or lines)[-1])


async def look(request: dict[str, Any]) -> dict[str, Any]:
    """Start Chromium, then the service, and do the steps."""
    from playwright.async_api import async_playwright

    session = Session(request)
    driver: Playwright | None = None
    # Chromium refuses the path of a long TMPDIR for its socket. In the fence, /tmp is private.
    temporary = tempfile.TemporaryDirectory(dir=SHORT_FOLDER if os.access(SHORT_FOLDER, os.W_OK) else None)
    try:
        # Before the product runs, so that nothing of it can keep the browser from starting.
        try:
            driver = await within(async_playwright().start(), session.left_s())
            launched = driver.chromium.launch(
                executable_path=request["chromium"],
                args=FLAGS,
                env={**os.environ, "TMPDIR": temporary.name},
                timeout=session.left_s() * 1000,
            )
            # A browser that hangs would also delay the report of the time limit.
            browser = await within(launched, session.left_s())
        except (_playwright_errors(), OSError, TimeoutError) as error:
            return {"noBrowser": clean(_why_not_started(str(error)), MAX_LINE_CHARS)}
        context = await browser.new_context(
            viewport={"width": request["width"], "height": request["height"]},
            accept_downloads=False,
            service_workers="block",
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        return await _look_with(session, context)
    finally:
        if driver is not None:
            with suppress(Exception):
                await within(driver.stop(), min(FINISH_S, session.left_s("endUntilS") / 2))
        with suppress(OSError):
            temporary.cleanup()


async def _look_with(session: Session, context: "BrowserContext") -> dict[str, Any]:
    request = session.request
    service: Service | None = None
    ready: dict[str, Any] | None = None
    screenshot = trace = b""
    try:
        if request["service"] is None:
            session.file = f"{os.getcwd()}/{request['file']}"  # noqa: PTH109
        else:
            port = find_free_port()
            session.origin = f"http://127.0.0.1:{port}"
            try:
                service = await asyncio.to_thread(Service, request["service"], port=port)
            except (OSError, ValueError) as error:
                return {"startError": clean(error, MAX_LINE_CHARS)}
            ready_s = min(request["readyS"], session.left_s())
            ready = await asyncio.to_thread(service.wait_until_ready, ready_s)
        if ready is None or ready["isListening"]:
            page = await context.new_page()
            session.watch(context, page)
            await context.route(re.compile(r"^file:"), session.on_file)
            if request["hasTrace"]:
                await context.tracing.start(snapshots=True)
            try:
                await within(session.play(page), session.left_s())
            except TimeoutError:
                session.steps[-1]["problem"] = NO_REACTION
            screenshot = await _screenshot(session, page)
            if request["hasTrace"]:
                trace = await _stop_trace(session, context)
    finally:
        # The service ends all processes that were started after it, and some are the browser's.
        with suppress(Exception):
            assert context.browser is not None
            await within(context.browser.close(), min(FINISH_S, session.left_s("endUntilS")))
        if service is not None:
            await asyncio.to_thread(service.stop, min(request["stopS"], session.left_s("endUntilS")))
    return {
        "ready": ready,
        "steps": session.steps,
        "console": session.console.seen(),
        "pageErrors": session.page_errors.seen(),
        "requests": session.requests.seen(),
        "dialogs": session.dialogs.seen(),
        "blocked": session.blocked.seen(),
        "popups": session.popups.seen(),
        "downloads": session.downloads.seen(),
        "screenshot": base64.b64encode(screenshot).decode(),
        "trace": base64.b64encode(trace).decode(),
        "output": None if service is None else service.output(),
    }


async def _screenshot(session: Session, page: "Page") -> bytes:
    limit_s = min(FINISH_S, session.left_s("endUntilS"))
    with suppress(_playwright_errors(), TimeoutError):
        image = await within(page.screenshot(animations="disabled", timeout=limit_s * 1000), limit_s)
        return image if len(image) <= MAX_SCREENSHOT_BYTES else b""
    return b""


async def _stop_trace(session: Session, context: "BrowserContext") -> bytes:
    with tempfile.TemporaryDirectory() as folder, suppress(_playwright_errors(), TimeoutError, OSError):
        place = Path(folder, "trace.zip")
        await within(context.tracing.stop(path=place), min(FINISH_S, session.left_s("endUntilS")))
        if place.stat().st_size <= MAX_TRACE_BYTES:  # noqa: ASYNC240
            return place.read_bytes()  # noqa: ASYNC240
    return b""


def main() -> None:
    # Not asyncio.run, which waits for all tasks. What is left of a browser that hangs must not delay the end: the fence
    # ends it.
    answer(lambda request: asyncio.new_event_loop().run_until_complete(look(request)))
    os._exit(0)
