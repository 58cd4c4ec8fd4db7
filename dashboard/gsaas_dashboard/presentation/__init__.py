# SPDX-License-Identifier: Apache-2.0
"""What pages show: values from what the API answers, without Django and without I/O."""
