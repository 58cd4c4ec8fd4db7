"""The fence of a GPU host: who may connect to its daemons. Begin with `fence`.

layout   which ports are fenced: values                 ruleset   the table, as data
table    reading and writing it in the kernel           sockets   ending connections that are not admitted any more
"""
