# SPDX-License-Identifier: Apache-2.0
"""The one-process edition, gsaas-standalone: all that only it needs. Begin with `service`.

    service      composes all parts                    state_dir       the folder that records what was made
    cloud        VMs, as network namespaces            testbed         simulated hosts, as network namespaces
    namespaces   makes and removes namespaces          links           makes interfaces in them
    http_server  waitress, which serves the API        in_process_bus  the message bus
    simulated_gpus, simulated_middleware, simulated_supervisor, simulated_daemon   stand-ins for GPUs and daemons
    demo         `./dev demo`

No process of a real cloud imports these modules, except the simulated_ ones where its configuration names them.
"""
