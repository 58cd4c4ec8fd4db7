# SPDX-License-Identifier: Apache-2.0
"""Programs of a tenant that compute through a middleware on a CPU device, as `gsaas.prove.program` does with CUDA.

    python -m gsaas.prove.clients.NAME exceed MIB     allocate more than MIB, and say after how many that was refused
    python -m gsaas.prove.clients.NAME compute        multiply until SIGTERM, and say how often

NAME is that of a remoting driver. Each finds its daemon in the environment, as a lease gives it, and prints lines of
JSON; the last one is the result. Times are seconds.

session  what these programs do                 ggml, tvm  how they do it
"""
