# SPDX-License-Identifier: Apache-2.0
"""Programs of VMs on GPUs from anywhere, and on instances of GPUs in MIG mode.

Source: Prades, Reano, Silla, *NGS: a network GPGPU system*, Journal of Systems Architecture 151, 2024, section 5.5.

hour   one hour of jobs
"""
