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

_MAX_PARTIAL = 5


def sign(*, path: str, key: Path, identity: str | None, root: Path | None, as_json: bool) -> int:
    """Sign the seals of evidence with an SSH key.

    Writes seal.json.sig (of an agent process, process.json.sig) next to every seal without a
    signature, and prints the line that others need in their file of allowed signers. Exits 0 if
    the evidence is valid, 4 if some of it is partial, 5 if any is invalid; then nothing is signed.
    """
    output = Output(is_json=as_json)
    result = sign_place(place_at(path, root=RootPaths(root_or_default(root))), key=key, identity=identity)
    if as_json:
        output.json(result)
    else:
        output.show(_render_signing(result), is_wrapped=False)
    return result.exit


def verify(
    *,
    path: str,
    allowed: Path | None,
    is_signed: bool,
    statement: Path | None,
    root: Path | None,
    as_json: bool,
) -> int:
    """Check evidence, and who signed it.

    Derives everything again and checks every signature. Needs no network. Unsigned evidence passes
    as `integrity only`, unless --signed is given. Exits 0 if everything is valid, 4 if some evidence
    is partial, 5 if any evidence or signature is invalid.
    """
    output = Output(is_json=as_json)
    place = place_at(path, root=RootPaths(root_or_default(root)))
    found = verify_place(place, allowed=allowed, is_signed=is_signed, statement=statement)
    if as_json:
        output.json(found)
    else:
        output.show(render_examination(found.evidence, calling=CommandFormatter.of(root)))
        output.show(_render_verification(found, is_statement_requested=statement is not None), is_wrapped=False)
    return found.exit


def _render_signing(result: Signing) -> RenderableType:
    lines = [Text(f"{plural(len(result.signed), 'seal')} signed", style="green" if result.signed else "")]
    if result.kept:
        lines.append(Text(f"{plural(len(result.kept), 'seal')} already had a signature, which was kept"))
    if result.partial:
        lines.append(Text(f"exit code {result.exit}: {plural(len(result.partial), 'item')} without complete evidence"))
        lines += [Text(f"  {legible(each)}") for each in result.partial[:_MAX_PARTIAL]]
        if len(result.partial) > _MAX_PARTIAL:
            lines.append(Text(f"  … and {len(result.partial) - _MAX_PARTIAL:,} more; --json lists all"))
    if result.allowed_signer is not None:
        lines += [
            Text(),
            Text("To check the signatures, others need this line in their file of allowed signers:", style="dim"),
        ]
        lines.append(Text(legible(result.allowed_signer)))
    return Group(*lines)


def _render_verification(found: Verification, *, is_statement_requested: bool) -> RenderableType:
    parts: list[RenderableType] = []
    for each in found.seals:
        if each.finding is not None:
            parts += [Text(), Text(legible(f"{each.kind} {each.name}"), style="bold"), render_findings([each.finding])]
    style = {Exit.OK: "green", Exit.UNVERIFIED: "yellow"}.get(Exit(found.exit), "bold red")
    parts += [Text(), *(Text(legible(line), style=style) for line in found.established)]
    if is_statement_requested:
        written = f"statement written to {found.statement}" if found.statement else "no statement was written"
        parts += [Text(), Text(legible(written))]
    return Group(*parts)


_PATH = argument("path", metavar="PATH|ID", help="Campaign, run, attempt or evidence root.")

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
                help="Private SSH key, or the public key if ssh-agent holds the private one.",
            ),
            argument(
                "--identity",
                metavar="NAME",
                default=None,
                help="Name of the signer in the printed line (default: the key's comment).",
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
                help="File of allowed signers (see ALLOWED SIGNERS in `man ssh-keygen`).",
            ),
            argument(
                "--signed",
                dest="is_signed",
                action="store_true",
                help="Require a signature by an allowed signer on every seal.",
            ),
            argument(
                "--statement",
                metavar="FILE",
                type=Path,
                default=None,
                help="Write an in-toto statement to FILE if everything is valid.",
            ),
            ROOT,
            JSON,
        ),
    ),
}
