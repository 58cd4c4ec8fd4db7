"""What runs on a GPU host, as gsaas-monitor: it reports the GPUs, runs their daemons, and fences these in.

agent      reports on the message bus              sources      where its knowledge of the GPUs comes from
daemons    the middleware's daemons                fence        who may connect to them
gate       where consumers show grants             utilisation  how busy a GPU was: pure
inventory  GPUs that are declared, not looked for
"""
