# SPDX-License-Identifier: Apache-2.0
"""The commands of the services and of operators; those of tenants are in the distribution python-gsaasclient."""
