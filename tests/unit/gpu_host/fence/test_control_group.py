# SPDX-License-Identifier: Apache-2.0
"""Where the control group of a process is, by what the kernel says in /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsaas.gpu_host.fence.control_group import NoControlGroup, locate

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    "34 30 0:30 / /sys/fs/cgroup/pids rw shared:10 - cgroup cgroup rw,pids\n"
)
UNIT = "0::/system.slice/gsaas-monitor.service\n"


def test_below_systemd_it_is_that_of_the_unit():
    folder = Path("/sys/fs/cgroup/system.slice/gsaas-monitor.service")
    assert locate(V2, UNIT) == (folder, 2)


def test_beside_control_groups_of_version_1_it_is_found_too():
    folder = Path("/sys/fs/cgroup/unified/system.slice/gsaas-monitor.service")
    assert locate(HYBRID, "8:pids:/\n" + UNIT) == (folder, 2)


def test_a_mount_of_a_part_of_the_hierarchy_is_used_if_it_contains_the_process():
    part = "30 23 0:26 /system.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert locate(part, UNIT) == (Path("/sys/fs/cgroup/gsaas-monitor.service"), 2)
    with pytest.raises(NoControlGroup, match="no control groups of version 2 are mounted"):
        locate(part.replace("system", "user"), UNIT)


@pytest.mark.parametrize("own", ["0::/\n", "0::/../elsewhere\n"])
def test_a_process_without_one_of_its_own_is_told_what_to_do(own):
    with pytest.raises(NoControlGroup, match="--cgroupns=host"):
        locate(V2, own)


def test_a_host_without_version_2_is_refused():
    with pytest.raises(NoControlGroup, match="no control groups of version 2"):
        locate(HYBRID, "8:pids:/gsaas\n")


def test_names_of_other_mounts_may_be_any_bytes():
    """A tenant of the host may have made them; Python splits lines at more characters than the kernel escapes."""
    odd = "90 23 0:40 / /home/a\x0bb\u2028c\u00a0d\udcff rw shared:7 - fuse fuse rw\n"
    folder = Path("/sys/fs/cgroup/system.slice/gsaas-monitor.service")
    assert locate(odd + V2 + odd, UNIT) == (folder, 2)
    assert locate(V2, "0::/user.slice/a\u2028\udcff\n") == (
        Path("/sys/fs/cgroup/user.slice/a\u2028\udcff"),
        2,
    )
