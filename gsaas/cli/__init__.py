"""The command `gsaas` of tenants and administrators, and the commands of the services."""
