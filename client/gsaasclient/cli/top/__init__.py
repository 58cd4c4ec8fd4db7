# SPDX-License-Identifier: Apache-2.0
"""`gsaas top`: `command` asks the API, `view` (pure) draws a snapshot as text, `terminal` shows it and reads keys."""
