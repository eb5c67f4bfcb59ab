"""The program that the lock pins: lock → installed wheel of that version → its RECORD → the file itself."""

import base64
import hashlib
import importlib.metadata
import re
from functools import cache
from pathlib import Path

PACKAGE = "openai-codex-cli-bin"
LOCK = Path(__file__).parent.parent / "locks" / "dev.lock"


@cache
def locked_codex_sha256() -> str:
    """Fails where any link of the chain does not hold. The installer has checked the wheel's hash against the lock."""
    pinned = re.search(
        rf"^{PACKAGE}==(\S+) .*\n(?:\s+--hash=sha256:[0-9a-f]{{64}}.*\n)+", LOCK.read_text(), re.MULTILINE
    )
    assert pinned is not None, "the lock does not pin the program with hashes"
    assert pinned[1] == importlib.metadata.version(PACKAGE), "another version than the locked one is installed"
    [recorded] = [file for file in importlib.metadata.files(PACKAGE) or [] if str(file).endswith("bin/codex")]
    assert recorded.hash is not None
    value = recorded.hash.value
    expected = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    with Path(str(recorded.locate())).open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == expected, "the file is not the one its wheel records"
    return expected
