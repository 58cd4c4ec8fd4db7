"""The command `gsaas` of tenants and administrators."""
