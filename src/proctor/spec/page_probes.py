"""Structs of a spec: probes that look at a page in Chromium, or at an image."""

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta

from proctor.spec.argv import argv_of
from proctor.spec.pattern import compile_pattern
from proctor.spec.probe_options import OUT, KeyProblem, ProbeOptions, is_inside, texts_of
from proctor.spec.service_probes import ServiceSpec
from proctor.spec.struct import Command, Duration, Spec, Text, Texts

MAX_STEPS: Final = 100
MAX_SHOWN_CHARS: Final = 10_000
"""Longest visible text, or title, that can be compared."""
MAX_SIDE: Final = 4096
"""Widest and highest window, in pixels."""

_ACTIONS: Final = ("open", "click", "fill", "press")

Side = Annotated[int, Meta(ge=16, le=MAX_SIDE)]
ShownText = Annotated[str, Meta(max_length=MAX_SHOWN_CHARS)]


class BrowserStep(Spec, frozen=True, kw_only=True):
    """A step of `browser_smoke`: one action, and what the page shows after it."""

    open: Text | None = None
    """Action: open this address. With `service` a path that begins with `/`; with `file` the same file, and `?` or `#`
    with more if needed. Default: none."""

    click: Text | None = None
    """Action: click on the element with this CSS selector. Default: none."""

    fill: Text | None = None
    """Action: write `value` into the field with this CSS selector. Default: none."""

    value: str | None = None
    """The text for `fill`, which requires it. Default: none."""

    press: Text | None = None
    """Action: press this key, such as `Enter` or `Control+a`. Default: none."""

    selector: Text | None = None
    """CSS selector of the element in which `press` presses the key. Default: the one with the focus."""

    shows: dict[Text, ShownText] = {}
    """The visible text of elements after the action, by CSS selector. White space at both ends does not count. Default:
    none."""

    title: ShownText | None = None
    """The title of the page after the action. Default: not compared."""

    @property
    def action(self) -> str:
        """The name of the action."""
        return next((name for name in _ACTIONS if getattr(self, name) is not None), "")

    @property
    def target(self) -> str:
        """The address, selector or key of the action."""
        return str(getattr(self, self.action)) if self.action else ""

    def problems(self, key: str) -> Iterator[KeyProblem]:
        """Yield what is wrong with the step, which is at `key` of the probe."""
        actions = [name for name in _ACTIONS if getattr(self, name) is not None]
        if not actions:
            what = "a step needs one action: `open`, `click`, `fill` or `press`"
            yield KeyProblem("spec.missing-key", what, key=key)
        for name in actions[1:]:
            what = f"`{name}` is a second action beside `{actions[0]}`"
            yield KeyProblem("spec.unsupported", what, key=f"{key}.{name}", suggestion="Make it a step.")
        if self.fill is not None and self.value is None:
            yield KeyProblem("spec.missing-key", "`fill` needs the key `value`", key=f"{key}.value")
        for name, action in (("value", "fill"), ("selector", "press")):
            if getattr(self, name) is not None and getattr(self, action) is None:
                what = f"`{name}` has no effect without `{action}`"
                yield KeyProblem("spec.unsupported", what, key=f"{key}.{name}", suggestion=f"Remove `{name}`.")


class BrowserSmoke(ProbeOptions, tag_field="kind", tag="browser_smoke", frozen=True, kw_only=True):
    """A probe that uses a page in Chromium, in the fence."""

    service: ServiceSpec | None = None
    """The service that has the page. Default: none; then `file` is required."""

    file: Text | None = None
    """Path of an HTML file of the workspace, opened without a service. Default: none."""

    steps: Annotated[list[BrowserStep], Meta(min_length=1, max_length=MAX_STEPS)]
    """What is done in the page, 1 to 100 steps. The first one is `open`."""

    console: Texts = []
    """RE2 patterns of allowed lines: console errors, and failed requests such as `GET /icon.png 404`. A pattern must
    match the whole line. Default: none."""

    width: Side = 1280
    """Width of the window in pixels, 16 to 4096. Default 1280."""

    height: Side = 720
    """Height of the window in pixels, 16 to 4096. Default 720."""

    timeout: Duration = "1m"
    """Longest duration; the probe fails after it. Default 1 minute."""

    @property
    def expected_values(self) -> tuple[str, ...]:
        return tuple(text for step in self.steps for text in texts_of([step.shows, step.title]))

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> BrowserSmoke(file="index.html", steps=[BrowserStep(open="index.html")]).argv
        ('chromium', 'index.html')
        """
        return _page_argv(self.service, self.file)

    @property
    def programs(self) -> tuple[str, ...]:
        return () if self.service is None else self.service.argv[:1]

    @property
    def durations(self) -> dict[str, Duration]:
        return super().durations | _service_durations(self.service)

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        yield from _source_problems({"service": self.service, "file": self.file})
        yield from _file_problems(self.file)
        if self.steps[0].open is None:
            yield KeyProblem("spec.missing-key", "the first step must be `open`", key="steps[0].open")
        for at, step in enumerate(self.steps):
            yield from step.problems(f"steps[{at}]")
            if step.open is None:
                continue
            if self.service is not None and not step.open.startswith("/"):
                what = f"`{step.open}` is not a path of the service, such as `/` or `/cart?item=1`"
                yield KeyProblem("spec.type", what, key=f"steps[{at}].open")
            if self.file is not None and plain_address(step.open) != self.file:
                what = f"`{step.open}` is not the probe's `file`"
                yield KeyProblem("spec.type", what, key=f"steps[{at}].open", suggestion=f"Write `{self.file}`.")
        for at, pattern in enumerate(self.console):
            try:
                compile_pattern(pattern)
            except ValueError as error:
                what = f"`{pattern}` is not a valid RE2 pattern: {error}"
                yield KeyProblem("spec.type", what, key=f"console[{at}]")


class RenderHash(ProbeOptions, tag_field="kind", tag="render_hash", frozen=True, kw_only=True):
    """A probe that compares an image with a reference: a page in Chromium, or the image that a command writes."""

    service: ServiceSpec | None = None
    """The service that has the page. Default: none; then `file` or `command` is required."""

    path: Text = "/"
    """The page of the service. Default `/`."""

    file: Text | None = None
    """Path of an HTML file of the workspace, opened without a service. Default: none."""

    command: Command | None = None
    """A command that writes an image: a list is argv, a string is run with `bash -c`. It must exit with 0. `{out}` is
    the probe's own folder. Default: none."""

    image: Text | None = None
    """Path of the PNG that the command writes, relative to the workspace or below `{out}`; required with `command`."""

    reference: Text
    """Path of the PNG that the image is compared with, relative to the spec's folder."""

    tolerance: Annotated[int, Meta(ge=0, le=32)] = 4
    """How many of the 64 bits of the two hashes may differ, 0 to 32. Default 4."""

    width: Side = 1280
    """Width of the window in pixels, 16 to 4096. Default 1280."""

    height: Side = 720
    """Height of the window in pixels, 16 to 4096. Default 720."""

    timeout: Duration = "1m"
    """Longest duration; the probe fails after it. Default 1 minute."""

    @property
    def argv(self) -> tuple[str, ...]:
        """
        >>> RenderHash(command="make plot", image="plot.png", reference="plot.png").argv
        ('bash', '-c', 'make plot')
        """
        return argv_of(self.command) if self.command is not None else _page_argv(self.service, self.file)

    @property
    def programs(self) -> tuple[str, ...]:
        return () if self.file is not None else self.argv[:1]

    @property
    def files(self) -> dict[str, str]:
        return super().files | {"reference": self.reference}

    @property
    def durations(self) -> dict[str, Duration]:
        return super().durations | _service_durations(self.service)

    def problems(self) -> Iterator[KeyProblem]:
        yield from super().problems()
        yield from _source_problems({"service": self.service, "file": self.file, "command": self.command})
        yield from _file_problems(self.file)
        if self.path != "/" and self.service is None:
            what = "`path` has no effect without `service`"
            yield KeyProblem("spec.unsupported", what, key="path", suggestion="Remove `path`.")
        if not self.path.startswith("/"):
            what = f"`{self.path}` is not a path of the service, such as `/` or `/chart`"
            yield KeyProblem("spec.type", what, key="path")
        if self.command is not None and self.image is None:
            yield KeyProblem("spec.missing-key", "`command` needs the key `image`", key="image")
        if self.command is None and self.image is not None:
            what = "`image` has no effect without `command`"
            yield KeyProblem("spec.unsupported", what, key="image", suggestion="Remove `image`.")
        if self.image is not None and not is_inside(self.image.removeprefix(f"{OUT}/")):
            what = f"`{self.image}` is not a path inside the workspace or below `{OUT}/`"
            yield KeyProblem("spec.type", what, key="image", suggestion=f"Write `{OUT}/image.png`.")


def plain_address(address: str) -> str:
    """Return an address without its query and fragment.

    >>> plain_address("index.html?tab=2#top")
    'index.html'
    """
    return address.partition("#")[0].partition("?")[0]


def _page_argv(service: ServiceSpec | None, file: str | None) -> tuple[str, ...]:
    return ("chromium", file or "") if service is None else service.argv


def _service_durations(service: ServiceSpec | None) -> dict[str, Duration]:
    return {} if service is None else {"service.ready": service.ready, "service.stop": service.stop}


def _source_problems(sources: dict[str, object]) -> Iterator[KeyProblem]:
    """Exactly one of these keys says what is looked at."""
    first, *others = sources
    given = [name for name, value in sources.items() if value is not None]
    if not given:
        names = " or ".join(f"`{name}`" for name in (first, *others))
        yield KeyProblem("spec.missing-key", f"it needs the key {names}", key=first)
    for name in given[1:]:
        what = f"`{given[0]}` and `{name}` exclude each other"
        yield KeyProblem("spec.unsupported", what, key=name, suggestion="Remove one of the two.")


def _file_problems(file: str | None) -> Iterator[KeyProblem]:
    if file is not None and (not is_inside(file) or plain_address(file) != file):
        what = f"`{file}` is not a path of a file inside the workspace, such as `index.html`"
        yield KeyProblem("spec.type", what, key="file")
