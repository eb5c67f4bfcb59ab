"""`proctor sign` and `proctor verify`."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.errors import Exit
from proctor.evidence.layout import RootPaths
from proctor.report.format_values import legible, plural
from proctor.report.text import render_findings
from proctor.surface.cli.command import JSON, ROOT, Command, argument, root_or_default
from proctor.surface.cli.command_formatter import CommandFormatter
from proctor.surface.cli.findings import render_examination
from proctor.surface.cli.output import Output
from proctor.surface.sign import Signing, sign_place
from proctor.surface.verify import Verification, place_at, verify_place


def sign(*, path: str, key: Path, identity: str | None, root: Path | None, as_json: bool) -> int:
    """Sign the seals of evidence with an SSH key.

    Puts seal.json.sig (process.json.sig) beside each seal that has none, and prints the line that
    others need in their list of allowed signers. Evidence that is invalid is not signed: exit 5.
    """
    output = Output(is_json=as_json)
    done = sign_place(place_at(path, root=RootPaths(root_or_default(root))), key=key, identity=identity)
    if as_json:
        output.json(done)
    else:
        output.show(_signed(done), is_wrapped=False)
    return done.exit


def verify(
    *,
    path: str,
    allowed: Path | None,
    is_signed: bool,
    statement: Path | None,
    root: Path | None,
    as_json: bool,
) -> int:
    """Say what evidence establishes: whether it is whole, and who signed it.

    Works offline. Unsigned evidence passes as `integrity only` unless --signed. Exits 4 when some of
    it is partial, 5 when it is invalid or a signature does not hold.
    """
    output = Output(is_json=as_json)
    place = place_at(path, root=RootPaths(root_or_default(root)))
    found = verify_place(place, allowed=allowed, is_signed=is_signed, statement=statement)
    if as_json:
        output.json(found)
    else:
        output.show(render_examination(found.evidence, calling=CommandFormatter.of(root)))
        output.show(_verified(found, is_asked_to_state=statement is not None), is_wrapped=False)
    return found.exit


def _signed(done: Signing) -> RenderableType:
    lines = [Text(f"{plural(len(done.signed), 'seal')} signed", style="green" if done.signed else "")]
    if done.kept:
        lines.append(Text(f"{plural(len(done.kept), 'seal')} had a signature already, which is left alone"))
    if done.allowed_signer is not None:
        lines += [Text(), Text("Others check it with this line in their list of allowed signers:", style="dim")]
        lines.append(Text(legible(done.allowed_signer)))
    return Group(*lines)


def _verified(found: Verification, *, is_asked_to_state: bool) -> RenderableType:
    parts: list[RenderableType] = []
    for each in found.seals:
        if each.finding is not None:
            parts += [Text(), Text(legible(f"{each.kind} {each.name}"), style="bold"), render_findings([each.finding])]
    style = {Exit.OK: "green", Exit.UNVERIFIED: "yellow"}.get(Exit(found.exit), "bold red")
    parts += [Text(), *(Text(legible(line), style=style) for line in found.established)]
    if is_asked_to_state:
        written = f"statement written to {found.statement}" if found.statement else "no statement was written"
        parts += [Text(), Text(legible(written))]
    return Group(*parts)


_PATH = argument("path", metavar="PATH|ID", help="A campaign, run or attempt, or an evidence root.")

COMMANDS = {
    "sign": Command(
        call=sign,
        example="proctor sign .proctor --key ~/.ssh/id_ed25519 --identity ada@example.org",
        arguments=(
            _PATH,
            argument(
                "--key",
                metavar="FILE",
                type=Path,
                required=True,
                help="A private SSH key, or its public half where ssh-agent holds it.",
            ),
            argument(
                "--identity",
                metavar="NAME",
                default=None,
                help="Who signs, in the line for others; by default the key's comment.",
            ),
            ROOT,
            JSON,
        ),
    ),
    "verify": Command(
        call=verify,
        example="proctor verify .proctor --signed --allowed-signers signers",
        arguments=(
            _PATH,
            argument(
                "--allowed-signers",
                dest="allowed",
                metavar="FILE",
                type=Path,
                default=None,
                help="Whose signatures count, as `man ssh-keygen` describes such a list.",
            ),
            argument(
                "--signed",
                dest="is_signed",
                action="store_true",
                help="Demand a signature by somebody allowed on every seal.",
            ),
            argument(
                "--statement",
                metavar="FILE",
                type=Path,
                default=None,
                help="Write an in-toto statement about it there, if nothing is wrong.",
            ),
            ROOT,
            JSON,
        ),
    ),
}
