# SPDX-License-Identifier: Apache-2.0
"""The daemons of a GPU host: what brings them to the state that the engine desires.

plan        the next actions, from desired and observed state: pure
supervisor  carries these actions out             runner     what starts and ends one daemon
strangers   ends units that belong to no daemon
unit_runner     runs daemons as units of systemd: on GPU hosts
process_runner  runs daemons as processes: in gsaas-standalone
unit        a daemon as a unit of systemd: pure   systemd    the system's systemd, over D-Bus
devices     which device nodes a daemon needs     ports      which ports have a listener
health      asks a daemon whether it works        lock       one monitor at a time
memory_limit  whether what limits a daemon's memory is there
unavailable  the error of a systemd that cannot be asked
service     supervisor and fence on the message bus
factory     makes a service from the configuration, with supervision, which makes a supervisor
"""
