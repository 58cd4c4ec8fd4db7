# SPDX-License-Identifier: Apache-2.0
"""A daemon as a transient unit of systemd: its name, its description and its properties. Pure: no I/O.

1. The unit is the record of a daemon: its description says which daemon it is, and a restarted monitor reads it there.
2. What a daemon parses comes from a tenant, so a daemon counts as hostile. It has a user of its own, made for it by
   systemd, no capability, no device but those of its GPUs, and no path of GSaaS's.
3. An MPS server serves one user at a time, so daemons with a limit by MPS share the user of their MPS control daemon.
   What is left between them, doc/security.md says. `PrivateUsers` is what keeps them out of each other's memory: a
   process may examine another one of its user only within one user namespace (cap_ptrace_access_check in the kernel).
4. What a daemon writes is bounded: its /tmp and /var/tmp are a file system of its own in memory, which counts as its
   memory. `TemporaryFileSystem` has no effect there, because systemd's `PrivateTmp` goes before it, which `DynamicUser`
   implies; `BindPaths` goes before both. So the file system is a unit, too, that lives as long as the daemon's.
5. Values have the types of systemd's D-Bus interface (org.freedesktop.systemd1(5)), so that no text is parsed or
   expanded there: the name of a PCI device contains colons, and a command line may contain $.
"""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass
from urllib.parse import quote, unquote

from gsaas.objects.daemon import Daemon
from gsaas.remoting.daemon import DaemonCommand

PREFIX = "gsaas-daemon-"
"""What the names of units begin with; the polkit rule names it, too."""
SUFFIX = ".service"
SLICE = "gsaas-daemons.slice"
TEMPORARY = "/run/gsaas-daemons"
"""Where the file systems for the temporary files of daemons are mounted, by their ports."""
NVIDIA_DEVICES = (
    "char-nvidia",
    "char-nvidia-frontend",
    "char-nvidia-caps",
    "char-nvidia-uvm",
)
"""All devices of NVIDIA's driver, as groups of /proc/devices."""

_TITLE = "GSaaS daemon"
_HIDDEN = (
    "/run/dbus",
    "/run/systemd/private",
    # Every process may send messages there, each of which costs systemd time; no daemon has to.
    "/run/systemd/notify",
    "/run/systemd/io.system.ManagedOOM",
    # A unit may write entries of any size and number there; what it prints has a bound.
    "/run/systemd/journal",
    "/var/lib/gsaas",
    "/var/log/gsaas",
    TEMPORARY,
)
"""What no daemon needs, besides the files of the configuration."""
_MIB = 1 << 20
_NO_LIMIT = (1 << 64) - 1
_RECURSIVE = 16384  # MS_REC
_EPERM = 1
_EXIT_EXEC = 203
"""systemd's status for a program that it cannot execute (systemd.exec(5))."""
_TCP = 6  # IPPROTO_TCP
_IO_URING = ("io_uring_setup", "io_uring_enter", "io_uring_register")
_LOG_INTERVAL, _LOG_BURST = 30_000_000, 200
"""A daemon may log this many lines in this many microseconds; journald drops more, and says so. One may have 48 KiB."""

Property = tuple[str, tuple[str, object]]
"""Name, D-Bus signature and value."""


@dataclass(frozen=True)
class Confinement:
    """What all daemons of a host have in common, by the configuration."""

    hidden: tuple[str, ...]
    """Absolute paths that no daemon may reach; one that does not exist is no error."""
    host_memory_mb: int
    """MiB of the host's memory for each daemon; 0 means no limit."""
    tasks: int
    """Processes and threads of each daemon."""
    stop_timeout: float
    """Seconds from SIGTERM to SIGKILL."""
    systemd: int = 252
    """The major version of the host's systemd."""
    mps_folders: str | None = None
    """The folder with the folders of all GPUs' MPS control daemons; a daemon sees no other in it than its own."""
    tmp_mb: int = 1024
    """MiB of temporary files of each daemon."""


@dataclass(frozen=True)
class Devices:
    """The device nodes of one daemon."""

    nodes: tuple[str, ...]
    """Absolute paths of nodes and folders of nodes; there are no others in its /dev but the usual ones."""
    groups: tuple[str, ...] = ()
    """Groups of devices that belong to the folders in `nodes`."""
    hidden: tuple[str, ...] = ()
    """What describes other GPUs in /proc."""
    cores: tuple[int, ...] = ()
    """The numbers of the cores of a CPU device, which its daemons share; empty: no limit."""


@dataclass(frozen=True)
class UnitState:
    """A unit as systemd lists it."""

    name: str
    description: str
    active: str
    """ActiveState: active, activating, deactivating, failed, inactive, …"""
    job: str = ""
    """The type of the job that waits for it, such as start; empty: none."""

    @property
    def alive(self) -> bool:
        """Whether its first process lives, or is about to be started."""
        return self.job == "start" or self.active in ("active", "activating", "reloading")

    @property
    def executed(self) -> bool:
        """Whether systemd has executed its program: a unit whose type is exec is not active before."""
        return self.active == "active"

    @property
    def ended(self) -> bool:
        """Whether systemd has finished with it: it no longer starts or ends processes of it."""
        return not self.job and self.active in ("failed", "inactive")


def name(key: str) -> str:
    """Return the name of the unit of the daemon with this key."""
    return f"{PREFIX}{key}{SUFFIX}"


def key(unit: str) -> str:
    """Undo `name`."""
    return unit.removeprefix(PREFIX).removesuffix(SUFFIX)


def describe(daemon: Daemon, restarts: int) -> str:
    """Return the description of a daemon's unit, which contains everything that `parse` returns.

    Values are quoted as in URLs: operators may give GPUs names with spaces.
    """
    facts: dict[str, object] = {"gpu": daemon.gpu_uuid, "port": daemon.port}
    if daemon.ports > 1:
        facts["ports"] = daemon.ports
    if daemon.lease_id is not None:
        facts |= {"lease": daemon.lease_id, "cgpu": daemon.position}
    if daemon.turn:
        facts["turn"] = daemon.turn
    if daemon.other_gpus:
        facts["others"] = ",".join(map(quote, daemon.other_gpus))
    if daemon.memory_mb is not None:
        facts["mib"] = daemon.memory_mb
    facts["restarts"] = restarts
    return " ".join([_TITLE, *(f"{name}={quote(str(value))}" for name, value in facts.items())])


def parse(description: str) -> tuple[Daemon, int]:
    """Return the daemon and its restarts; raises `ValueError` if this is not the description of a daemon's unit."""
    if not description.startswith(f"{_TITLE} "):
        raise ValueError(f"{description!r} is not the description of a daemon")
    pairs = (word.partition("=") for word in description.removeprefix(_TITLE).split())
    facts = {name: unquote(value) for name, _, value in pairs}
    try:
        daemon = Daemon(
            gpu_uuid=facts["gpu"],
            port=int(facts["port"]),
            memory_mb=int(facts["mib"]) if "mib" in facts else None,
            lease_id=facts.get("lease"),
            position=int(facts.get("cgpu", "0")),
            other_gpus=tuple(map(unquote, facts["others"].split(","))) if "others" in facts else (),
            ports=int(facts.get("ports", "1")),
            turn=int(facts.get("turn", "0")),
        )
        return daemon, int(facts["restarts"])
    except KeyError as error:
        raise ValueError(f"{description!r} lacks {error}") from None


def mps_user(pipe_directory: str) -> str:
    """Return the name of the user that all daemons of one MPS control daemon share, by the folder where it listens."""
    digest = hashlib.sha256(posixpath.normpath(pipe_directory).encode()).hexdigest()[:8]
    return f"gsaas-mps-{digest}"


def properties(
    daemon: Daemon,
    restarts: int,
    command: DaemonCommand,
    devices: Devices | None,
    confinement: Confinement,
) -> list[Property]:
    """Return the properties of the unit that runs *command* for *daemon*.

    *devices* None: the daemon may use all devices of NVIDIA's driver.
    """
    return [
        ("Description", ("s", describe(daemon, restarts))),
        *_process(command),
        *_user(command.mps_pipe_directory),
        *_devices(devices),
        *_paths(command, devices, confinement),
        *_temporary_files(daemon),
        *_kernel(confinement.systemd, command.mps_pipe_directory is not None),
        *_port(daemon),
        *_limits(command, confinement),
        *_cores(devices),
        *_log(daemon),
    ]


def _process(command: DaemonCommand) -> list[Property]:
    program = command.argv[0]
    if "/" in program:
        program = posixpath.normpath(posixpath.join(command.folder, program))
    # Without the flag systemd would replace $NAME in arguments.
    started = (program, list(command.argv), ["no-env-expand"])
    environment = [f"{name}={value}" for name, value in sorted(command.environment.items())]
    return [
        ("Type", ("s", "exec")),
        ("ExecStartEx", ("a(sasas)", [started])),
        ("WorkingDirectory", ("s", command.folder)),
        ("Environment", ("as", environment)),
        # When to start it again is decided by `gsaas.gpu_host.daemons.plan`.
        ("Restart", ("s", "no")),
        # SIGTERM goes to the first process, which may end its children in order; SIGKILL goes to all.
        ("KillMode", ("s", "mixed")),
        ("Slice", ("s", SLICE)),
        ("Delegate", ("b", False)),
    ]


def _user(mps_pipe_directory: str | None) -> list[Property]:
    shared: list[Property] = []
    if mps_pipe_directory is not None:
        shared.append(("User", ("s", mps_user(mps_pipe_directory))))
    return [
        # Without a name, systemd makes a user for this unit alone.
        *shared,
        ("DynamicUser", ("b", True)),
        ("PrivateUsers", ("b", True)),
        ("NoNewPrivileges", ("b", True)),
        ("CapabilityBoundingSet", ("t", 0)),
        ("AmbientCapabilities", ("t", 0)),
        ("UMask", ("u", 0o077)),
    ]


def _devices(devices: Devices | None) -> list[Property]:
    if devices is None:
        allowed = [(group, "rw") for group in NVIDIA_DEVICES]
        return [("DevicePolicy", ("s", "closed")), ("DeviceAllow", ("a(ss)", allowed))]
    # Twice: /dev contains no other node, and the control group may open no other device.
    names = [*devices.nodes, *devices.groups]
    bound = [(node, node, True, _RECURSIVE) for node in devices.nodes]
    return [
        ("PrivateDevices", ("b", True)),
        ("DevicePolicy", ("s", "closed")),
        ("DeviceAllow", ("a(ss)", [(name, "rw") for name in names])),
        ("BindPaths", ("a(ssbt)", bound)),
    ]


def _paths(
    command: DaemonCommand, devices: Devices | None, confinement: Confinement
) -> list[Property]:
    hidden = {*confinement.hidden, *_HIDDEN, *(() if devices is None else devices.hidden)}
    paths: list[Property] = [
        ("ProtectSystem", ("s", "strict")),
        ("ProtectHome", ("s", "yes")),
        ("ProtectProc", ("s", "invisible")),
        ("InaccessiblePaths", ("as", [f"-{path}" for path in sorted(hidden)])),
    ]
    covered = []
    if confinement.mps_folders is not None:
        covered.append((confinement.mps_folders, "ro,mode=0755"))
    pipes = command.mps_pipe_directory
    if pipes is not None:
        # MPS uses shared memory in /dev/shm, so that stays the host's.
        paths.append(("BindPaths", ("a(ssbt)", [(pipes, pipes, False, _RECURSIVE)])))
    else:
        covered.append(("/dev/shm", "mode=1777"))  # noqa: S108
    return [*paths, ("TemporaryFileSystem", ("a(ss)", covered))]


def temporary_files(daemon: Daemon, confinement: Confinement) -> tuple[str, list[Property]]:
    """Return name and properties of the unit that mounts the file system for the temporary files of a daemon."""
    options = f"size={confinement.tmp_mb}M,mode=1777,nosuid,nodev"
    return _mount_unit(daemon), [
        ("Description", ("s", f"Temporary files of the GSaaS daemon at port {daemon.port}")),
        ("What", ("s", "tmpfs")),
        ("Type", ("s", "tmpfs")),
        ("Options", ("s", options)),
        # Else every user of the host could place files there, which the daemon opens as its own.
        ("DirectoryMode", ("u", 0o700)),
        # Else one that could not be mounted would keep its name, and the port have no daemon any more.
        ("CollectMode", ("s", "inactive-or-failed")),
        # It goes with the daemon, and with it everything that a tenant's program left there.
        ("StopWhenUnneeded", ("b", True)),
        ("LazyUnmount", ("b", True)),
    ]


def _folder(daemon: Daemon) -> str:
    """Return where the file system for the temporary files of a daemon is mounted."""
    return f"{TEMPORARY}/{daemon.port}"


def _mount_unit(daemon: Daemon) -> str:
    """Return the name that systemd requires of the unit that mounts the folder of a daemon in `TEMPORARY`."""
    escaped = _folder(daemon).strip("/").replace("-", r"\x2d").replace("/", "-")
    return f"{escaped}.mount"


def _temporary_files(daemon: Daemon) -> list[Property]:
    folder, mount = _folder(daemon), _mount_unit(daemon)
    bound = [(folder, place, False, 0) for place in ("/tmp", "/var/tmp")]  # noqa: S108
    return [
        ("Requires", ("as", [mount])),
        ("After", ("as", [mount])),
        ("BindPaths", ("a(ssbt)", bound)),
    ]


def _kernel(systemd: int, shares_user: bool) -> list[Property]:
    # A daemon that shares its user may signal its neighbours unless their PIDs are hidden from it. It pays for that: as
    # PID 1 it ignores SIGTERM unless it has a handler, and inherits children that it has to wait for.
    own_pids: list[Property] = []
    if shares_user and systemd >= 257:
        own_pids.append(("PrivatePIDs", ("s", "yes")))
    return [
        *own_pids,
        ("PrivateIPC", ("b", True)),
        ("ProtectClock", ("b", True)),
        ("ProtectControlGroups", ("b", True)),
        ("ProtectHostname", ("b", True)),
        ("ProtectKernelLogs", ("b", True)),
        ("ProtectKernelModules", ("b", True)),
        ("ProtectKernelTunables", ("b", True)),
        ("LockPersonality", ("b", True)),
        ("RestrictAddressFamilies", ("(bas)", (True, ["AF_INET", "AF_INET6", "AF_UNIX"]))),
        ("RestrictNamespaces", ("t", 0)),
        ("RestrictRealtime", ("b", True)),
        ("RestrictSUIDSGID", ("b", True)),
        ("SystemCallFilter", ("(bas)", (True, ["@system-service"]))),
        # Of these, which are in that group, none passes RestrictAddressFamilies.
        ("SystemCallFilter", ("(bas)", (False, list(_IO_URING)))),
        ("SystemCallErrorNumber", ("i", _EPERM)),
        ("SystemCallArchitectures", ("as", ["native"])),
    ]


def _port(daemon: Daemon) -> list[Property]:
    # Elsewhere it could stand in for a neighbour whose daemon is down, or keep a port from one that is to start. The
    # fields are address family (0: any), IP protocol (0: any), number of ports (0: all) and first port.
    return [
        ("SocketBindAllow", ("a(iiqq)", [(0, _TCP, daemon.ports, daemon.port)])),
        ("SocketBindDeny", ("a(iiqq)", [(0, 0, 0, 0)])),
    ]


def _limits(command: DaemonCommand, confinement: Confinement) -> list[Property]:
    memory = confinement.host_memory_mb * _MIB
    share: list[Property] = []
    if command.host_memory_mb is not None:
        memory = command.host_memory_mb * _MIB
        # A program that asks for more gets an error, before its daemon is ended by MemoryMax.
        share.append(("LimitDATA", ("t", memory)))
    return [
        *share,
        ("MemoryMax", ("t", memory or _NO_LIMIT)),
        # Else it would have all of the host's swap space besides.
        ("MemorySwapMax", ("t", 0 if memory else _NO_LIMIT)),
        ("TasksMax", ("t", confinement.tasks)),
        # A core would contain a tenant's data.
        ("LimitCORE", ("t", 0)),
        ("TimeoutStopUSec", ("t", max(1, round(confinement.stop_timeout * 1_000_000)))),
    ]


def _cores(devices: Devices | None) -> list[Property]:
    if devices is None or not devices.cores:
        return []
    bits = sum(1 << number for number in devices.cores)
    mask = bits.to_bytes((max(devices.cores) // 8) + 1, "little")
    return [
        ("AllowedCPUs", ("ay", mask)),
        # Where the controller cpuset is missing, it gets no more time than these cores have.
        ("CPUQuotaPerSecUSec", ("t", len(devices.cores) * 1_000_000)),
        # Where the controller cpu is missing, too, it begins on these cores, and is kept there by nothing.
        ("CPUAffinity", ("ay", mask)),
    ]


def _log(daemon: Daemon) -> list[Property]:
    return [
        ("StandardOutput", ("s", "journal")),
        ("StandardError", ("s", "journal")),
        ("SyslogIdentifier", ("s", f"{PREFIX}{daemon.key}")),
        # Else a line that begins with <0> would be shown on every terminal of the host.
        ("SyslogLevelPrefix", ("b", False)),
        ("LogRateLimitIntervalUSec", ("t", _LOG_INTERVAL)),
        ("LogRateLimitBurst", ("u", _LOG_BURST)),
    ]


def failure(result: str, status: int) -> str:
    """Return how a unit ended, as a sentence without its subject, by Result and ExecMainStatus of the service."""
    match result:
        case "exit-code" if status == _EXIT_EXEC:
            # systemd's process logs the reason where the journal's sockets are out of its reach already.
            return (
                f"ended with status {status}: its program cannot be executed; see [daemons]command"
            )
        case "exit-code":
            return f"ended with status {status}"
        case "signal" | "core-dump":
            return f"was ended by signal {status}"
        case "oom-kill":
            return (
                "was ended because it used too much memory of the host; see [daemons]host_memory_mb"
            )
        case "success" | "":
            return "ended"
        case _:
            return f"ended: {result}"
