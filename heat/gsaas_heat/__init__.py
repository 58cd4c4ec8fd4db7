# SPDX-License-Identifier: Apache-2.0
"""What heat-engine loads so that stacks have leases of GSaaS.

`client` is found by its entry point, `resources` by heat.conf's `plugin_dirs`. `translation` is pure.
"""
