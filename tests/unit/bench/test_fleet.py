# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench fleet` reads from the kernel and from servers."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.fleets import usage
from bench.fleets.agents import Journal, Plan, gpu_address, gpus_of, host_name
from gsaas import rpc

OVERVIEW = """\
#{[{protocol,amqp091}] =>
      #{consumers => 4,messages_received_total => 17,
        messages_routed_total => 12,publishers => 2},
  [{protocol,amqp10}] =>
      #{consumers => 0,messages_received_total => 3,publishers => 0}}
"""


def test_messages_of_all_protocols_are_added_up():
    assert usage.messages(OVERVIEW) == {"messages_received_total": 20, "messages_routed_total": 12}


def test_what_a_process_has_started_counts_also_when_it_has_ended():
    busy = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    before = usage.cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert usage.cpu_seconds(os.getpid()) - before >= 0.2
    assert usage.resident_mib(os.getpid()) > 1


def test_hosts_have_names_addresses_and_gpus_of_their_own():
    hosts = range(12_500)
    assert len({host_name(number) for number in hosts}) == len(hosts)
    assert len({gpu_address(number) for number in hosts}) == len(hosts)
    assert len({gpu.uuid for number in hosts for gpu in gpus_of(number, 8)}) == 100_000


def test_the_plan_of_a_load_program_is_its_argument():
    plan = Plan("rabbit://", "secret", 3, 2, 8, 10.0, 30.0)
    assert '"first": 3' in plan.to_argument()


def test_messages_are_counted_with_those_that_nobody_answered():
    journal = Journal()

    def send(_client: object, _context: object, method: str, **more: object) -> str:
        if method == "lost":
            raise rpc.Timeout
        return "answer"

    watched = journal.watch(send)
    assert watched(None, None, "report", host="gpu1") == "answer"
    for method in ("lost", "nothing"):
        try:
            watched(None, None, method)
        except rpc.Timeout:
            assert method == "lost"
    taken = journal.take()
    assert taken["sent"] == {"report": 1, "lost": 1}
    assert taken["unanswered"]["lost"] == 1
    assert len(taken["seconds"]) == 2
    assert journal.take()["sent"] == {}
