# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage setup`: makes a controller, a compute host or a GPU host of a machine that has the packages.

answers   what it has to know, with what is allowed and what is taken if nobody says (pure)
texts     the configuration files that follow from the answers (pure)
plan      the steps that make each kind of machine, as values (pure)
machine   files, users, links and units: whether they are so already, and what makes them so
services  the same for what other services keep: message bus, database, Keystone
run       does what is left of the steps, in order
hosts     the answers of a host's agents, and its account on the message bus
"""
