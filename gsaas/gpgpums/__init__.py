# SPDX-License-Identifier: Apache-2.0
"""GPGPUMS, the management of GPUs: places requests on GPUs, claims and returns GPUs, and serves the queue.

From the top; a module imports only those below it, or beside it as shown:

claims               the door for API and engine: checks, claims, audits, and the parts below it
returns              ends leases                         reservation_manager  makes and ends reservations
queue_manager        the queue: join, leave, advance     reservation_keeper   keeps what reservations wait for
committer            commits a change: with those of other threads (batches), again after a lost race
ledger               plans, locks and writes changes     entries              writes what was planned
view                 the books as one transaction sees   mirror               the pool as the database has it, its lock
                     them
draft                the state of one transaction: pure  changes              what each change writes: pure
allocation           ports and addresses of claims: pure
queue, reservations  the rules of both: pure             pool                 the placement of a request: pure
candidates, policies, indexed_gpus, index, equal_order, explain, recent_requests: what the pool chooses by: pure

policy_selection     the policies that requests may name
addresses            masked addresses
plain_servers        leases of servers that their owners make with Nova
stored_leases        the bound on the leases that a project stores
"""
