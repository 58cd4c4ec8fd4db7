"""What the container images are made of, without building them."""
