# SPDX-License-Identifier: Apache-2.0
"""`gsaas run` in C over TLS: which servers it accepts, and that it leaves every other to the program in Python."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import certificates
from tests.support.launcher import OBJECTS, Launcher

pytestmark = pytest.mark.slow

ONE = ("-ncgpus=1", "--")
BODY = b'{"lease": {"id": "0-0", "status": "ACTIVE"}, "environment": {"A": "1"}}'
WHOLE = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
UNTIL_CLOSED = b"HTTP/1.1 201 Created\r\n\r\n" + BODY
PYTHON = "#!/bin/sh\nexit 42\n"


@pytest.fixture
def launcher(programs: Path, tmp_path: Path) -> Launcher:
    """The program in C, beside a gsaas-cli whose exit status is 42."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gsaas", *OBJECTS):
        shutil.copy(programs / name, folder / name)
    cli = folder / "gsaas-cli"
    cli.write_text(PYTHON)
    cli.chmod(0o755)
    return Launcher(folder / "gsaas", tmp_path / "credentials.json")


@contextmanager
def serving(
    certificate: tuple[str, str],
    answer: bytes = WHOLE,
    *,
    says_goodbye: bool = True,
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> Iterator[int]:
    """Give this answer to every request over TLS during the block; yield the port on 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = newest
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                stream = context.wrap_socket(connection, server_side=True)
                stream.recv(65536)
                stream.sendall(answer)
                if says_goodbye:
                    stream.unwrap()
                stream.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def trust(launcher: Launcher, certificate: tuple[str, str], url: str) -> None:
    launcher.use(url, "token")
    launcher.environment = {"SSL_CERT_FILE": certificate[0], "SSL_CERT_DIR": "/nonexistent"}


@pytest.mark.parametrize(
    ("host", "name"), [("127.0.0.1", "IP:127.0.0.1"), ("localhost", "DNS:localhost")]
)
@pytest.mark.parametrize("answer", [WHOLE, UNTIL_CLOSED], ids=["with a length", "until it closes"])
def test_a_certificate_for_the_host_is_accepted(
    launcher: Launcher, tmp_path: Path, host: str, name: str, answer: bytes
):
    certificate = certificates.self_signed(tmp_path, name)
    with serving(certificate, answer) as port:
        trust(launcher, certificate, f"https://{host}:{port}")
        ran = launcher.run(*ONE, "sh", "-c", "exit $((A + 6))")
    assert (ran.returncode, ran.stderr) == (7, "")  # and the lease was given back


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1", "IP:127.0.0.2"),
        ("127.0.0.1", "DNS:127.0.0.1"),
        ("127.0.0.1", "DNS:localhost"),
        ("localhost", "IP:127.0.0.1"),
        ("localhost", "DNS:elsewhere.localhost"),
        ("localhost", "DNS:local*"),
        ("127.0.0.1", "email:127.0.0.1"),
    ],
)
def test_a_certificate_for_another_host_gets_no_token(
    launcher: Launcher, tmp_path: Path, host: str, name: str
):
    certificate = certificates.self_signed(tmp_path, name)
    with serving(certificate) as port:
        trust(launcher, certificate, f"https://{host}:{port}")
        assert launcher.run(*ONE, "true").returncode == 42


def test_a_certificate_of_an_unknown_authority_gets_no_token(launcher: Launcher, tmp_path: Path):
    (tmp_path / "other").mkdir()
    with serving(certificates.self_signed(tmp_path)) as port:
        trust(launcher, certificates.self_signed(tmp_path / "other"), f"https://127.0.0.1:{port}")
        assert launcher.run(*ONE, "true").returncode == 42


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_server_with_an_old_protocol_gets_no_token(launcher: Launcher, tmp_path: Path):
    certificate = certificates.self_signed(tmp_path)
    with serving(certificate, newest=ssl.TLSVersion.TLSv1_1) as port:
        trust(launcher, certificate, f"https://127.0.0.1:{port}")
        launcher.environment["OPENSSL_CONF"] = "/dev/null"  # Debian's forbids it as well
        assert launcher.run(*ONE, "true").returncode == 42


@pytest.mark.parametrize(
    "answer",
    [WHOLE[:-1], UNTIL_CLOSED, UNTIL_CLOSED[:-1], b""],
    ids=["less than it says", "perhaps all", "half", "nothing"],
)
def test_an_answer_that_may_have_been_cut_off_is_a_failure(
    launcher: Launcher, tmp_path: Path, answer: bytes
):
    certificate = certificates.self_signed(tmp_path)
    with serving(certificate, answer, says_goodbye=False) as port:
        trust(launcher, certificate, f"https://127.0.0.1:{port}")
        ran = launcher.run(*ONE, "true")
    assert ran.returncode == 125
    assert "does not answer" in ran.stderr


@pytest.mark.parametrize("name", OBJECTS)
def test_without_a_shared_object_python_serves_https(launcher: Launcher, tmp_path: Path, name: str):
    certificate = certificates.self_signed(tmp_path)
    (launcher.program.parent / name).write_bytes(b"no shared object")
    with serving(certificate) as port:
        trust(launcher, certificate, f"https://127.0.0.1:{port}")
        assert launcher.run(*ONE, "true").returncode == 42
