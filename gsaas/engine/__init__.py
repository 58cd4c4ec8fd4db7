"""The engine drives each lease to the state the database wants, one idempotent step at a time.

steps     which step is next: pure               driver    looks, takes the step, looks again
wiring    leases and servers as bindings         user_data what the server is told
worklist  whose turn it is: one worker a lease   inbox     what the message bus brings
service   all of it, started and stopped
"""
