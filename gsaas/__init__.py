"""GSaaS: GPU scheduling as a service for OpenStack."""
