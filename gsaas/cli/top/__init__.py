"""`gsaas top`: the cloud at a glance. `command` asks the API, `view` (pure) draws, `terminal` shows and reads keys."""
