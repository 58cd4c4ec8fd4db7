"""The simulator: GPGPUMS's own decisions, against another clock.

Nothing here knows the API, the database or a socket. Whatever is random comes from a `random.Random` that the caller
seeded, and whatever is chosen from is in a fixed order first, so that a run can be repeated anywhere.
"""
