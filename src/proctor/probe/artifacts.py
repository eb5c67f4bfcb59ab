"""Keep files that a probe produced, such as a screenshot, as evidence: bounded in size and without secrets."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.canonical import digest_bytes
from proctor.evidence.disk import replace_file
from proctor.evidence.redact import Redactor
from proctor.probe.kind import MAX_ARTIFACT_BYTES
from proctor.probe.model import ProbeArtifact

MAX_ARTIFACTS: Final = 20
_MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """The files that were kept."""

    artifacts: tuple[ProbeArtifact, ...] = ()
    left_out: tuple[str, ...] = ()
    """Why files were not kept, one text for each."""

    @property
    def remark(self) -> str:
        """What a row's summary adds about files that were not kept."""
        return "".join(f"; not kept: {each}" for each in self.left_out)


def keep_files(files: Mapping[str, bytes], folder: Path, prefix: str, *, redactor: Redactor) -> KeptFiles:
    """Write files with plain names to the evidence folder, each name with the prefix.

    Raises MachineError if the disk refuses.
    """
    kept, left_out = list[ProbeArtifact](), list[str]()
    for at, (name, content) in enumerate(files.items()):
        if at >= MAX_ARTIFACTS or len(content) > MAX_ARTIFACT_BYTES:
            left_out.append(f"{name}, which is too large" if at < MAX_ARTIFACTS else name)
            continue
        data = _without_secrets(content, redactor=redactor)
        if data is None:
            left_out.append(f"{name}, which may contain a secret")
        else:
            replace_file(folder / f"{prefix}{name}", data, is_durable=False)
            kept.append(ProbeArtifact(file=f"{prefix}{name}", sha256=digest_bytes(data), bytes=len(data)))
    return KeptFiles(artifacts=tuple(kept), left_out=tuple(left_out))


def _without_secrets(content: bytes, *, redactor: Redactor) -> bytes | None:
    """Return text with its secrets masked, and other content as it is; None if that may contain a secret."""
    with suppress(UnicodeDecodeError):
        return redactor.text(content.decode()).text.encode(errors="backslashreplace")
    try:
        parts = [content, *_unpack(content)]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError):
        return None
    # Every byte is a character, so that a secret is found whatever is around it.
    texts = [part.decode("latin-1") for part in parts]
    return content if all(redactor.text(text).text == text for text in texts) else None


def _unpack(content: bytes) -> Iterator[bytes]:
    """Yield the files in an archive; none if the content is not an archive. Raises ValueError if they are too large."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return
    left = _MAX_UNPACKED_BYTES
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as stream:
                data = stream.read(left + 1)
            left -= len(data)
            if left < 0:
                raise ValueError("the archive is too large")
            yield data
