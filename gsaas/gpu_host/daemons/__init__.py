"""The daemons of a GPU host: which there are to be, and what keeps them so.

values      what a daemon is, and how it fares               plan       the next steps: pure
processes   process groups that can be killed as a whole     records    what a restart of ours needs to know
enclosure   a daemon's own view of /dev                      logs       what daemons say, kept within bounds
health      does a daemon answer?                            launcher   the four above, as one
supervisor  keeps daemons as they are wanted                 simulated  the same, with simulated daemons in this process
service     supervisor and fence on the message bus
"""
