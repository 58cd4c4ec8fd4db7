# SPDX-License-Identifier: Apache-2.0
"""`gsaas-status upgrade check`: whether this release can run on what an older one has left, in the form of OpenStack.

It reads the configuration and the database, and asks neither Keystone nor Nova nor the message bus; `gsaas-manage
check` asks them as well.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

from oslo_config import cfg
from oslo_policy import policy
from oslo_upgradecheck import common_checks, upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from gsaas import conf as gsaas_conf
from gsaas.api import rbac
from gsaas.checkup import bus, defaults, releases
from gsaas.checkup import database as database_check
from gsaas.checkup.findings import Finding, Level, fail, ok, reason, warn
from gsaas.db import leftovers, migration, ready
from gsaas.db.database import Database

DESCRIPTION = """\
Check whether this release of GSaaS can run here: `gsaas-status upgrade check`, on a controller, after the new release
was installed and before its services start, and again afterwards. Changes nothing.
"""
UNEXPECTED = 255
"""The exit status, by oslo.upgradecheck's convention, of a check that could not be made."""
CODES = {Level.OK: Code.SUCCESS, Level.WARN: Code.WARNING, Level.FAIL: Code.FAILURE}


def _guarded(check: Callable[[Checks], Result]) -> Callable[[Checks], Result]:
    """Return *check* with a failure instead of an exception, so that the other checks are made."""

    @functools.wraps(check)
    def guarded(self: Checks) -> Result:
        try:
            return check(self)
        except _Skipped as skipped:
            return Result(Code.WARNING, str(skipped))
        except ready.Unusable as error:
            return Result(Code.FAILURE, str(error))
        except Exception as error:  # noqa: BLE001  (it becomes a result)
            return Result(Code.FAILURE, f"it cannot be checked: {reason(error)}")

    return guarded


class Checks(upgradecheck.UpgradeCommands):
    """The checks of an upgrade; `conf` is to be set before they are made."""

    conf: cfg.ConfigOpts

    @_guarded
    def check_database(self) -> Result:
        """The database answers, and is at the revision that this release needs."""
        with _connected(self.conf) as database:
            return _result(database_check.check(database))

    @_guarded
    def check_leases(self) -> Result:
        """No lease is in a state, or needs a driver, that this release does not know."""
        with _current(self.conf) as database, database.reading() as connection:
            return _result(_unknown_values(leftovers.unknown_values(connection)))

    @_guarded
    def check_controllers(self) -> Result:
        """All APIs and engines that run have this release."""
        with _current(self.conf) as database, database.read() as session:
            return _result([releases.check_controllers(session)])

    @_guarded
    def check_agents(self) -> Result:
        """The agents have releases that this one works with."""
        with _current(self.conf) as database, database.read() as session:
            return _result(releases.check_agents(session))

    @_guarded
    def check_configuration(self) -> Result:
        """The configuration files contain no deprecated or unknown option."""
        return _result(
            warn("configuration", problem, "correct the file")
            for problem in gsaas_conf.problems(self.conf)
        )

    @_guarded
    def check_defaults(self) -> Result:
        """No default of this release refuses what was accepted before."""
        with _current(self.conf) as database, database.reading() as connection:
            return _result(defaults.check(self.conf, connection))

    @_guarded
    def check_signatures(self) -> Result:
        """Messages on the bus are signed."""
        return _result([bus.check_signatures(self.conf.bus.secrets, enforce=self.conf.bus.enforce)])

    @_guarded
    def check_access_rules(self) -> Result:
        """The operator's access rules are among those of this release."""
        return _result(_check_rules(self.conf))

    @_guarded
    def check_policy_json(self) -> Result:
        """The file of access rules is not JSON, which oslo.policy no longer reads."""
        result: Result = common_checks.check_policy_json(self, self.conf)
        return result

    _upgrade_checks = (
        ("Database", check_database),
        ("Leases", check_leases),
        ("Releases of controllers", check_controllers),
        ("Releases of agents", check_agents),
        ("Configuration files", check_configuration),
        ("Changed defaults", check_defaults),
        ("Signatures on the message bus", check_signatures),
        ("Access rules", check_access_rules),
        ("Format of the access rules", check_policy_json),
    )


class _Skipped(Exception):
    """A check has no result, because of what another check reports."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 for warnings, 2 for failures, 255 if something is unexpected."""
    checks = Checks()
    try:
        conf = gsaas_conf.load(
            sys.argv[1:] if argv is None else argv,
            prog="gsaas-status",
            description=DESCRIPTION,
            cli=commands(checks),
        )
    except (cfg.Error, ValueError) as error:
        print(f"gsaas-status: the configuration cannot be used: {error}", file=sys.stderr)
        return UNEXPECTED
    logging.disable()  # the results contain what libraries would log about a failure
    checks.conf = conf
    upgradecheck.CONF = conf  # where `check` looks for --json
    return int(upgradecheck.run(conf))


def commands(checks: Checks) -> list[cfg.Opt]:
    """Return what the library adds to the command line: `upgrade check`, which makes *checks*."""
    # The library registers it with a ConfigOpts that has read nothing; ours is made by `load`.
    found: list[cfg.Opt] = []
    recorder = SimpleNamespace(register_cli_opt=found.append)
    upgradecheck.register_cli_options(cast(cfg.ConfigOpts, recorder), checks)
    return found


@contextlib.contextmanager
def _connected(conf: cfg.ConfigOpts) -> Iterator[Database]:
    with contextlib.closing(ready.connect(conf)) as database:
        yield database


@contextlib.contextmanager
def _current(conf: cfg.ConfigOpts) -> Iterator[Database]:
    """Yield the database if it is at this release's revision; raise `_Skipped` otherwise."""
    with _connected(conf) as database:
        if ready.problem(migration.version(database)):
            raise _Skipped(
                "not checked: first the database has to be at the revision of this release"
            )
        yield database


def _result(found: Iterable[Finding]) -> Result:
    """Return the worst level of *found* as a code, with all sentences that are not OK, or else the first."""
    findings = list(found)
    worst = max((CODES[finding.level] for finding in findings), default=Code.SUCCESS)
    told = [finding for finding in findings if finding.level is not Level.OK] or findings[:1]
    sentences = [finding.said + (f" -> {finding.todo}" if finding.todo else "") for finding in told]
    return Result(worst, "; ".join(sentences) or None)


def _unknown_values(found: Mapping[str, Mapping[str, int]]) -> Iterator[Finding]:
    """Yield a finding for each kind of value that leases have and this release does not know."""
    for what, counts in found.items():
        if counts:
            listed = ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
            yield fail(
                "leases",
                f"leases have a {what} that this release does not know: {listed}",
                "install the release or the package that knows it, and end these leases with it",
            )
    if not any(found.values()):
        yield ok("leases", "this release knows the state of every lease")


def _check_rules(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Yield a finding for each rule in the operator's file that is deprecated, or is none of this release.

    Names without the prefix of GSaaS's rules are the operator's own, to be used in other rules.
    """
    enforcer: policy.Enforcer = rbac.enforcer(conf)
    enforcer.suppress_deprecation_warnings = True
    enforcer.load_rules()
    known, written = enforcer.registered_rules, enforcer.file_rules
    old = {
        rule.deprecated_rule.name: rule
        for rule in known.values()
        if rule.deprecated_rule is not None
    }
    prefixes = {name.partition(":")[0] for name in known if ":" in name}
    for name in sorted(written):
        if name in known:
            if known[name].deprecated_for_removal:
                because = known[name].deprecated_reason or "it will be removed"
                yield warn("access rules", f"{name} is deprecated", because)
        elif name in old:
            yield warn("access rules", f"{name} is deprecated", f"write {old[name].name} instead")
        elif ":" in name and name.partition(":")[0] in prefixes:
            near = difflib.get_close_matches(name, sorted(known), 1)
            yield warn(
                "access rules",
                f"there is no rule {name}, so it has no effect",
                f"write {near[0]} instead, if that is meant" if near else "remove it",
            )


if __name__ == "__main__":
    sys.exit(main())
