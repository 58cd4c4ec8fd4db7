"""Which files the configuration is read from, in which order, and what is logged with it."""

import logging

import pytest
from oslo_log import log

import gsaas.conf


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
def logging_as_before():
    """Loggers are of the whole process: they get their handlers and levels back."""
    names = ("", "gsaas", "pyroute2", "hpack", "alembic")
    before = [(each, each.level, list(each.handlers)) for each in map(logging.getLogger, names)]
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
