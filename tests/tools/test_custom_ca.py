"""Set-up behind a custom CA: pip, uv and npm all get its file, whichever variable names it."""

import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.trust, pytest.mark.requirement("surface.package")]

ROOT: Final = Path(__file__).parents[2]
CALLERS: Final = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
READ_BY: Final = {"pip": "PIP_CERT", "uv": "SSL_CERT_FILE", "npm": "NODE_EXTRA_CA_CERTS"}
# The user's config files may name a CA and an index, too.
NO_CONFIG: Final = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_NO_CONFIG": "1",
    "UV_HTTP_RETRIES": "0",
    "npm_config_userconfig": os.devnull,
    "npm_config_globalconfig": "/nonexistent",
}
DEADLINE_S: Final = 60


def environment(**variables: str) -> dict[str, str]:
    """The environment without anything that a machine sets for a CA, an index or a proxy, and then these."""
    ignored = ("PIP_", "UV_", "NPM_CONFIG_", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "MAKE", "MFLAGS")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in CALLERS and not name.upper().startswith(ignored)
    }
    return {**kept, **NO_CONFIG, **variables}


def exported(**variables: str) -> Mapping[str, str]:
    """The environment that the Makefile gives to its commands."""
    words = ["make", "--silent", "--eval", "show-environment: ; @env -0", "show-environment"]
    shown = subprocess.run(
        words, cwd=ROOT, env=environment(**variables), capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    return dict(each.split("=", 1) for each in shown.stdout.split("\0") if "=" in each)


@pytest.mark.parametrize("caller", CALLERS)
def test_makefile_passes_a_custom_ca_to_every_installer(caller: str) -> None:
    seen = exported(**{caller: "/company/ca.pem"})

    assert {seen[name] for name in READ_BY.values()} == {"/company/ca.pem"}


def test_makefile_keeps_variables_that_are_set() -> None:
    seen = exported(SSL_CERT_FILE="/one.pem", PIP_CERT="/two.pem", UV_SYSTEM_CERTS="false")

    assert (seen["SSL_CERT_FILE"], seen["PIP_CERT"], seen["UV_SYSTEM_CERTS"]) == ("/one.pem", "/two.pem", "false")
    assert seen["NODE_EXTRA_CA_CERTS"] == "/one.pem"


def test_makefile_sets_no_certificates_without_a_custom_ca() -> None:
    seen = exported()

    assert {*READ_BY.values(), *CALLERS}.isdisjoint(seen)
    assert seen["UV_SYSTEM_CERTS"] == "true"


class _Index(http.server.BaseHTTPRequestHandler):
    """An index without packages. It notes which clients accepted its certificate."""

    agents: Final[list[str]] = []

    def do_GET(self) -> None:
        self.agents.append(self.headers.get("user-agent", "").partition("/")[0])
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        """Print nothing."""


@contextmanager
def index_with_its_own_ca(folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve on loopback with a certificate of a new CA, and yield the address and the CA's file."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=DEADLINE_S)

    extensions = "subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\n"
    (folder / "extensions").write_text(extensions)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-subj", "/CN=Test CA", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", "-new", *curve, "-subj", "/CN=127.0.0.1", "-keyout", "key.pem", "-out", "it.csr")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-days", "2")
    openssl("x509", "-req", "-in", "it.csr", *signed_by, "-out", "it.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Index)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "it.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/", folder / "ca.pem"
    finally:
        server.shutdown()
        thread.join(DEADLINE_S)
        server.server_close()


def commands(url: str, folder: Path) -> dict[str, list[str]]:
    """A request of each installer to the index, without retries."""
    uv = str(Path(sys.executable).with_name("uv"))
    pip = [sys.executable, "-m", "pip", "download", "--retries", "0", "--index-url", url, "--dest", str(folder)]
    found = {
        "pip": [*pip, "--no-deps", "absent"],
        "uv": [
            uv,
            "pip",
            "install",
            "--dry-run",
            "--no-cache",
            "--index-url",
            url,
            "--python",
            sys.executable,
            "absent",
        ],
        "npm": ["npm", "view", "absent", "--registry", url, "--fetch-retries", "0", "--cache", str(folder / "npm")],
    }
    # An environment that uv made has no pip.
    missing = {*(["pip"] if find_spec("pip") is None else []), *([] if shutil.which("npm") else ["npm"])}
    return {name: words for name, words in found.items() if name not in missing}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates of this test")
def test_installers_accept_a_server_only_with_its_ca(tmp_path: Path) -> None:
    with index_with_its_own_ca(tmp_path) as (url, ca):
        accepted = {}
        for has_ca in (False, True):
            env = environment(**(dict.fromkeys(READ_BY.values(), str(ca)) if has_ca else {}))
            for name, words in commands(url, tmp_path).items():
                _Index.agents.clear()
                subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, timeout=DEADLINE_S)
                accepted[name, has_ca] = set(_Index.agents)
    assert accepted == {(name, has_ca): {name} if has_ca else set() for name, has_ca in accepted}
