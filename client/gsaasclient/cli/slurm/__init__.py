# SPDX-License-Identifier: Apache-2.0
"""`gsaas slurm`: the programs that Slurm calls, so that its jobs get cGPUs."""
