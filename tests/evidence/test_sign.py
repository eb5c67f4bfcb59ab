"""Signatures by real SSH keys: who signed is told, and whatever lies where a signature should be gives a code."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import EvidenceError, InputError, MachineError
from proctor.evidence.sign import NAMESPACE, Signature, SignatureCheck, load_allowed, sign_files
from tests.keys import fingerprint, make_key, public
from tests.lab import wait_until


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("ada"), "ada")


@pytest.fixture(scope="module")
def eve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("eve"), "eve")


@pytest.fixture
def seal(tmp_path: Path) -> Path:
    file = tmp_path / "seal.json"
    file.write_text('{"a": "seal"}\n')
    return file


@pytest.fixture(scope="module")
def signed(ada: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("signed") / "seal.json"
    file.write_text('{"a": "seal"}\n')
    sign_files([file], key=ada)
    return file


def allow(ada: Path, *, who: str = "ada@example.org", options: str = "") -> SignatureCheck:
    return SignatureCheck(f"{who} {options} {public(ada)}\n".encode())


def beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.sig")


def code_of(check: SignatureCheck, file: Path) -> tuple[str, str | None]:
    with pytest.raises(EvidenceError) as caught:
        check.check(file)
    return caught.value.code, caught.value.file


@pytest.mark.requirement("evidence.signed")
def test_every_file_is_signed_at_once_and_its_signer_told_by_name_and_key(ada: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text(str(number))
    signer = sign_files(files, key=ada)
    assert signer.fingerprint == fingerprint(ada)
    line = signer.allowed_line("ada@example.org")
    assert line == f'ada@example.org namespaces="{NAMESPACE}" {public(ada)}'
    told = Signature(identity="ada@example.org", fingerprint=fingerprint(ada))
    assert [SignatureCheck(line.encode()).check(file) for file in files] == [told] * 3
    # Anybody can check the same without Proctor.
    (tmp_path / "allowed").write_text(line)
    words = ["-f", "allowed", "-I", "ada@example.org", "-n", NAMESPACE, "-s", "0.json.sig"]
    subprocess.run(["ssh-keygen", "-Y", "verify", *words], input=b"0", cwd=tmp_path, check=True, timeout=30)


def test_without_a_list_a_signature_that_holds_names_a_key_and_nobody(ada: Path, signed: Path, seal: Path) -> None:
    assert SignatureCheck(None).check(signed) == Signature(fingerprint=fingerprint(ada), identity=None)
    assert SignatureCheck(None).check(seal) is None


@pytest.mark.requirement("evidence.signed")
def test_a_signature_of_other_bytes_does_not_hold_with_or_without_a_list(ada: Path, signed: Path, seal: Path) -> None:
    shutil.copy(beside(signed), beside(seal))
    seal.write_text('{"a": "Seal"}\n')
    for check in (allow(ada), SignatureCheck(None)):
        assert code_of(check, seal) == ("evidence.signature", "seal.json.sig")


def test_a_signer_who_is_not_on_the_list_or_not_for_seals_or_no_longer_is_not_allowed(
    ada: Path, eve: Path, signed: Path
) -> None:
    for check in (
        allow(eve),
        allow(ada, options='namespaces="file"'),
        allow(ada, options='valid-before="20200101"'),
        SignatureCheck(b""),
        SignatureCheck(b"\xff\x00 junk\n"),
    ):
        assert code_of(check, signed) == ("evidence.signer", "seal.json.sig")


def test_the_first_of_two_names_that_holds_is_told(ada: Path, signed: Path) -> None:
    found = allow(ada, who="lovelace,ada@example.org").check(signed)
    assert found == Signature(identity="lovelace", fingerprint=fingerprint(ada))


def test_a_signature_made_for_something_else_does_not_count(ada: Path, seal: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", ada, "-n", "file", seal], check=True, timeout=30)
    assert code_of(allow(ada), seal) == ("evidence.signature", "seal.json.sig")


def test_whatever_lies_where_a_signature_should_be_gives_a_code(ada: Path, seal: Path) -> None:
    place, check = beside(seal), allow(ada)

    def put(data: bytes) -> None:
        place.write_bytes(data)

    for data in (b"", b"\n", b"junk", b"\xff\xfe", b"-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n"):
        put(data)
        assert code_of(check, seal) == ("evidence.signature", "seal.json.sig")
    put(b"A" * 100_000)
    assert code_of(check, seal) == ("evidence.schema", "seal.json.sig")
    place.unlink()
    place.mkdir()
    assert code_of(check, seal)[0] == "evidence.containment"
    place.rmdir()
    os.mkfifo(place)
    assert code_of(check, seal)[0] == "evidence.containment"
    place.unlink()
    place.symlink_to("/dev/zero")
    assert code_of(check, seal)[0] == "evidence.containment"


@pytest.mark.long
@settings(max_examples=40)
@given(at=st.integers(0, 400), byte=st.integers(0, 255), is_cut=st.booleans())
def test_a_mangled_signature_gives_a_code_or_still_holds(
    ada: Path, signed: Path, tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, is_cut: bool
) -> None:
    seal = tmp_path_factory.mktemp("mangled") / "seal.json"
    shutil.copy(signed, seal)
    made = bytearray(beside(signed).read_bytes())
    at %= len(made)
    made[at : None if is_cut else at + 1] = bytes([byte])
    beside(seal).write_bytes(made)
    told: Signature | str | None
    try:
        told = allow(ada).check(seal)
    except EvidenceError as error:
        told = error.code
    assert told in (allow(ada).check(signed), "evidence.signature", "evidence.signer")


def test_a_key_that_cannot_sign_is_told(ada: Path, seal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is there to type a passphrase, even where these tests have a terminal.
    monkeypatch.setenv("SSH_ASKPASS", "false")
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    alone = Path(shutil.copy(f"{ada}.pub", tmp_path / "ada.pub"))
    locked = make_key(tmp_path, "locked", passphrase="open sesame")
    (tmp_path / "junk").write_text("no key")
    for key in (tmp_path / "nowhere", tmp_path, tmp_path / "junk", alone, locked):
        with pytest.raises(InputError) as caught:
            sign_files([seal], key=key)
        assert (caught.value.code, caught.value.file) == ("sign.key", str(key))
    assert not beside(seal).exists()


def test_a_key_that_an_agent_holds_signs_by_its_public_half(
    ada: Path, seal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL) as agent:
        try:
            add = ["ssh-add", "-q", str(ada)]
            wait_until(lambda: subprocess.run(add, timeout=30, capture_output=True).returncode == 0)
            alone = shutil.copy(f"{ada}.pub", tmp_path / "ada.pub")
            sign_files([seal], key=Path(alone))
        finally:
            agent.kill()
    assert allow(ada).check(seal) == Signature(identity="ada@example.org", fingerprint=fingerprint(ada))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_an_ssh_keygen_that_is_missing_or_too_old_is_this_machines_fault(
    ada: Path, signed: Path, seal: Path, path: Path
) -> None:
    old = path / "ssh-keygen"
    for what in ("ssh-keygen is not on PATH", "exited with 1: unknown option -- Y"):
        for deed in (lambda: sign_files([seal], key=ada), lambda: allow(ada).check(signed)):
            with pytest.raises(MachineError, match=what) as caught:
                deed()
            assert caught.value.code == "machine.ssh-keygen"
        old.write_text("#!/bin/sh\necho 'unknown option -- Y' >&2\nexit 1\n")
        old.chmod(0o755)


def test_a_list_of_allowed_signers_that_cannot_be_read_is_the_callers_fault(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError) as caught:
            load_allowed(path)
        assert (caught.value.code, caught.value.file) == ("sign.allowed-signers", str(path))
