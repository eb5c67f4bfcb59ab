"""Real SSH keys for tests."""

import subprocess
from pathlib import Path


def make_key(folder: Path, name: str, *, passphrase: str = "") -> Path:
    """A private key of this name with its public half beside it."""
    key = folder / name
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", f"{name}@example.org", "-f", str(key)]
    subprocess.run(made, check=True, timeout=30)
    return key


def public(key: Path) -> str:
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def fingerprint(key: Path) -> str:
    said = subprocess.run(["ssh-keygen", "-l", "-f", f"{key}.pub"], check=True, capture_output=True, text=True)
    return said.stdout.split()[1]
