"""What boots the VMs: entry points of `gsaas.cloud`, each a `gsaas.cloud.base.Cloud`."""
