"""What only gsaas-standalone has, the whole service in one process. Begin with `service`.

    service    composes all parts                      state_dir    the folder that says what it made
    cloud      network namespaces for VMs              testbed      network namespaces for hosts
    namespaces made, found again, removed              links        inside them
    http_server  reads and answers HTTP                in_process_bus  a message bus of one process
    simulated_gpus, simulated_middleware, simulated_supervisor, simulated_daemon   what stands in for GPUs
    demo       `./dev demo`

Nothing that runs in a real cloud imports any of it, but the simulated parts where the configuration names them.
"""
