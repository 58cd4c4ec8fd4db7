# SPDX-License-Identifier: Apache-2.0
"""The clouds that boot VMs: the entry points `gsaas.cloud`, each a `gsaas.cloud.base.Cloud`."""
