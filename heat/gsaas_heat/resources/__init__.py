# SPDX-License-Identifier: Apache-2.0
"""The types of resources. heat-engine loads every module of this folder, because `plugin_dirs` names it."""
