# SPDX-License-Identifier: Apache-2.0
"""What runs on a GPU host, as gsaas-monitor: it reports the GPUs, runs their daemons, and controls access to these.

agent      reports on the message bus              sources      what reads the GPUs
daemons    the middleware's daemons                fence        which addresses may connect to them
gate       where consumers present grants          utilisation  the mean utilisation of a GPU: pure
inventory  GPUs that a file declares            loads        what each cGPU does with its GPU: pure
"""
