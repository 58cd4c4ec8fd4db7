# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage setup`: makes a controller, a compute host or a GPU host of a machine that has the packages.

answers   what it has to know, with what is allowed and what is taken if nobody says (pure)
texts     the configuration files that follow from the answers (pure)
machine   users, files, links and units: each knows whether it is so already, and makes it so
services  the same for what other services keep: message bus, database, Keystone
plan      which of these each kind of machine has, in which order
run       does what is left of the steps, in order
hosts     the answers of a host's agents, and its account on the message bus
"""
