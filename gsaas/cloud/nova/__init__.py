# SPDX-License-Identifier: Apache-2.0
"""A cloud run by Nova: VMs are its servers, made in the caller's project with the caller's token.

cloud     `NovaCloud`, the implementation of `gsaas.cloud.base`   clients   clients of OpenStack's services
requests  a tenant's server fields as Nova takes them             servers   Nova's and Neutron's answers as values
checks    the checks before anything is claimed or made           hosts     the choice of a host by GSaaS
"""
