# SPDX-License-Identifier: Apache-2.0
"""In composed user data cloud-init finds exactly what the caller said, and what we say."""

from __future__ import annotations

import base64
import email.mime.multipart
import email.mime.text
import gzip
import json
import random
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gsaas.cloudinit import parts
from gsaas.exceptions import BadRequest, UserDataTooLarge
from tests.support.cloud_init import CloudInit, Outcome

OURS = {
    "bootcmd": [["ours", "early"]],
    "packages": ["ours"],
    "runcmd": [["ours", "late"]],
    "write_files": [{"path": "/ours", "content": "é😀\n"}],
}
BOOTHOOK = "#cloud-boothook\n#!/bin/sh\necho ours\n"

CLOUD_CONFIG = """\
#cloud-config
# größer 😀
hostname: caller
bootcmd: [[caller, early]]
packages: [caller]
runcmd: [[caller, late]]
write_files: [{path: /caller, content: "x"}]
"""
SCRIPT = "#!/bin/sh\necho größer 😀  \nexit 0"
PART_HANDLER = """\
#part-handler
def list_types():
    return ["text/x-callers-own"]
def handle_part(data, ctype, filename, payload):
    pass
"""


def mime(*contents: tuple[str, str]) -> str:
    message = email.mime.multipart.MIMEMultipart()
    for subtype, text in contents:
        message.attach(email.mime.text.MIMEText(text, subtype, "utf-8"))
    return message.as_string()


CALLERS = {
    "cloud-config": CLOUD_CONFIG,
    "script": SCRIPT,
    "script with CRLF": SCRIPT.replace("\n", "\r\n"),
    "script with a very long line": "#!/bin/sh\n: " + "x=y " * 1000 + "\n",
    "boothook": "#cloud-boothook\n#!/bin/sh\necho caller\n",
    "part handler": PART_HANDLER,
    "jinja": "## template: jinja\n" + CLOUD_CONFIG.replace("caller", "{{ v1.instance_id }}"),
    "archive": "#cloud-config-archive\n" + yaml.safe_dump([SCRIPT, CLOUD_CONFIG]),
    "jsonp": "#cloud-config-jsonp\n"
    + json.dumps([{"op": "add", "path": "/runcmd", "value": [[1]]}]),
    "cloud-config with a merge_how": CLOUD_CONFIG + 'merge_how: "dict(replace)+list(prepend)"\n',
    "MIME": mime(("cloud-config", CLOUD_CONFIG), ("x-shellscript", SCRIPT)),
    "MIME with CRLF": mime(("cloud-config", CLOUD_CONFIG), ("x-shellscript", SCRIPT)).replace(
        "\n", "\r\n"
    ),
    "MIME from a mailer": "From nobody Thu Jan  1 00:00:00 1970\n"
    + mime(("x-shellscript", SCRIPT)),
    "MIME with parts that merge": mime(
        ("cloud-config", CLOUD_CONFIG),
        (
            "cloud-config",
            "#cloud-config\nmerge_how: list(append)+dict(recurse_list)\nruncmd: [[b]]\n",
        ),
    ),
    "MIME of one part": "Content-Type: text/x-shellscript\nMIME-Version: 1.0\n\n" + SCRIPT,
    "MIME that was cut short": mime(("x-shellscript", SCRIPT)).rstrip("\n-")[:-5],
    "script that sends mail": "#!/bin/sh\necho 'MIME-Version: 1.0' | sendmail root\n",
    "MIME with a part handler": mime(("part-handler", PART_HANDLER), ("x-callers-own", "mine\n")),
    "broken cloud-config": "#cloud-config\n{{{",
    "something else": "hello",
}


def composed(caller: bytes | None) -> bytes:
    return parts.compose(OURS, caller, BOOTHOOK)


def without_ours(found: Outcome) -> list:
    """The caller's parts, after a look that ours are there, intact, once, and last."""
    assert [(part.type, part.filename) for part in found.parts[-2:]] == [
        ("text/cloud-boothook", "gsaas-boothook"),
        ("text/cloud-config", "gsaas-cloud-config"),
    ]
    assert found.parts[-2].content.decode() == BOOTHOOK
    assert found.parts[-1].content.decode() == parts.cloud_config(OURS)
    return found.parts[:-2]


def test_without_a_caller_there_is_only_ours(cloud_init: CloudInit):
    found = cloud_init.read(composed(None))

    assert without_ours(found) == []
    assert found.config == OURS
    assert found.files == {"boothooks/gsaas-boothook": "#!/bin/sh\necho ours\n"}
    assert composed(b"") == composed(None)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS.keys())
def test_the_callers_data_is_read_as_if_it_stood_alone(
    cloud_init: CloudInit, caller: str, packed: bool
):
    data = gzip.compress(caller.encode()) if packed else caller.encode()
    alone = cloud_init.read(data)
    together = cloud_init.read(composed(data))

    assert without_ours(together) == alone.parts
    assert {k: v for k, v in together.files.items() if "gsaas" not in k} == alone.files
    assert together.log == alone.log
    for key, wanted in alone.config.items():
        ours = OURS.get(key, [])
        assert together.config[key] == (wanted + ours if isinstance(wanted, list) else wanted)
    for key, wanted in OURS.items():
        assert together.config[key][-len(wanted) :] == wanted


def test_what_the_caller_includes_is_fetched_and_merged(cloud_init: CloudInit, tmp_path: Path):
    included = tmp_path / "included"
    included.write_text(CLOUD_CONFIG)

    found = cloud_init.read(composed(f"#include\nfile://{included}\n".encode()))

    assert found.config["packages"] == ["caller", "ours"]
    assert found.log == []


def test_ours_alone_keeps_ours_apart_from_the_images_lists(cloud_init: CloudInit):
    """A scalar the caller set stays, and a mapping is merged, not replaced."""
    ours = {"hostname": "ours", "chpasswd": {"expire": False, "list": ["ours"]}}
    caller = b"#cloud-config\nhostname: caller\nchpasswd: {expire: true, list: [caller]}\n"

    found = cloud_init.read(parts.compose(ours, caller))

    assert found.config == {
        "hostname": "caller",
        "chpasswd": {"expire": True, "list": ["caller", "ours"]},
    }


pieces = st.sampled_from(
    [
        "#!/bin/sh\n",
        "#cloud-config\n",
        "From x\n",
        "--",
        "\r",
        "\r\n",
        "\n",
        " ",
        "=",
        ".\n",
        "é",
        "\x0c",
    ]
)
texts = st.lists(pieces | st.text(max_size=5)).map(
    lambda found: "".join(found).encode(errors="ignore")
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts | st.binary())
@example(b"\x1f\x8b\x08 gzip only by its first bytes")
@example("#!/bin/sh\necho Zeile  \n.\nFrom here\n".encode("latin-1"))
def test_no_byte_of_bare_user_data_is_lost(cloud_init: CloudInit, data: bytes):
    if data:
        assert without_ours(cloud_init.read(composed(data))) == cloud_init.read(data).parts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
def test_no_byte_of_a_mime_message_is_lost(cloud_init: CloudInit, body: bytes):
    data = b"MIME-Version: 1.0\nContent-Type: text/plain\n\n" + body
    assert without_ours(cloud_init.read(composed(data))) == cloud_init.read(data).parts


def test_a_caller_may_quote_a_message_of_ours(cloud_init: CloudInit):
    """User data that GSaaS composed comes back when a server is launched like another."""
    once = composed(SCRIPT.encode())

    found = cloud_init.read(composed(once))

    assert [part.type for part in without_ours(found)] == [
        "text/x-shellscript",
        "text/cloud-boothook",
        "text/cloud-config",
    ]


def test_the_same_input_gives_the_same_user_data():
    assert composed(SCRIPT.encode()) == composed(SCRIPT.encode())


def test_mime_in_another_charset_is_refused_because_cloud_init_would_drop_ours_too():
    data = b"MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho \xe9\n"
    with pytest.raises(BadRequest, match="not UTF-8 at byte 67"):
        composed(data)


def test_a_gzip_bomb_is_refused():
    with pytest.raises(BadRequest, match="unpacks to more than"):
        composed(gzip.compress(bytes(20 * 2**20)))


def test_small_user_data_is_sent_as_it_is():
    assert base64.b64decode(parts.encode(composed(None))) == composed(None)


def test_what_is_too_large_is_compressed(cloud_init: CloudInit):
    caller = CLOUD_CONFIG + "".join(f"# größer {number}\n" for number in range(10_000))

    text = parts.encode(composed(caller.encode()))

    assert len(text) <= parts.NOVA_LIMIT
    found = cloud_init.read(base64.b64decode(text))
    assert without_ours(found)[0].content.decode() == caller
    assert found.config["packages"] == ["caller", "ours"]


def test_what_stays_too_large_is_refused_with_how_much_is_too_much():
    noise = random.Random(1).randbytes(60_000)  # noqa: S311  noise, no secret
    data = composed(noise)

    with pytest.raises(UserDataTooLarge) as refusal:
        parts.encode(data)

    facts = refusal.value.facts
    assert facts["limit"] == 65_535
    assert facts["size"] > facts["limit"]
    excess = facts["excess"]
    assert len(parts.encode(composed(noise[: -excess - 1000]))) <= parts.NOVA_LIMIT


def test_the_cloud_config_is_one_that_cloud_init_knows(cloud_init: CloudInit):
    config = yaml.safe_load(parts.cloud_config(OURS))

    assert cloud_init.faults(config) == []
    assert cloud_init.faults({"write_files": "no list"}) != []
