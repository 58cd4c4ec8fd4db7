"""A cloud run by Nova: VMs are its servers, made in the caller's project with the caller's token.

cloud     the contract of `gsaas.cloud.base`, kept        clients   whom to ask, and in whose name
requests  a tenant's server fields as Nova takes them     servers   what Nova and Neutron say, as values
checks    would it work? asked before anything is made    hosts     which host, where Nova is not to choose
"""
