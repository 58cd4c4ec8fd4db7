# SPDX-License-Identifier: Apache-2.0
"""Servers of middlewares, from their libraries: where their own server is missing, or does not stay.

ggml    of ggml's RPC        tvm    of Apache TVM's RPC
"""
