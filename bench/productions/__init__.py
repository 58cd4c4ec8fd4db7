# SPDX-License-Identifier: Apache-2.0
"""What the benchmark `production` measures on: the OpenStack of the test bed, with GSaaS as an operator deploys it."""
