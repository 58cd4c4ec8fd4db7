# SPDX-License-Identifier: Apache-2.0
"""Which user data of a tenant is refused, because cloud-init would drop all of it, and what is noted."""

from __future__ import annotations

import base64
import gzip
import json
from email.mime.base import MIMEBase
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gsaas.cloudinit import check, parts
from gsaas.exceptions import BadRequest
from tests.support.cloud_init import CloudInit

BOOTHOOK = "#cloud-boothook\n#!/bin/sh\necho ours\n"
CONFIG = "#cloud-config\npackages: [caller]\n"


def mime(*leaves: tuple[str, bytes], name: str = "") -> bytes:
    """A MIME message of leaves with any type and any content."""
    message = MIMEMultipart()
    for kind, content in leaves:
        leaf = MIMEBase(*kind.split("/"))
        leaf.set_payload(base64.encodebytes(content))
        leaf["Content-Transfer-Encoding"] = "base64"
        if name:
            leaf.add_header("Content-Disposition", "attachment", filename=name)
        message.attach(leaf)
    return message.as_bytes()


def archive(text: str) -> bytes:
    return f"#cloud-config-archive\n{text}".encode()


def survives(cloud_init: CloudInit, data: bytes) -> bool:
    """Whether cloud-init does anything with *data* alone."""
    try:
        cloud_init.read(data)
    except RuntimeError:
        return False
    return True


FATAL = {
    "a part that is no gzip": (
        mime(("text/cloud-config", CONFIG.encode()), ("application/x-gzip", b"#!/bin/sh\n")),
        "part 2 of user data has the type application/x-gzip",
    ),
    "a part with a name that is no gzip": (
        mime(("application/gzip", b"\x1f\x8b\x08 broken"), name="tools.gz"),
        "part 1 ('tools.gz') of user data has the type application/gzip",
    ),
    "a part that was cut off": (
        mime(("application/x-compressed", gzip.compress(CONFIG.encode() * 99)[:-9])),
        "part 1 of user data",
    ),
    "a part that is no text": (
        mime(("application/gzip", gzip.compress(b"\xff\xfe"))),
        "part 1 of user data",
    ),
    "MIME in another charset": (
        b"MIME-Version: 1.0\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho \xe9\n",
        "not UTF-8 at byte 67",
    ),
    "a header that breaks its line": (
        b"MIME-Version: 1.0\nX-Odd: a\x0cb: c\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n",
        "cannot be read",
    ),
    "an archive with an entry without content": (
        archive("- content: |\n    #!/bin/sh\n- type: text/cloud-config\n  content:\n"),
        "entry 2 of the archive in user data",
    ),
    "an archive with a mapping for content": (
        archive("- type: text/cloud-config\n  content: {packages: [x]}\n"),
        "entry 1 of the archive",
    ),
    "an archive with a type that is none": (
        archive("- {type: cloud-config, content: x}\n"),
        "entry 1 of the archive",
    ),
    "an archive with a number for a header": (
        archive("- {type: text/cloud-config, content: x, Size: 5}\n"),
        "entry 1 of the archive",
    ),
    "an archive that never ends": (archive("[" * 3000), "lists inside lists"),
    "an archive in MIME": (
        mime(("text/cloud-config-archive", archive("- {content: 5}\n"))),
        "entry 1 of the archive in part 1 of user data",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("data", "reason"), FATAL.values(), ids=FATAL.keys())
def test_what_would_make_cloud_init_drop_everything_is_refused_and_named(
    cloud_init: CloudInit, data: bytes, reason: str
):
    assert not survives(cloud_init, data)
    for sent in (data, gzip.compress(data)):
        with pytest.raises(BadRequest) as refusal:
            parts.compose(BOOTHOOK, sent)
        assert reason in str(refusal.value)
        assert "Cloud-init would drop all user data" in str(refusal.value)


def test_mime_of_too_many_parts_is_refused_unread():
    """Its parser looks at each line once for each boundary."""
    nested = b"".join(
        b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(1500)
    )
    many = b"Content-Type: multipart/mixed; boundary=a\n\n" + b"--a\n\n\n" * 30_000
    for data in (nested, many):
        with pytest.raises(BadRequest, match="too many parts to be read"):
            parts.compose(BOOTHOOK, b"MIME-Version: 1.0\n" + data)


def test_parts_are_unpacked_to_a_mebibyte_together():
    packed = gzip.compress(bytes(2**19))
    parts.compose(BOOTHOOK, mime(*[("application/gzip", packed)] * 2))
    with pytest.raises(BadRequest, match="unpacks to more than"):
        parts.compose(BOOTHOOK, mime(*[("application/gzip", packed)] * 3))


def test_the_time_to_look_at_user_data_grows_with_its_size_only():
    """A pattern that matches line ends after the beginning of each line takes minutes for these."""
    for piece in (b"\n", b" \n", b"\n[settings.", b"\nversion: ", b'{"ignition" ', b"\n<"):
        parts.notes(piece * (2**20 // len(piece)))


def test_heads_of_parts_of_gsaas_without_an_end_cost_little():
    """They pack to a few kB, and a search to the end of the data for each of them takes minutes."""
    heads = b"".join(
        b"--%032d\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: 7bit\n"
        b'Content-Disposition: attachment; filename="gsaas-boothook"\n\n' % number
        for number in range(6000)
    )
    assert parts.notes(gzip.compress(b"hello\n" + heads)) != []


types = st.sampled_from(
    [
        "application/gzip",
        "application/x-gzip",
        "application/octet-stream",
        "text/cloud-boothook",
        "text/cloud-config",
        "text/cloud-config-archive",
        "text/jinja2",
        "text/part-handler",
        "text/plain",
        "text/x-not-multipart",
        "text/x-odd",
        "text/x-shellscript",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=3)
entries = scalars | st.fixed_dictionaries(
    {},
    optional={
        "content": scalars | st.just(CONFIG) | st.just({}),
        "type": types | scalars,
        "filename": scalars,
        "X-Odd": scalars,
        "launch-index": scalars,
    },
)
archives = (
    st.lists(entries, max_size=3) | st.dictionaries(st.text(max_size=3), scalars) | scalars
).map(lambda content: archive(_yaml(content)))
plain = st.sampled_from(
    [
        CONFIG.encode(),
        "#cloud-config\n# größer".encode("latin-1"),
        b"#cloud-config\r\nruncmd:\r\n",
        b"\xef\xbb\xbf#cloud-config\n",
        b"#!/bin/sh\nexit 1\n",
        b"#cloud-boothook\n#!/bin/sh\nexit 1\n",
        b"#part-handler\nimport sys\nsys.exit()\n",
        b"## template: jinja\n#cloud-config\n{{ nothing }}\n",
        b"#upstart-job\n",
        b"",
        b"\0",
    ]
)
contents = (
    plain
    | archives
    | st.binary(max_size=20)
    | (plain | archives).map(lambda content: gzip.compress(content, mtime=0))
)


@st.composite
def messages(draw: st.DrawFn, depth: int = 2) -> MIMEBase:
    kind = draw(
        st.sampled_from(["leaf", "leaf", "text", "multipart", "message"][: 3 if not depth else 5])
    )
    if kind == "multipart":
        message = MIMEMultipart(boundary=f"boundary-{depth}")
        for _ in range(draw(st.integers(0, 3))):
            message.attach(draw(messages(depth - 1)))
        return message
    if kind == "message":
        return MIMEMessage(draw(messages(depth - 1)))
    if kind == "text":
        return MIMEText(draw(contents).decode(errors="replace"), "plain", "utf-8")
    leaf = MIMEBase(*draw(types).split("/"))
    leaf.set_payload(base64.encodebytes(draw(contents)))
    leaf["Content-Transfer-Encoding"] = draw(
        st.sampled_from(["base64", "8bit", "x-uuencode", "odd"])
    )
    return leaf


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(contents | messages().map(lambda message: message.as_bytes()))
@example(mime(("text/part-handler", b"#part-handler\nimport sys\nsys.exit()\n")))
def test_ours_is_run_first_whatever_the_tenant_sends_or_the_request_is_refused(
    cloud_init: CloudInit, data: bytes
):
    """Refused is just what costs cloud-init everything."""
    try:
        composed = parts.compose(BOOTHOOK, data)
    except BadRequest:
        assert not survives(cloud_init, data)
    else:
        found = cloud_init.read(composed)
        assert found.parts[0].content.decode() == BOOTHOOK
        assert found.files["boothooks/gsaas-boothook"] == "#!/bin/sh\necho ours\n"


OTHERS = {
    "Ignition": '{"ignition":{"version":"3.3.0"}}',
    "Ignition, spread over lines": '\n{\n  "systemd": {},\n  "ignition" : {"version": "2.3.0"}\n}\n',
    "Ignition of old": '{"ignitionVersion": 1}',
    "Ignition with a mistake": '{"ignition":{"version":"3.3.0"},}',
    "Butane": "variant: fcos\nversion: 1.5.0\n",
    "Talos": "# mine\nversion: v1alpha1\ndebug: false\nmachine:\n  type: worker\n",
    "Talos, newer document": "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: x\n",
    "PowerShell": "#ps1\nGet-Date\n",
    "PowerShell with CRLF": "#ps1_sysnative\r\nGet-Date\r\n",
    "PowerShell of 32 bits": "#ps1_x86\nGet-Date\n",
    "PowerShell with a byte-order mark": "\ufeff#ps1\nGet-Date\n",
    "batch file": "rem cmd\ndir\n",
    "EC2's PowerShell": "\n<powershell>\nGet-Date\n</powershell>\n",
    "EC2's script": "<script>\ndir\n</script>\n",
    "certificate": "-----BEGIN CERTIFICATE-----\nMIIB\n",
    "Bottlerocket": '# mine\n[settings.kubernetes]\napi-server = "https://x"\n',
    "Bottlerocket in one line": 'settings.motd = "hello"\n',
    "CoreOS": "#cloud-config\ncoreos:\n  units: []\n",
    "RancherOS": "#cloud-config\nrancher:\n  services: {}\n",
    "Kairos": "#cloud-config\n\nstages:\n  boot: []\n",
}


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS.keys())
def test_data_for_another_program_than_cloud_init_is_refused_with_what_to_do(data: str):
    sent = mime(("text/plain", data.encode()))
    for given_data in (data.encode(), gzip.compress(data.encode()), sent):
        with pytest.raises(BadRequest, match=r"user data is an? ") as refusal:
            parts.compose(BOOTHOOK, given_data)
        assert "a lease without a VM" in str(refusal.value)


OURS_ALL_THE_SAME = [
    '#!/bin/sh\necho \'{"ignition":{"version":"3.3.0"}}\'\n',
    "#cloud-config\nwrite_files: [{path: /x, content: '{\"ignition\": {}}'}]\n",
    "#cloud-config\nwrite_files:\n- content: |\n    coreos:\n    stages:\n",
    "#cloud-config\nwrite_files:\n- content: |\n    <html>\n    <script>\n    </script>\n",
    "#cloud-config\nwrite_files:\n- content: |\n    [Settings]\n    gtk-theme-name = x\n",
    "#cloud-config\nwrite_files:\n- content: |\n    settings.debug = True\n",
    "#include\nhttps://example.org/coreos\n",
    json.dumps({"hostname": "x"}),
    "version: v1alpha1\n",
    "hello\n",
]


@pytest.mark.parametrize("data", OURS_ALL_THE_SAME)
def test_what_only_mentions_another_program_is_not_refused(data: str):
    parts.compose(BOOTHOOK, data.encode())


NOTED = {
    "unknown": (b"hostname=web\nother\n", "it begins with 'hostname=web', which is no format"),
    "byte-order mark": (b"\xef\xbb\xbf#cloud-config\n", "byte-order mark"),
    "UTF-16": ("#cloud-config\n".encode("utf-16"), "UTF-16"),
    "binary": (b"\x7fELF\x02", r"\x02"),
    "base64 twice": (base64.encodebytes(CONFIG.encode()), "base64 twice"),
    "base64 of gzip": (base64.b64encode(gzip.compress(CONFIG.encode())), "base64 twice"),
    "include": (b"#include https://example.org/x\n", "cannot fetch"),
    "include in MIME": (mime(("text/x-include-url", b"https://example.org/x\n")), "part 1"),
}


@pytest.mark.parametrize(("data", "text"), NOTED.values(), ids=NOTED.keys())
def test_what_the_tenant_should_know_is_noted(data: bytes, text: str):
    (note,) = parts.notes(data)
    assert text in note


@pytest.mark.parametrize(
    "data",
    [
        CONFIG.encode(),
        b"#!/bin/sh\n",
        b"  \n#Cloud-Config\n",
        "#cloud-config\n# größer".encode("latin-1"),
        b"#cloud-config\r\n",
        b"\n",
        mime(("application/x-gzip", gzip.compress(CONFIG.encode())), ("text/plain", b"hello")),
    ],
)
def test_nothing_is_noted_of_what_cloud_init_takes(data: bytes):
    assert parts.notes(data) == []


def test_a_large_archive_is_not_looked_into():
    """YAML is read slowly, and a request is to cost little."""
    assert check.check(archive("- {content: 5}\n" * 9000)) == []


def _yaml(content: object) -> str:
    """YAML, written by hand where PyYAML would refuse what it could read."""
    import yaml

    return str(yaml.safe_dump(content, allow_unicode=True))
