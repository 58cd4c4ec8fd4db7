"""Which files the configuration is read from, and in which order."""

import pytest

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
