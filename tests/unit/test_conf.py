"""Where the configuration is read from."""

import pytest

import gsaas.conf


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stands for /etc/gsaas, beside the caller's home; the name of a policy says which file was read."""
    monkeypatch.setattr(gsaas.conf, "FOLDER", tmp_path / "etc")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "etc"


def policy(**what):
    return gsaas.conf.load(**what).gpgpums.policy


def write(path, policy):
    path.write_text(f"[gpgpums]\npolicy = {policy}\n")


def test_the_file_of_a_process_goes_before_that_of_all(folder):
    write(folder / "gsaas.conf", "of-all")
    write(folder / "gsaas-engine.conf", "of-the-engine")
    assert (policy(), policy(prog="gsaas-engine")) == ("of-all", "of-the-engine")
    assert policy(prog="gsaas-rodvr") == "of-all"


def test_a_draft_in_somebodys_home_is_not_read(folder):
    for hidden in ("", ".gsaas/"):
        draft = folder.parent / "home" / hidden / "gsaas.conf"
        draft.parent.mkdir(exist_ok=True)
        write(draft, "a-draft")
    assert policy() != "a-draft"
    write(folder / "gsaas.conf", "installed")
    assert policy() == "installed"


def test_pieces_in_a_folder_are_read_after_the_file(folder):
    write(folder / "gsaas.conf", "the-file")
    (folder / "gsaas.conf.d").mkdir()
    write(folder / "gsaas.conf.d" / "10.conf", "a-piece")
    assert policy() == "a-piece"
