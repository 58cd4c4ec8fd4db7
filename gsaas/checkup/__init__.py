"""Is this installation sound? What a controller can find out about it, one finding a line.

findings  what is said, and how bad it is             parts     each thing that is looked at, in order
database  there, migrated, and of one mind about time agents    monitors and endpoints, as they reported last
bus       takes messages, and engines take them       identity  Keystone knows us, and the cloud knows where we are
nova      answers us, tells us what happens, and its hosts are ours
quotas    Keystone has the limits that we ask it for

Nothing is changed by looking. A part that cannot be looked at is a finding, never an exception.
"""
