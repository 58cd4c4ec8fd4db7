# SPDX-License-Identifier: Apache-2.0
"""Check an installation of GSaaS: everything that a controller can find out, as a sequence of findings.

findings  what a check found, and how severe it is    parts     runs all checks, in order
configuration  files, unknown options and names       defaults  that refuse what was accepted (for gsaas-status)
database  connection, revision of the tables, clock   agents    the last reports of monitors and endpoints
bus       the message bus, and an engine that reads   identity  GSaaS's user in Keystone, and its endpoint
releases  of controllers and agents (for gsaas-status)
unused    leases without a VM that nothing uses       reservations  those beyond the limits of today
nova      OpenStack's services, notifications, hosts  quotas    the limits, or those that Keystone lacks

A check changes nothing. A part that cannot be checked yields a finding; it never raises.
"""
