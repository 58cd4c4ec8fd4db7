# SPDX-License-Identifier: Apache-2.0
"""The database: its tables, and the functions that read and write them.

database   connections and transactions        models      the tables           migration  upgrades of the tables
leases     leases and their events              claims      claims of GPUs       queue      leases that wait for GPUs
gpus       the inventory of GPUs                hosts       GPU hosts            endpoints  RODVR endpoints
limits     usage that counts for quotas         usage       usage in a period    metrics    sums for /metrics
settings   settings changed at run time         upsert      insert or overwrite
ready      checks that the database is usable   migrations  one file for each revision
readings   what the cGPUs of leases do
"""
