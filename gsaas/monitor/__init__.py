"""gsaas-monitor, the agent of a GPU host: what it reads of the GPUs (`sources`), and what it tells (`report`)."""
