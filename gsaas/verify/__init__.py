# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage verify`: compares what the database, the cloud and the agents of hosts say of leases, and repairs it.

`gather` asks all of them and returns `facts`; `rules` (pure) finds the differences, each with the step that repairs it;
`repair` takes these steps, each of which looks again first. Nothing in flight is a difference: a lease on its way to
another status or changed a moment ago, and whatever is different at one of two looks only.
"""
