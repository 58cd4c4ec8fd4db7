# SPDX-License-Identifier: Apache-2.0
"""GPGPUMS, the management of GPUs: places requests on GPUs, claims and returns GPUs, and serves the queue.

claims            claims, in one transaction each     returns           returns of claims, and ends of leases
wait_queue        the queue: join, leave, advance     queue_scheduler   the next lease of the queue in the database
allocation        ports and addresses for claims      queue             the rules of the queue: pure
scheduler         proposes placements                 policy_selection  the policies that requests may name
pool_cache        a pool kept as the database is      pool              the GPUs, and the placement of a request: pure
indexed_gpus      GPUs with indexes for each order    index             the indexes: slots by amount and by group
candidates        the GPUs that fit, for policies     policies          the scheduling policies
explain           the reason of a refusal: pure       recent_requests   the last requests, counted by kind
addresses         masked addresses                    retry             retries of overtaken transactions
"""
