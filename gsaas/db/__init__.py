# SPDX-License-Identifier: Apache-2.0
"""The database: its tables, and the functions that read and write them.

database   transactions                        engines     opening a database   pooling    connections to a server
sqlite     databases in a file                 dialects    what databases can   clock      the time of the database
models     the tables                          migration   their upgrades       migrations one file for each revision
leases     leases and their events             claims      claims of GPUs       queue      leases that wait for GPUs
gpus       the inventory of GPUs               hosts       GPU hosts            endpoints  RODVR endpoints
limits     usage that counts for quotas        usage       usage in a period    metrics    sums for /metrics
settings   settings changed at run time        upsert      insert or overwrite  ready      is the database usable?
readings   what the cGPUs of leases do
"""
