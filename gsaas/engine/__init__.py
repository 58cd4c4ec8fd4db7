"""The engine drives each lease to the state the database wants, one idempotent step at a time.

steps          which step is next: pure                         driver        looks, takes the step, looks again
workqueue      whose turn it is: one worker a lease             rpc_endpoint  what the message bus brings
desired_state  what a GPU host should hold for leases: pure     gpu_hosts     telling the monitors
callers        tokens of those who asked                        notifications what Nova says of servers
processes      names of engines                                 service       all of it, started and stopped
"""
