"""What carries CUDA calls: one driver per remote-CUDA middleware. Begin with `base`."""
