# SPDX-License-Identifier: Apache-2.0
"""Which files the configuration is read from, in which order, and what is logged with it."""

import logging

import pytest
from oslo_config import cfg
from oslo_log import log

import gsaas.conf
from gsaas.conf import config_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder instead of /etc/gsaas, and a home. The name of a policy tells from which file it was read."""
    monkeypatch.setattr(gsaas.conf, "FOLDER", tmp_path / "etc")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "etc"


def policy(**what):
    return gsaas.conf.load(**what).gpgpums.policy


def write(path, policy):
    path.write_text(f"[gpgpums]\npolicy = {policy}\n")


def test_the_file_of_a_process_overrides_that_of_all(folder):
    write(folder / "gsaas.conf", "for-all")
    write(folder / "gsaas-engine.conf", "for-the-engine")
    assert (policy(), policy(prog="gsaas-engine")) == ("for-all", "for-the-engine")
    assert policy(prog="gsaas-rodvr") == "for-all"


def test_a_file_in_the_callers_home_is_not_read(folder):
    for hidden in ("", ".gsaas/"):
        draft = folder.parent / "home" / hidden / "gsaas.conf"
        draft.parent.mkdir(exist_ok=True)
        write(draft, "a-draft")
    assert policy() != "a-draft"
    write(folder / "gsaas.conf", "installed")
    assert policy() == "installed"


def test_files_in_the_conf_d_folder_override_the_file(folder):
    write(folder / "gsaas.conf", "the-file")
    (folder / "gsaas.conf.d").mkdir()
    write(folder / "gsaas.conf.d" / "10.conf", "a-piece")
    assert policy() == "a-piece"


@pytest.fixture
def problems(folder):
    """What is said of a configuration file with this text, without the folder of the file."""

    def problems(text):
        (folder / "gsaas.conf").write_text(text)
        return [said.removeprefix(f"{folder}/") for said in gsaas.conf.problems(gsaas.conf.load())]

    return problems


def test_a_typing_error_in_a_name_is_reported_with_the_name_that_it_resembles(problems):
    assert problems("[gpgpums]\npolicey = best-fit\n[engine]\naudit-intervall = 3\n") == [
        "gsaas.conf:4: no process reads [engine]audit_intervall: do you mean [engine]audit_interval?",
        "gsaas.conf:2: no process reads [gpgpums]policey: do you mean [gpgpums]policy?",
    ]


def test_an_option_in_another_section_is_reported_with_its_own(problems):
    assert problems("[DEFAULT]\ngate_port = 8309\n[api]\nbackfill = true\n") == [
        "gsaas.conf:2: no process reads [DEFAULT]gate_port: do you mean [grants]gate_port?",
        "gsaas.conf:4: no process reads [api]backfill: do you mean [queue]backfill?",
    ]


def test_a_typing_error_in_a_section_is_reported(problems):
    assert problems("[gpgpum]\npolicy = best-fit\n") == [
        "gsaas.conf:1: no process reads the section [gpgpum]: do you mean [gpgpums]?"
    ]


def test_an_option_that_was_never_there_is_reported_in_sections_that_only_gsaas_has(problems):
    (said,) = problems("[queue]\ncolour = blue\n[nova]\ncolour = blue\n[mine]\ncolour = blue\n")
    start = "gsaas.conf:2: no process reads [queue]colour: the options of [queue] are "
    assert said.startswith(start)
    assert set(said.removeprefix(start).split(", ")) == {
        option.dest for option in gsaas.conf.queue.OPTS
    }


def test_every_value_that_is_not_allowed_is_named_with_its_line_and_what_is(folder):
    (folder / "gsaas.conf").write_text(
        "# ours\n[gpgpums]\nallowed_policies = best-fit,\n    first-fit\nheartbeat_timeout: soon\n"
        "[remoting]\ndefault_kind = tpu\n"
    )
    with pytest.raises(cfg.Error) as error:
        gsaas.conf.load()
    timeout, kind = str(error.value).split("; ")
    assert timeout == (
        f"{folder}/gsaas.conf:5: [gpgpums]heartbeat_timeout: 'soon' is not a whole number of at least 2"
    )
    assert kind.startswith(f"{folder}/gsaas.conf:7: [remoting]default_kind: ")
    assert "cuda" in kind


def test_an_option_under_its_former_name_still_works_and_is_reported(problems, folder):
    assert problems("[rodvr]\nfarewell = 7\n") == [
        "gsaas.conf:2: [rodvr]farewell is deprecated: write [rodvr]grace instead"
    ]
    assert gsaas.conf.load().rodvr.grace == 7


def test_the_files_of_the_conf_d_folder_are_checked_too(problems, folder):
    (folder / "gsaas.conf.d").mkdir()
    (folder / "gsaas.conf.d" / "10.conf").write_text("[rodvr]\ngpu_devise = gpu1\n")
    assert problems("") == [
        "gsaas.conf.d/10.conf:2: no process reads [rodvr]gpu_devise: do you mean [rodvr]gpu_device?"
    ]


def test_options_of_libraries_are_no_problem(problems):
    """Those of oslo.messaging, keystoneauth and others are registered when they are needed, or never."""
    text = """
    [DEFAULT]
    transport_url = rabbit://gsaas:secret@controller:5672/
    rpc_response_timeout = 60
    control_exchange = gsaas
    debug = true
    [database]
    connection = sqlite://
    [keystone_authtoken]
    auth_type = password
    auth_url = https://keystone.example.org/v3
    [service_user]
    auth_type = password
    [nova]
    region_name = RegionOne
    valid_interfaces = internal
    [neutron]
    [glance]
    [placement]
    [oslo_limit]
    [oslo_middleware]
    [oslo_messaging_rabbit]
    rabbit_quorum_queue = true
    [cors]
    """
    assert problems("\n".join(line.strip() for line in text.splitlines())) == []


def test_a_deprecated_option_is_reported_with_what_to_do_now():
    old = cfg.StrOpt(
        "colour",
        deprecated_for_removal=True,
        deprecated_since="1.1",
        deprecated_reason="every GPU is green now.",
    )
    found = config_files.deprecated({"api": {"colour"}}, {"api": [old]})
    said = "[api]colour is deprecated since 1.1 and will be removed: every GPU is green now."
    assert list(found) == [("api", "colour", said)]


def test_whatever_is_deprecated_for_removal_says_since_when_and_why():
    for module in gsaas.conf.MODULES:
        for options in module.list_opts().values():
            for option in options:
                if option.deprecated_for_removal:
                    assert option.deprecated_since, option.name
                    assert option.deprecated_reason, option.name


@pytest.fixture
def logging_as_before():
    """Loggers are of the whole process: they begin without levels of other tests, and get theirs back."""
    names = ("", "gsaas", "pyroute2", "hpack", "alembic")
    before = [(each, each.level, list(each.handlers)) for each in map(logging.getLogger, names)]
    for logger, *_ in before:
        logger.setLevel(logging.NOTSET)
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def test_debugging_gsaas_shows_no_message_that_a_library_encodes(logging_as_before, tmp_path):
    debugging = tmp_path / "debug.conf"
    debugging.write_text("[DEFAULT]\ndebug = true\n")
    log.setup(gsaas.conf.load(files=[str(debugging)]), "gsaas")
    assert logging.getLogger("gsaas.rodvr.kernel").isEnabledFor(logging.DEBUG)
    for library in ("pyroute2.netlink.core", "hpack.hpack"):
        assert not logging.getLogger(library).isEnabledFor(logging.DEBUG)
        assert logging.getLogger(library).isEnabledFor(logging.INFO)
