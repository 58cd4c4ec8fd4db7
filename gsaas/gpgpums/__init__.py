# SPDX-License-Identifier: Apache-2.0
"""GPGPUMS, the management of GPUs: places requests on GPUs, claims and returns GPUs, and serves the queue.

From the top; a module imports only those below it:

plain_servers         leases of servers that their owners make with Nova
claims                the door for API and engine: checks, claims, returns, audits
queue_manager         joins and leaves the queue         reservation_manager   makes and ends reservations
committer             commits a change, alone or with those of other threads (batches), and does what it calls for
ledger                locks rows, has changes planned, and writes their entries
changes               what each change writes: pure      reservation_changes   those that concern reservations
allocation            ports and addresses of claims: pure
view                  what a plan may look at: the books as one transaction sees them
mirror                the pool as the database has it, and its lock
entries               what is planned: pure              rules                 policies, quotas, addresses of a process
queue, reservations   the rules of both: pure            pool                  the placement of a request: pure

candidates, policies, indexed_gpus, index, equal_order, explain: what the pool chooses by: pure
"""
