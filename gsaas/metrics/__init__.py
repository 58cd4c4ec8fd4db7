"""What Prometheus is told: how things are, read from the database (`stored`), and what happened here (`counted`).

No label names a project, a user, a lease, a host or an address: `/metrics` needs no token.
"""
