# SPDX-License-Identifier: Apache-2.0
"""The script that a server runs at every boot, which sets its environment and its route. Busybox runs it, too.

It is a boothook of cloud-init, which runs early at every boot for which cloud-init runs, and writes all files of GSaaS
itself. Nothing of GSaaS is in a structure in which the tenant's user data has a part, such as `write_files`, whose
module stops at the first mistake in it, or `bootcmd` and other lists, which replace each other.

The route: masked addresses are on the link of the server's first network interface, where RODVR
answers for them. It needs no gateway, so a server without one works, too. Three mechanisms set it,
each harmless when it is set already, because none of them is available early on every image:

* the boothook, without waiting;
* a per-boot script of cloud-init, which waits for an interface that is not up yet. Images without
  systemd depend on it;
* a systemd service, for servers whose owner turned cloud-init off after the first boot. A drop-in
  of `multi-user.target` wants it.

The boothook also keeps our block in `/etc/environment`, a file with many owners, and the per-boot script does it once
more: between them the modules of cloud-init run, and a tenant's `write_files` often replaces that file. The boothook
passes the environment to the running systemd, too, which reads `system.conf.d` only at the next boot, so that services
of the first boot have it.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping

from gsaas.cloudinit import files
from gsaas.cloudinit.environment import SEARCH_PATH, environment_files, pam_lines, validate

_ROUTE_PATH = "/usr/local/sbin/gsaas-route"

# `proto kernel`: systemd-networkd may remove routes of others when it configures a link, but not those
# of the kernel. A port of a bridge or bond receives no packets itself; the bridge or bond does.
_ROUTE = """\
PATH=$PATH:/usr/sbin:/sbin

# The Ethernet interface that came first; one with a device behind it goes before any without.
first_nic() {
    nic='' lowest=''
    for path in /sys/class/net/*; do
        { read -r type <"$path/type" && read -r index <"$path/ifindex"; } 2>/dev/null || continue
        [ "$type" = 1 ] || continue
        [ -e "$path/device" ] || index=$((index + 1000000000))
        if [ -z "$lowest" ] || [ "$index" -lt "$lowest" ]; then
            nic=${path##*/} lowest=$index
        fi
    done
    while
        above=/sys/class/net/$nic/master
        [ -e "$above/bridge" ] || [ -e "$above/bonding" ]
    do
        nic=$(readlink "$above")
        nic=${nic##*/}
    done
    [ -n "$nic" ]
}

problem='there is no Ethernet interface'
waited=0
while :; do
    if first_nic; then
        problem=$(ip route replace "$prefix" dev "$nic" scope link proto kernel 2>&1) && exit 0
        problem="$nic: $problem"
    fi
    [ "$waited" -lt "$wait" ] || break
    sleep 1
    waited=$((waited + 1))
done
echo "gsaas-route: $prefix has no route after $waited s: $problem" >&2
exit 1
"""

# Lines of a block without its last line are kept: an administrator may have deleted that line by mistake.
_PAM_BLOCK = """\
begin='# begin gsaas (rewritten at every boot)'
end='# end gsaas'
newline='
'
old='' kept='' held='' inside='' theirs=''
if [ -e "$file" ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        old=$old$line$newline
        if [ "$line" = "$begin" ]; then
            inside=yes
        elif [ -n "$inside" ] && [ "$line" = "$end" ]; then
            inside='' held=''
        elif [ -n "$inside" ]; then
            held=$held$line$newline
        else
            kept=$kept$line$newline
            case $line in
                LD_LIBRARY_PATH=* | 'export LD_LIBRARY_PATH='*) theirs=${line#*=} ;;
            esac
        fi
    done <"$file"
fi
if [ -n "$libraries" ]; then
    theirs=${theirs#[\\"\\']}
    theirs=${theirs%[\\"\\']}
    block=${block}LD_LIBRARY_PATH=\\"$libraries${theirs:+:$theirs}\\"$newline
fi
new=$kept$held$begin$newline$block$end$newline
if [ "$new" != "$old" ]; then
    umask 022
    if [ -e "$file" ]; then
        cp -p "$file" "$file.gsaas"
    fi
    printf '%s' "$new" >"$file.gsaas" && mv -f "$file.gsaas" "$file"
fi
"""

_SERVICE = """\
[Unit]
Description=Route to this server's cGPUs (GSaaS)
DefaultDependencies=no
After=local-fs.target systemd-networkd.service NetworkManager.service networking.service
Before=network-online.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


def route_script(masked_prefix: str, wait: int) -> str:
    """Return a script that sets the route to *masked_prefix* (CIDR).

    It waits up to *wait* seconds for the interface, and exits with 0 once the route is set, else with 1 and a sentence
    on stderr. Raises `ValueError` if *masked_prefix* is not an IPv4 prefix.
    """
    prefix = ipaddress.IPv4Network(masked_prefix)
    parameters = f"prefix={prefix}\nwait={int(wait)}\n"
    return (
        "#!/bin/sh\n# Written by GSaaS: the route to this server's cGPUs.\n" + parameters + _ROUTE
    )


def pam_script(env: Mapping[str, str], path: str = "/etc/environment") -> str:
    """Return a script that replaces our block in the file *path* by *env*, and leaves all other lines as they are."""
    validate(env)
    plain = {name: value for name, value in env.items() if name != SEARCH_PATH}
    parameters = (
        f"file={shlex.quote(path)}\n"
        f"block={shlex.quote(pam_lines(plain))}\n"
        f"libraries={shlex.quote(env.get(SEARCH_PATH, ''))}\n"
    )
    return (
        "#!/bin/sh\n# Written by GSaaS: our block in /etc/environment.\n" + parameters + _PAM_BLOCK
    )


def boothook(
    env: Mapping[str, str], masked_prefix: str, *, wait: int, system_services: bool = True
) -> str:
    """Return a `text/cloud-boothook` that gives a server its environment and its route; it never fails.

    *wait* is how many seconds the scripts that it writes wait for an interface. Raises `ValueError` for an environment
    that cannot be represented, and for a *masked_prefix* that is no IPv4 prefix.
    """
    written = [
        *environment_files(env, system_services=system_services),
        *_boot_files(env, masked_prefix, wait),
    ]
    steps = [_subshell(files.script(written)), _subshell(pam_script(env))]
    if system_services:
        assignments = " ".join(shlex.quote(f"{name}={value}") for name, value in env.items())
        steps.append(
            f"[ ! -d /run/systemd/system ] || systemctl set-environment {assignments} || :\n"
        )
    steps.append(
        "# No interface yet is no fault this early: the per-boot script waits for one.\n"
        + _subshell(route_script(masked_prefix, wait=0), " 2>/dev/null")
    )
    return "#cloud-boothook\n#!/bin/sh\n# Written by GSaaS.\n" + "".join(steps)


def _boot_files(env: Mapping[str, str], masked_prefix: str, wait: int) -> list[files.File]:
    """Return the files that set the route at every boot, with cloud-init or systemd, and the block once more."""
    return [
        files.File(_ROUTE_PATH, route_script(masked_prefix, wait), executable=True),
        files.File(
            "/var/lib/cloud/scripts/per-boot/gsaas",
            f"{pam_script(env)}exec {_ROUTE_PATH}\n",
            executable=True,
        ),
        files.File("/etc/systemd/system/gsaas-route.service", _SERVICE.format(command=_ROUTE_PATH)),
        files.File(
            "/etc/systemd/system/multi-user.target.d/90-gsaas.conf",
            "[Unit]\nWants=gsaas-route.service\n",
        ),
    ]


def _subshell(script: str, redirect: str = "") -> str:
    """Return *script* as a subshell for another script, so that its `exit` and its variables stay its own."""
    body = script.removeprefix("#!/bin/sh\n")
    return f"(\n{body}){redirect} || :\n"
