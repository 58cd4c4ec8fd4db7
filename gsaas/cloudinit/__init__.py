# SPDX-License-Identifier: Apache-2.0
"""The user data by which cloud-init configures a server with cGPUs: a dict in, text out. Begin with `render`."""
