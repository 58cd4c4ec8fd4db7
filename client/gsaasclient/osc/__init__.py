# SPDX-License-Identifier: Apache-2.0
"""The commands `openstack gpu …`. Each start of python-openstackclient imports `plugin`, a command its own module."""
