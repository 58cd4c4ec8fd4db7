# SPDX-License-Identifier: Apache-2.0
"""Drivers for remote-CUDA middlewares, which carry CUDA calls to GPUs. Begin with `base`.

base       the interface of a driver             daemon     how its daemons are started, as templates
rcuda, lupine, native: the drivers               devices, user_data: what the consumer of a lease gets
drivers    which driver serves which kind of device
"""
