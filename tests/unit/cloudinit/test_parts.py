# SPDX-License-Identifier: Apache-2.0
"""In composed user data cloud-init finds exactly what the caller said, and what we say."""

from __future__ import annotations

import base64
import email.mime.multipart
import email.mime.text
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from gsaas.cloudinit import parts
from gsaas.cloudinit.check import is_mime
from gsaas.exceptions import BadRequest, UserDataTooLarge
from tests.support.cloud_init import CloudInit, Outcome, Part

BOOTHOOK = "#cloud-boothook\n#!/bin/sh\necho ours é😀\n"

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
    "archive with a type and a name": "#cloud-config-archive\n"
    + yaml.safe_dump([{"type": "text/x-shellscript", "filename": "mine.sh", "content": SCRIPT}]),
    "archive that is no YAML": "#cloud-config-archive\n- {{{",
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
    "MIME with a handler for boothooks": mime(
        ("part-handler", PART_HANDLER.replace("text/x-callers-own", "text/cloud-boothook")),
        ("cloud-boothook", "#cloud-boothook\n#!/bin/sh\necho caller\n"),
    ),
    "MIME with our own names": mime(("cloud-boothook", "#cloud-boothook\n#!/bin/sh\n")).replace(
        "Content-Type: text/cloud-boothook",
        'Content-Disposition: attachment; filename="gsaas-boothook.sh"\nContent-Type: text/cloud-boothook',
    ),
    "cloud-config with an owner that it makes later": CLOUD_CONFIG
    + "users: [default, {name: alice}]\nwrite_files: [{path: /home/alice/x, owner: alice}]\n",
    "cloud-config with lists of nothing": "#cloud-config\nwrite_files:\nruncmd:\nbootcmd:\n",
    "broken cloud-config": "#cloud-config\n{{{",
    "with a byte-order mark": "\ufeff" + CLOUD_CONFIG,
    "white space": " \n\n",
    "something else": "hello",
}


def composed(caller: bytes | None) -> bytes:
    return parts.compose(BOOTHOOK, caller)


def without_ours(found: Outcome) -> list:
    """The caller's parts, after a look that ours is there, intact, once, and first."""
    ours, *rest = found.parts
    assert (ours.type, ours.filename) == ("text/cloud-boothook", "gsaas-boothook")
    assert ours.content.decode() == BOOTHOOK
    return rest


def numberless(found: list[Part] | dict[str, str] | list[str]) -> list[Any]:
    """*found* in its order, without the numbers of cloud-init's names for parts, which ours makes higher by one."""
    texts = found.items() if isinstance(found, dict) else found
    return [re.sub(r"\bpart-\d{3}\b", "part-N", repr(each)) for each in texts]


def test_without_a_caller_there_is_only_ours(cloud_init: CloudInit):
    found = cloud_init.read(composed(None))

    assert without_ours(found) == []
    assert found.config == {}
    assert found.files == {"boothooks/gsaas-boothook": "#!/bin/sh\necho ours é😀\n"}
    assert composed(b"") == composed(None)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS.keys())
def test_the_callers_data_is_read_as_if_it_stood_alone(
    cloud_init: CloudInit, caller: str, packed: bool
):
    data = gzip.compress(caller.encode()) if packed else caller.encode()
    alone = cloud_init.read(data)
    together = cloud_init.read(composed(data))

    assert numberless(without_ours(together)) == numberless(alone.parts)
    assert together.config == alone.config
    assert together.files.pop("boothooks/gsaas-boothook") == "#!/bin/sh\necho ours é😀\n"
    assert numberless(together.files) == numberless(alone.files)
    assert numberless(together.log) == numberless(alone.log)


def test_data_without_mime_keeps_the_name_that_cloud_init_gives_to_it(cloud_init: CloudInit):
    """Its log, and what administrators write about it, call a script by it."""
    together = cloud_init.read(composed(SCRIPT.encode()))

    assert without_ours(together) == cloud_init.read(SCRIPT.encode()).parts


def test_what_the_caller_includes_is_fetched_and_merged(cloud_init: CloudInit, tmp_path: Path):
    included = tmp_path / "included"
    included.write_text(CLOUD_CONFIG)

    found = cloud_init.read(composed(f"#include\nfile://{included}\n".encode()))

    assert found.config["packages"] == ["caller"]
    assert found.log == []


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


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts | st.binary())
@example(b"\x1f\x8b\x08 gzip only by its first bytes")
@example("#!/bin/sh\necho Zeile  \n.\nFrom here\n".encode("latin-1"))
def test_no_byte_of_bare_user_data_is_lost(cloud_init: CloudInit, data: bytes):
    assume(data and not is_mime(data))  # the number of a part of MIME is higher by one

    assert without_ours(cloud_init.read(composed(data))) == cloud_init.read(data).parts


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
def test_no_byte_of_a_mime_message_is_lost(cloud_init: CloudInit, body: bytes):
    data = b"MIME-Version: 1.0\nContent-Type: text/plain\n\n" + body
    found = without_ours(cloud_init.read(composed(data)))
    assert numberless(found) == numberless(cloud_init.read(data).parts)


OLDER = """\
Content-Type: multipart/mixed; boundary="0123456789abcdef0123456789abcdef"
MIME-Version: 1.0

--0123456789abcdef0123456789abcdef
Content-Type: text/x-not-multipart
Content-Transfer-Encoding: 7bit

#!/bin/sh
echo caller

--0123456789abcdef0123456789abcdef
Content-Type: text/cloud-boothook
Content-Transfer-Encoding: 7bit
Content-Disposition: attachment; filename="gsaas-boothook"

#cloud-boothook
#!/bin/sh
echo an earlier lease

--0123456789abcdef0123456789abcdef
Content-Type: text/cloud-config
Content-Transfer-Encoding: quoted-printable
Content-Disposition: attachment; filename="gsaas-cloud-config"

#cloud-config
write_files: [{path: /ours, content: an earlier lease}]

--0123456789abcdef0123456789abcdef--
"""
"""What release 1.0 composed."""


@pytest.mark.parametrize(
    "quoted",
    [
        OLDER.encode(),
        parts.compose(BOOTHOOK.replace("ours", "theirs"), b"#!/bin/sh\necho caller\n"),
    ],
    ids=["older", "this"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_user_data_of_an_earlier_lease_comes_back_without_what_gsaas_added(
    cloud_init: CloudInit, quoted: bytes, packed: bool
):
    """Nova shows it, and a VM is launched like another with it: the environment has to be that of the new lease."""
    found = cloud_init.read(composed(gzip.compress(quoted) if packed else quoted))

    (part,) = without_ours(found)
    assert (part.type, part.content) == ("text/x-shellscript", b"#!/bin/sh\necho caller\n")
    assert found.config == {}
    assert "theirs" not in str(found.files)


def test_the_same_input_gives_the_same_user_data():
    assert composed(SCRIPT.encode()) == composed(SCRIPT.encode())


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
    assert found.config["packages"] == ["caller"]


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
