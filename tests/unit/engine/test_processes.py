# SPDX-License-Identifier: Apache-2.0
"""The name of a process shows whether the process has ended, on the machine that it ran on."""

from __future__ import annotations

import os
import subprocess
import sys

from gsaas.engine import processes

PRINT_OWN_NAME = (
    "from gsaas.engine import processes; print(processes.own_name(), flush=True); input()"
)


def test_this_process_is_not_gone():
    assert not processes.is_gone(processes.own_name())


def test_a_process_is_gone_once_it_has_ended():
    command = [sys.executable, "-c", PRINT_OWN_NAME]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        name = child.stdout.readline().strip()
        assert not processes.is_gone(name)
        child.kill()
    assert processes.is_gone(name)


def test_another_process_that_was_given_the_same_id_is_not_the_same():
    here = processes.own_name().rpartition(" ")[0]
    assert here.endswith(f" {os.getpid()}")
    assert processes.is_gone(f"{here} 0")


def test_nothing_is_known_of_processes_elsewhere():
    here = processes.own_name().partition(" process ")[0]
    host, namespace = here.split(" ")
    assert processes.is_gone(f"{host} {namespace} process 999999999 5")
    assert not processes.is_gone(f"elsewhere {namespace} process 999999999 5")
    assert not processes.is_gone(f"{host} pid:[1] process 999999999 5")
    assert not processes.is_gone("any other name")
