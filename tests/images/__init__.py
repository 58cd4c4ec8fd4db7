"""The container images, built and run by podman."""
