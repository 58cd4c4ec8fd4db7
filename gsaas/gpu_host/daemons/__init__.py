# SPDX-License-Identifier: Apache-2.0
"""The daemons of a GPU host: what brings them to the state that the engine desires.

plan        the next actions, from desired and observed state: pure
supervisor  carries these actions out             launcher   starts and ends one daemon; uses the four below
processes   all processes of a daemon, as a unit  records    what a restarted monitor has to know of a daemon
enclosure   a daemon's own view of /dev           logs       what daemons print, within bounds
health      asks a daemon whether it works        service    supervisor and fence on the message bus
factory     makes a service from the configuration
"""
