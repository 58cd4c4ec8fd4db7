# SPDX-License-Identifier: Apache-2.0
"""The simulator behind `gsaas-sim`: GPGPUMS's own pool, queue and policies, driven by a simulated clock.

history    the requests to replay            scenario  the runs to make of them, from a TOML file
importers  histories in other formats        cloud     one run: a history on a site
claims     claims in the pool in memory      plan      the fewest hosts for a level of service
policies   those that can be simulated
clock      simulated time                    report    tables, charts and the HTML page of the results

Nothing here uses the API, the database or a socket. All randomness comes from a `random.Random` that the caller has
seeded, and every choice is made from a sequence in a fixed order, so that a run is repeatable on any machine.

Models of other schedulers, which reproduce published papers, are not here but in `studies`, which is not installed.
"""
