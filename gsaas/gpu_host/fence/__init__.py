# SPDX-License-Identifier: Apache-2.0
"""The fence of a GPU host: an nftables table that admits addresses to its daemons. Begin with `fence`.

layout   the ports it guards: values                ruleset        the table, as data
table    the table in the kernel                    sockets        ends connections that are not admitted any more
control_group  by which the fence knows the monitor
"""
