# SPDX-License-Identifier: Apache-2.0
"""What the account of a host may do on RabbitMQ. Pure.

The names are those that oslo.messaging gives to exchanges and queues. A server of a topic declares three queues,
`TOPIC`, `TOPIC.SERVER` and `TOPIC_fanout_UUID`, and the exchange `TOPIC_fanout`; an agent's queue of answers is
`TOPIC_reply_UUID`. Each agent has a topic of its own, so all that it declares begins with its name.

1. An account configures and reads what belongs to its own agents only, and binds that to its agents' own routing keys
   only: it sees neither what other hosts get, nor what the API sends the engine, such as users' tokens.
2. Messages go through `amq.topic`. RabbitMQ makes it with every virtual host, and lets nobody delete it or declare it
   otherwise; and kombu, on which oslo.messaging builds, declares no exchange whose name begins with `amq.`. So an agent
   needs no permission to configure an exchange that others use, and cannot put another type of exchange in its
   place, to which topic permissions would not apply.
3. It publishes to the engine, and answers through the default exchange, which reaches every queue. RabbitMQ has no
   permission between these two, so signatures say who sent a message (`gsaas.rpc.signatures`).
4. RabbitMQ limits the connections and channels of an account, and the queues of a virtual host, not of an account. So
   how many queues a host that is broken into can declare is limited for all hosts together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gsaas import rpc

USER_LIMITS = {"max-connections": 64, "max-channels": 256}
"""Of one host's account: far more than its two agents use, each of which has a few connections with one channel."""


@dataclass(frozen=True)
class Permissions:
    """Regular expressions of the names that an account may configure, write to and read, and of routing keys."""

    configure: str
    write: str
    read: str
    topic_write: str
    topic_read: str

    def commands(self, virtual_host: str, account: str) -> list[list[str]]:
        """Return the commands that give *account* these permissions in *virtual_host*, none other there, and limits."""
        where = ["-p", virtual_host, account]
        return [
            ["rabbitmqctl", "set_permissions", *where, self.configure, self.write, self.read],
            [
                *("rabbitmqctl", "set_topic_permissions", *where, rpc.EXCHANGE),
                *(self.topic_write, self.topic_read),
            ],
            ["rabbitmqctl", "set_user_limits", account, json.dumps(USER_LIMITS)],
        ]


def of_host(host: str, roles: Sequence[str]) -> Permissions:
    """Return the permissions of the account of *host*; *roles* are names of `gsaas.rpc.ROLES`."""
    agents = [rpc.agent_name(rpc.ROLES[role], re.escape(host)) for role in roles]
    own = [f"{agent}([._].*)?" for agent in agents]
    shared = re.escape(rpc.EXCHANGE)
    return Permissions(
        configure=_any(*own),
        write=_any(shared, r"amq\.default", *own),
        read=_any(shared, *own),
        topic_write=_any(rpc.ENGINE, rpc.NOBODY),
        topic_read=_any(*(rf"{agent}(\.{rpc.AGENT})?" for agent in agents)),
    )


def _any(*names: str) -> str:
    return f"^({'|'.join(names)})$"
