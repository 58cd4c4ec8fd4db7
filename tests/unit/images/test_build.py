# SPDX-License-Identifier: Apache-2.0
"""How the images are built: with the settings of pip on this machine, which no image keeps."""

from __future__ import annotations

from pathlib import Path

from images.build import build_command, pip_conf, pip_settings

LISTED = [
    ":env:.cert='/etc/ssl/ours.crt'",
    "global.cert='/etc/ssl/old.crt'",
    "global.index-url='https://pypi.example.org/simple'",
    "global.extra-index-url='\\nfile:///srv/simple\\nhttps://more.example.org/simple'",
    "global.find-links='/srv/wheels'",
]


def test_variables_override_the_files_of_pip():
    assert pip_settings(LISTED) == {
        "cert": "/etc/ssl/ours.crt",
        "index-url": "https://pypi.example.org/simple",
        "extra-index-url": "\nfile:///srv/simple\nhttps://more.example.org/simple",
        "find-links": "/srv/wheels",
    }


def test_a_build_gets_the_indexes_but_no_folder_of_this_machine():
    assert pip_conf(pip_settings(LISTED)) == (
        "[global]\n"
        "cert = /run/pip-ca.crt\n"
        "index-url = https://pypi.example.org/simple\n"
        "extra-index-url = https://more.example.org/simple\n"
    )


def test_what_this_machine_installs_says_nothing_of_what_an_image_does():
    own = ["global.constraint='/etc/pip/own.txt'", "install.user='true'", ":env:.no-binary='lxml'"]
    assert pip_conf(pip_settings(LISTED + own)) == pip_conf(pip_settings(LISTED))


def test_how_packages_are_reached_is_told_to_a_build():
    reached = [
        "global.proxy='http://proxy.example.org:3128'",
        "global.trusted-host='\\na.example.org\\nb.example.org'",
        ":env:.default-timeout='180'",
    ]
    assert pip_conf(pip_settings(reached)) == (
        "[global]\nproxy = http://proxy.example.org:3128\n"
        "trusted-host = a.example.org b.example.org\ndefault-timeout = 180\n"
    )


def test_settings_of_pip_are_secrets_of_the_build():
    command = build_command("api", "localhost/debian", {"pip": Path("/run/pip.conf")})
    assert "--secret=id=pip,src=/run/pip.conf" in command
    assert "--build-arg=BASE=localhost/debian" in command
    assert not any("pip" in word for word in command if not word.startswith("--secret"))
