# SPDX-License-Identifier: Apache-2.0
"""A small real OpenStack on one machine, for tests: `python -m tests.openstack.bed up`.

1. The bed is described, not scripted. Each module says what one part of the cloud is (`units()`);
   `work.bring_up` makes it so, in the order of what needs what, and side by side where it can.
2. Every step looks first. `up` on a half-made bed finishes it, on a running one it does nothing.
3. What is started is marked (`processes.MARK`), so `down` ends exactly that, and nothing else.
4. Everything listens on loopback and is kept in one directory (`settings.DIR`).

Only the standard library is used here: OpenStack lives in a virtual environment of its own and is
spoken to through its REST interfaces (`rest`), its commands, and its configuration files.

`services.UNITS` names the parts. A service under test is one more entry there.
"""
