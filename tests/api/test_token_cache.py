# SPDX-License-Identifier: Apache-2.0
"""Keystone's token is asked for once, by the programs in C and in Python, and never used for other credentials."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from openstack.config import loader

from gsaasclient import token_cache
from gsaasclient.api import Client
from gsaasclient.credentials import KeystoneCredentials
from gsaasclient.errors import ApiError
from gsaasclient.token_cache import Cache, Token
from tests.api.test_client_cloud import CloudUser, write_clouds_yaml
from tests.api.test_client_cloud import certificate as certificate
from tests.api.test_client_cloud import user as user
from tests.support import certificates
from tests.support.launcher import OBJECTS, Launcher
from tests.support.tls_proxy import ending_tls

ONE = ("-ncgpus=1", "--")
CLI = """#!/bin/sh
echo "$*" >>{log}
exec {real} "$@"
"""


class Programs:
    """`gsaas` in C, and a `gsaas-cli` beside it that notes when it is called."""

    def __init__(self, built: Path, folder: Path) -> None:
        self.log = folder / "calls"
        for name in ("gsaas", *OBJECTS):
            shutil.copy(built / name, folder / name)
        cli = folder / "gsaas-cli"
        cli.write_text(CLI.format(log=self.log, real=built / "gsaas-cli"))
        cli.chmod(0o755)
        self.launcher = Launcher(folder / "gsaas", folder, {"GSAAS_CREDENTIALS": ""})
        self.python = Launcher(built / "gsaas-cli", folder, {"GSAAS_CREDENTIALS": ""})

    def calls(self) -> list[str]:
        """Return the arguments of each call of gsaas-cli, and forget them."""
        found = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [words.partition(" ")[0] for words in found]


@pytest.fixture
def both(programs: Path, tmp_path: Path) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Programs(programs, folder)


@pytest.fixture
def files(user: CloudUser, tmp_path: Path) -> Callable[[], list[Path]]:
    """What is in the cache."""
    return lambda: sorted((tmp_path / "cache" / "gsaas").glob("*"))


def succeeds(launcher: Launcher, *command: str) -> None:
    ran = launcher.run(*ONE, *(command or ("true",)))
    assert (ran.returncode, ran.stderr) == (0, "")


def test_python_signs_in_and_c_goes_on_with_its_token(user: CloudUser, both: Programs):
    succeeds(both.launcher)
    assert (both.calls(), user.keystone.sign_ins) == (["run"], ["ada"])
    succeeds(both.launcher)
    succeeds(both.python)
    user.read("list")
    assert (both.calls(), user.keystone.sign_ins) == ([], ["ada"])


def test_the_cached_token_is_for_its_user_alone(user: CloudUser, files):
    user.read("list")
    (file,) = files()
    folder = file.parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, folder)] == [0o600, 0o700]
    assert b"lovelace" not in file.read_bytes()
    assert json.loads(file.read_text())["token"] == "first"


def test_of_many_commands_at_once_one_signs_in(user: CloudUser, both: Programs):
    processes = [both.launcher.start(*ONE, "true") for _ in range(6)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
    assert user.keystone.sign_ins == ["ada"]


def test_a_token_is_not_used_for_another_password(user: CloudUser, both: Programs):
    user.read("list")
    user.set(OS_PASSWORD="babbage")
    assert both.launcher.run(*ONE, "true").returncode == 125
    assert "does not accept your credentials" in user.refused("list")


def test_a_token_is_not_used_for_another_project(user: CloudUser, both: Programs):
    user.read("list")
    user.set(OS_PROJECT_NAME="red")
    succeeds(both.launcher)
    assert (both.calls(), len(user.keystone.sign_ins)) == (["run"], 2)


def test_a_token_is_not_used_for_another_entry_of_clouds_yaml(
    user: CloudUser, both: Programs, tmp_path: Path
):
    write_clouds_yaml(tmp_path, user.keystone.url)
    user.keystone.enrol("grace", "hopper", ["first"])
    user.set(OS_CLOUD="here")
    user.read("list")
    succeeds(both.launcher)
    assert both.calls() == []
    write_clouds_yaml(tmp_path, user.keystone.url, region_name="Elsewhere")
    assert both.launcher.run(*ONE, "true").returncode == 125
    assert "Elsewhere" in user.refused("list")


def test_a_token_near_its_end_is_not_used(user: CloudUser, both: Programs, files):
    user.read("list")
    rewrite(files()[0], expires_at=int(time.time()) + token_cache.MARGIN)
    succeeds(both.launcher)
    assert (both.calls(), len(user.keystone.sign_ins)) == (["run"], 2)


@pytest.mark.parametrize("program", ["launcher", "python"])
def test_a_token_that_was_revoked_is_replaced(user: CloudUser, both: Programs, files, program: str):
    user.keystone.give_out("second", roles=["member", "reader"])
    user.keystone.enrol("ada", "lovelace", ["first", "second"])
    user.read("list")
    user.keystone.revoke("first")
    succeeds(getattr(both, program))
    assert json.loads(files()[0].read_text())["token"] == "second"


def test_a_token_that_ends_while_the_command_runs_is_renewed(
    user: CloudUser, both: Programs, tmp_path: Path
):
    user.keystone.give_out("second", roles=["member", "reader"])
    user.keystone.enrol("ada", "lovelace", ["first", "second"])
    user.read("list")
    gate = tmp_path / "gate"
    script = f"echo begun; until [ -e {gate} ]; do sleep 0.02; done; exit 5"
    process = both.launcher.start(*ONE, "sh", "-c", script)
    assert process.stdout.readline() == "begun\n"
    user.keystone.revoke("first")
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (5, "")
    assert both.calls() == ["renew-token"]
    assert {lease["status"] for lease in user.read("list")} == set()


def test_a_token_that_cannot_be_renewed_leaves_the_lease_to_its_keepalive(
    user: CloudUser, both: Programs
):
    user.read("list")
    process = both.launcher.start(*ONE, "sh", "-c", "echo begun; read line; exit 5")
    assert process.stdout.readline() == "begun\n"
    user.keystone.revoke("first")
    user.keystone.enrol("ada", "changed", ["first"])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "it ends by itself within 60 s" in err


def test_an_api_that_has_moved_is_found_again(user: CloudUser, both: Programs, files):
    user.read("list")
    user.keystone.endpoints[0]["url"], here = "http://127.0.0.1:1", user.url
    for file in files():
        file.unlink()
    user.refused("list")
    user.keystone.endpoints[0]["url"] = here
    user.read("list")
    (file,) = files()
    rewrite(file, url="http://127.0.0.1:1")
    succeeds(both.launcher)
    rewrite(file, url="http://127.0.0.1:1")
    assert user.read("list") == []


class Stranger:
    """What answers where the API was: every request with the same status and body. *methods* are those of requests."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.status = 404
        self.body = b"<html>no such page</html>"
        self.type = "text/html"
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline()
                self.close_connection = True
                if self.raw_requestline and self.parse_request():
                    self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    stranger.methods.append(self.command)
                    self.send_response(stranger.status)
                    self.send_header("Content-Type", stranger.type)
                    self.send_header("Content-Length", str(len(stranger.body)))
                    self.end_headers()
                    self.wfile.write(stranger.body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def has(self, file: Path) -> None:
        """Have the cached token be for this address."""
        rewrite(file, url=self.url)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    found = Stranger()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.mark.parametrize("status", [404, 502, 503, 504])
def test_an_api_whose_former_address_another_program_has_is_found_again(
    user: CloudUser, stranger: Stranger, files, status: int
):
    user.read("list")
    (file,) = files()
    stranger.has(file)
    stranger.status = status
    assert user.read("list") == []
    assert stranger.methods == ["GET"]
    assert json.loads(file.read_text())["url"] == user.url


def test_another_service_of_the_cloud_at_the_former_address_is_not_the_api(
    user: CloudUser, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    stranger.type, stranger.body = "application/json", b'{"errors": [{"status": 404}]}'
    assert user.read("list") == []


def test_a_launch_with_a_key_is_sent_again_to_where_the_api_is(
    user: CloudUser, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    stranger.status = 502
    Client(KeystoneCredentials(os.environ)).launch({"cgpus": {"count": 1}})
    assert stranger.methods == ["POST"]
    assert len(user.read("list")) == 1


@pytest.mark.parametrize("status", [404, 502])
def test_what_may_have_taken_effect_is_not_sent_again_but_the_next_request_finds_the_api(
    user: CloudUser, stranger: Stranger, files, status: int
):
    user.read("list")
    stranger.has(files()[0])
    stranger.status = status
    client = Client(KeystoneCredentials(os.environ))
    with pytest.raises(ApiError, match=f"HTTP status {status}"):
        client.request("DELETE", "/v1/leases/11111111-2222-3333-4444-555555555555")
    assert (stranger.methods, files()) == (["DELETE"], [])
    assert client.request("GET", "/v1/leases")["leases"] == []
    assert stranger.methods == ["DELETE"]


def test_c_leaves_a_launch_to_python_if_what_answers_has_no_leases(
    user: CloudUser, both: Programs, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    succeeds(both.launcher)
    assert (both.calls(), stranger.methods) == (["run"], ["POST"])
    succeeds(both.launcher)
    assert both.calls() == []


def test_c_launches_once_if_a_proxy_answers_and_the_next_launch_finds_the_api(
    user: CloudUser, both: Programs, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    stranger.status = 502
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls(), files()) == (125, [], [])
    assert "HTTP status 502" in ran.stderr
    succeeds(both.launcher)
    assert stranger.methods == ["POST"]


def test_c_keeps_the_token_if_the_error_is_of_the_api_itself(
    user: CloudUser, both: Programs, stranger: Stranger, files
):
    user.read("list")
    (file,) = files()
    stranger.has(file)
    error = {"code": "gsaas.database.unreachable", "status": 503, "detail": "try again"}
    stranger.status, stranger.type = 503, "application/json"
    stranger.body = json.dumps({"errors": [error]}).encode()
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls(), files()) == (125, [], [file])
    assert "try again" in ran.stderr


def test_an_error_of_the_api_itself_leaves_the_token_in_the_cache(
    user: CloudUser, stranger: Stranger, files
):
    user.read("list")
    (file,) = files()
    client = Client(KeystoneCredentials(os.environ))
    with pytest.raises(ApiError) as refused:
        client.request("GET", "/v1/leases/11111111-2222-3333-4444-555555555555")
    assert refused.value.status == 404
    stranger.has(file)
    error = {"code": "gsaas.database.unreachable", "status": 503, "detail": "try again"}
    stranger.status, stranger.type = 503, "application/json"
    stranger.body = json.dumps({"errors": [error]}).encode()
    assert "try again" in user.refused("list")
    assert user.keystone.sign_ins == ["ada"]
    assert file.exists()


def rewrite(file: Path, **members: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | members))


# What somebody may have put there instead


def group_readable(file: Path) -> None:
    file.chmod(0o640)


def a_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def of_another_user(file: Path) -> None:
    os.chown(file, 12345, -1)


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def too_large(file: Path) -> None:
    file.write_text(file.read_text() + " " * token_cache.MAX_BYTES)


def a_queue(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir(mode=0o700)


def of_another_version(file: Path) -> None:
    rewrite(file, version=token_cache.VERSION + 1)


def expired(file: Path) -> None:
    rewrite(file, expires_at=int(time.time()) - 1)


def without_proof(file: Path) -> None:
    rewrite(file, proof="")


def with_another_proof(file: Path) -> None:
    rewrite(file, proof="0" * 64)


def with_a_line_in_the_token(file: Path) -> None:
    rewrite(file, token="first\r\nX-Other: header")


def with_another_scheme(file: Path) -> None:
    rewrite(file, url="file:///etc/passwd")


def https_without_a_bundle(file: Path) -> None:
    rewrite(file, url="https://127.0.0.1:1", bundle=None)


def a_list(file: Path) -> None:
    file.write_text("[]")


def deep(file: Path) -> None:
    file.write_text("[" * 60_000)


def folder_open_to_others(file: Path) -> None:
    file.parent.chmod(0o755)


def folder_of_another_user(file: Path) -> None:
    os.chown(file.parent, 12345, -1)


def folder_is_a_link(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))
    file.parent.symlink_to("moved")


BAD = [
    *(group_readable, a_link, of_another_user, half, too_large, a_queue, a_folder),
    *(of_another_version, expired, without_proof, with_another_proof, with_a_line_in_the_token),
    *(with_another_scheme, https_without_a_bundle, a_list, deep),
    *(folder_open_to_others, folder_of_another_user, folder_is_a_link),
]


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_what_is_no_file_of_the_cache_is_ignored(
    user: CloudUser, both: Programs, files, spoil: Callable[[Path], None]
):
    if spoil in (of_another_user, folder_of_another_user) and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    user.read("list")
    (file,) = files()
    spoil(file)
    succeeds(both.launcher)
    assert (both.calls(), len(user.keystone.sign_ins)) == (["run"], 2)


def test_what_a_link_leads_to_is_not_written(user: CloudUser, files, tmp_path: Path):
    user.read("list")
    (file,) = files()
    own = tmp_path / "own"
    own.write_text("mine")
    file.unlink()
    file.symlink_to(own)
    user.read("list")
    assert own.read_text() == "mine"
    assert not file.is_symlink()


def test_without_a_place_for_the_cache_everything_works(
    user: CloudUser, both: Programs, tmp_path: Path
):
    blocked = tmp_path / "blocked"
    blocked.touch()
    user.set(XDG_CACHE_HOME=str(blocked))
    assert user.read("list") == []
    succeeds(both.launcher)
    assert both.calls() == ["run"]
    user.set(HOME=None)
    assert user.read("list") == []


@pytest.mark.parametrize("base", [None, "named"])
def test_in_the_home_of_another_user_no_cache_is_made(
    user: CloudUser, both: Programs, tmp_path: Path, base: str | None
):
    """`sudo` may keep HOME: what root made there, its owner could not use or remove.

    stevedore, which the SDK uses, makes a folder of its own there, whose owner is root.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 12345, -1)
    user.set(HOME=str(home), XDG_CACHE_HOME=base and str(home / base))
    for _ in range(2):
        assert user.read("list") == []
        succeeds(both.launcher)
    assert list(home.rglob("gsaas")) == []


def test_a_place_for_the_cache_in_another_users_folder_is_not_made(tmp_path: Path):
    """`sudo` may also keep XDG_CACHE_HOME alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, -1)
    place = Cache(str(theirs / "cache" / "gsaas"), "one.json", b"credentials")
    place.write(Token("http://api", "first", 2_000_000_000))
    with place.alone():
        assert place.read() is None
    assert list(theirs.iterdir()) == []


def test_in_the_home_of_this_user_the_folders_are_made(user: CloudUser, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    user.set(HOME=str(home), XDG_CACHE_HOME=None)
    user.read("list")
    folder = home / ".cache" / "gsaas"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.parametrize("variable", ["https_proxy", "HTTP_PROXY", "all_proxy"])
def test_with_a_proxy_nothing_is_cached(user: CloudUser, both: Programs, files, variable: str):
    user.set(**{variable: "http://127.0.0.1:1", "no_proxy": "127.0.0.1"})
    user.read("list")
    succeeds(both.launcher)
    assert (both.calls(), files()) == (["run"], [])


def test_files_of_expired_tokens_are_removed(user: CloudUser, files):
    user.read("list")
    (old,) = files()
    rewrite(old, expires_at=int(time.time()) - 1)
    user.set(OS_PROJECT_NAME="red")
    user.read("list")
    (new,) = files()
    assert new != old


# TLS


@pytest.fixture
def tls_user(user: CloudUser, certificate: tuple[str, str]) -> Iterator[CloudUser]:
    """The same, with an API that speaks TLS."""
    with ending_tls(user.url, certificate) as url:
        user.keystone.endpoints[0]["url"] = url
        user.set(OS_CACERT=certificate[0])
        yield user


def test_c_verifies_with_the_certificates_of_the_python_client(
    tls_user: CloudUser, both: Programs, files, certificate: tuple[str, str]
):
    tls_user.read("list")
    assert json.loads(files()[0].read_text())["bundle"] == certificate[0]
    succeeds(both.launcher)
    tls_user.read("list")
    assert (both.calls(), tls_user.keystone.sign_ins) == ([], ["ada"])


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_for_the_http_library_is_used_by_all(
    tls_user: CloudUser, both: Programs, certificate: tuple[str, str], variable: str
):
    unset = {"OS_CACERT": None, "REQUESTS_CA_BUNDLE": None, "CURL_CA_BUNDLE": None}
    tls_user.set(**unset | {variable: certificate[0]})
    tls_user.read("list")
    succeeds(both.launcher)
    assert both.calls() == []


def test_a_certificate_of_another_authority_gets_no_token(
    tls_user: CloudUser, both: Programs, files, tmp_path: Path
):
    tls_user.read("list")
    folder = tmp_path / "other"
    folder.mkdir()
    authority = certificates.self_signed(folder)[0]
    rewrite(files()[0], bundle=authority)
    tls_user.keystone.endpoints.clear()
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls()) == (125, ["run"])
    assert "no public endpoint" in ran.stderr  # what the catalogue says now


def test_one_of_many_authorities_is_enough(
    tls_user: CloudUser, both: Programs, certificate: tuple[str, str], tmp_path: Path
):
    own = Path(certificate[0]).read_text()
    others = [other_authority(tmp_path / str(number)) for number in range(3)]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("some words\n" + "".join([*others[:2], own, *others[2:]]))
    tls_user.set(OS_CACERT=str(bundle))
    tls_user.read("list")
    both.calls()
    succeeds(both.launcher)
    assert both.calls() == []


def other_authority(folder: Path) -> str:
    folder.mkdir()
    return Path(certificates.self_signed(folder)[0]).read_text()


def test_a_bundle_that_has_changed_is_read_again(
    tls_user: CloudUser, both: Programs, certificate: tuple[str, str], tmp_path: Path
):
    bundle = tmp_path / "bundle.pem"
    shutil.copy(certificate[0], bundle)
    tls_user.set(OS_CACERT=str(bundle))
    tls_user.read("list")
    bundle.write_text(other_authority(tmp_path / "other"))
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls()) == (125, ["run"])
    assert "self-signed certificate" in ran.stderr
    assert "self-signed certificate" in tls_user.refused("list")


def test_a_connection_that_is_not_verified_is_left_to_python(
    tls_user: CloudUser, both: Programs, files
):
    tls_user.set(OS_CACERT=None, OS_INSECURE="true")
    tls_user.read("list")
    succeeds(both.launcher)
    assert (both.calls(), files()) == (["run"], [])


def test_a_file_of_credentials_with_https_is_served_by_c(
    user: CloudUser, both: Programs, certificate: tuple[str, str], tmp_path: Path
):
    path = tmp_path / "own.json"
    user.set(SSL_CERT_FILE=certificate[0])
    both.launcher.credentials = both.python.credentials = path
    both.launcher.environment = both.python.environment = {}
    with ending_tls(user.url, certificate) as url:
        both.launcher.use(url, "first")
        succeeds(both.launcher)
        succeeds(both.python)
        assert both.calls() == []
        user.set(SSL_CERT_FILE="/dev/null")
        for launcher in (both.launcher, both.python):
            ran = launcher.run(*ONE, "true")
            assert ran.returncode == 125
            assert "certificate verify failed" in ran.stderr


# What is hashed


def test_every_file_in_which_the_sdk_looks_is_hashed(monkeypatch: pytest.MonkeyPatch):
    searched = {*loader.CONFIG_FILES, *loader.SECURE_FILES, *loader.VENDOR_FILES}
    hashed = token_cache.configuration_files(os.environ, os.environ["HOME"])
    assert searched <= {str(Path(path).absolute()) for path in hashed}


def test_a_configuration_that_is_no_regular_file_is_not_read(user: CloudUser, tmp_path: Path):
    path = tmp_path / "queue"
    os.mkfifo(path)
    assert token_cache.find({**os.environ, "OS_CLIENT_CONFIG_FILE": str(path)}) is None


# Concurrent writers


def write_many(folder: Path, number: int) -> None:
    place = Cache(str(folder), "one.json", b"credentials")
    for _ in range(200):
        place.write(Token("http://api", f"token-{number}-" + "x" * 20_000, 2_000_000_000 + number))


def test_no_reader_finds_half_of_a_file(tmp_path: Path):
    folder = tmp_path / "gsaas"
    place = Cache(str(folder), "one.json", b"credentials")
    place.write(Token("http://api", "first", 2_000_000_000))
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(folder, number)) for number in range(3)]
    for writer in writers:
        writer.start()
    found = 0
    while any(writer.is_alive() for writer in writers):
        token = place.read()
        assert token is not None
        found += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert found > 0
    assert [path.name for path in folder.iterdir()] == ["one.json"]
