# SPDX-License-Identifier: Apache-2.0
"""The container images, built and run by podman."""
