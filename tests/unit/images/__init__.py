# SPDX-License-Identifier: Apache-2.0
"""What the container images are made of, without building them."""
