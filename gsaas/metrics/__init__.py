"""What Prometheus is told: how things are, read from the database (`stored`), and what happened here (`counted`).

No label names a project, a user, a lease or an address, and none a host unless the operator wants to see every GPU:
`/metrics` needs no token.
"""
