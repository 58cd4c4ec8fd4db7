# SPDX-License-Identifier: Apache-2.0
"""What the measured values of a GPU host mean: a verdict for each, and what to mend. Pure: no I/O.

A value that could not be measured is None, and its check is skipped with the reason, never passed.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

LEAST_MTU = 9000
"""Bytes. A smaller one costs bandwidth, and no correctness."""
LEAST_DRIVER = 525
"""The first release of NVIDIA's driver whose MPS limits memory and whose NVML tells the processes of MIG instances."""
SUSPENDING_DRIVER = 570
"""The first release that can suspend programs that use MPS or several GPUs."""
LEAST_OF_NATIVE = 0.5
"""A matrix product through the middleware should have this share of the native rate at least."""
SYSTEM_NOT_READY = "CUDA_ERROR_SYSTEM_NOT_READY"
FABRIC = (
    "; GPUs that NVSwitches connect need nvidia-fabricmanager of the driver's very release: "
    "systemctl enable --now nvidia-fabricmanager"
)
"""What to do about `SYSTEM_NOT_READY`, which each program gets on such a host without that service."""
LIMIT_MARGIN = 0.25
"""A memory limit holds if it refuses within so much of itself: the context of a program takes memory, too."""


class Verdict(enum.StrEnum):
    """The result of one check."""

    OK = "ok"
    WARN = "warn"
    """Tenants can be served, but slower, or with less protection."""
    FAIL = "fail"
    """Do not let tenants in."""
    SKIP = "skip"
    """It could not be checked here; the text says why."""


@dataclass(frozen=True)
class Line:
    """One line of the report."""

    name: str
    """What was checked, unique in the report."""
    verdict: Verdict
    figure: str
    """What was found, short."""
    mend: str | None = None
    """What to do, for WARN and FAIL; why it was not checked, for SKIP."""
    values: Mapping[str, object] = field(default_factory=dict)
    """The measured values, for the JSON document."""


def ok(name: str, figure: str, **values: object) -> Line:
    """Return a line about what is as it should be."""
    return Line(name, Verdict.OK, figure, None, values)


def warn(name: str, figure: str, mend: str, **values: object) -> Line:
    """Return a line about what should be better."""
    return Line(name, Verdict.WARN, figure, mend, values)


def fail(name: str, figure: str, mend: str, **values: object) -> Line:
    """Return a line about what has to be mended."""
    return Line(name, Verdict.FAIL, figure, mend, values)


def skip(name: str, why: str) -> Line:
    """Return a line about what could not be checked."""
    return Line(name, Verdict.SKIP, "-", why)


# -- the host ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML describes it; None for what it does not report."""

    uuid: str
    model: str
    memory_mb: int
    persistence: bool | None = None
    compute_mode: str | None = None
    """DEFAULT, EXCLUSIVE_PROCESS or PROHIBITED."""
    ecc_errors: int | None = None
    """Uncorrected errors since the last reset."""
    mig: bool = False
    """It is divided into MIG instances, and runs no program itself."""


def driver(version: str | None) -> Line:
    """Judge the release of NVIDIA's driver, such as 570.86.10; None: there is none."""
    name = "driver"
    if version is None:
        return fail(name, "none", "install NVIDIA's driver; nvidia-smi then lists the GPUs")
    major = version.partition(".")[0]
    if not major.isdigit():
        return warn(name, version, f"check that this is release {LEAST_DRIVER} or newer")
    if int(major) < LEAST_DRIVER:
        return fail(name, version, f"install release {LEAST_DRIVER} or newer", version=version)
    return ok(name, version, version=version)


def unreadable(what: str, error: str) -> Line:
    """Judge a GPU about which NVML fails to answer; *what* names it."""
    mend = "dmesg shows its errors (Xid); reset it (nvidia-smi -r), and replace it if that does not help"
    return fail(what, f"NVML says: {error}", mend)


def gpu(found: Gpu, *, uses_mps: bool) -> list[Line]:
    """Judge the settings of one GPU."""
    lines = [
        ok(f"{found.uuid}", f"{found.model}, {found.memory_mb} MiB", memory_mb=found.memory_mb)
    ]
    name = f"{found.uuid} persistence"
    if found.persistence is None:
        lines.append(skip(name, "NVML does not report it"))
    elif found.persistence:
        lines.append(ok(name, "on"))
    else:
        mend = "systemctl enable --now nvidia-persistenced: without it the first program waits for the driver"
        lines.append(warn(name, "off", mend))
    lines.append(_compute_mode(found, uses_mps))
    name = f"{found.uuid} memory errors"
    if found.ecc_errors is None:
        lines.append(skip(name, "it has no ECC, or it is off"))
    elif found.ecc_errors:
        mend = "reset the GPU (nvidia-smi -r), and replace it if errors come again"
        lines.append(fail(name, f"{found.ecc_errors} uncorrected", mend, errors=found.ecc_errors))
    else:
        lines.append(ok(name, "none uncorrected"))
    return lines


def cpu_device(found: Gpu) -> Line:
    """Return the line about a part of the host's processors and memory."""
    return ok(found.uuid, f"{found.model}, {found.memory_mb} MiB", memory_mb=found.memory_mb)


def _compute_mode(found: Gpu, uses_mps: bool) -> Line:
    name = f"{found.uuid} compute mode"
    if found.compute_mode is None:
        return skip(name, "NVML does not report it")
    if found.compute_mode == "DEFAULT":
        return ok(name, found.compute_mode)
    mend = f"nvidia-smi -i {found.uuid} -c DEFAULT"
    why = ": daemons of whole GPUs do not use MPS" if uses_mps else ""
    return fail(name, found.compute_mode, mend + why)


def mps(pipes: Mapping[str, bool | str | None], *, limit: str) -> list[Line]:
    """Judge whether the MPS control daemons listen: folder -> whether one answers, None: there is no socket.

    A text says why the folder is not trusted, and what to do.

    *limit* is `[daemons]memory_limit`.
    """
    if limit != "mps":
        return [skip("MPS", f"[daemons]memory_limit is {limit}")]
    lines = []
    for folder, answers in sorted(pipes.items()):
        name = f"MPS at {folder}"
        if answers is None:
            mend = (
                f"install -d -m 0755 {folder}; then start nvidia-cuda-mps-control -d as root, with "
                f"CUDA_MPS_PIPE_DIRECTORY={folder}"
            )
            lines.append(fail(name, "no control daemon", mend))
        elif isinstance(answers, str):
            why, _, mend = answers.partition(": ")
            lines.append(fail(name, why, mend))
        elif not answers:
            lines.append(fail(name, "does not answer", "restart the control daemon: it has ended"))
        else:
            lines.append(ok(name, "answers"))
    return lines


def device_nodes(missing: Collection[str]) -> Line:
    """Judge the device nodes that daemons need; *missing* are paths."""
    name = "device nodes"
    if not missing:
        return ok(name, "all there")
    mend = "nvidia-modprobe -u -c0 makes them, and nvidia-persistenced after each boot"
    return fail(name, f"missing: {', '.join(sorted(missing))}", mend)


def ports(taken: Mapping[int, str]) -> Line:
    """Judge the ports that daemons will need: port -> which range it is of, for those that something listens on."""
    if not taken:
        return ok("ports", "free")
    named = ", ".join(f"{port} ({range_})" for port, range_ in sorted(taken.items())[:5])
    return fail(
        "ports", f"in use: {named}", "ss -tlnp shows by which program; end it, or move the range"
    )


def ephemeral_ports(lease: tuple[int, int], local: tuple[int, int] | None) -> Line:
    """Judge whether outgoing connections may take the ports of daemons; both are first and last port."""
    name = "ports of outgoing connections"
    if local is None:
        return skip(name, "net.ipv4.ip_local_port_range cannot be read")
    figure = f"{local[0]}-{local[1]}, and daemons {lease[0]}-{lease[1]}"
    if local[1] < lease[0] or lease[1] < local[0]:
        return ok(name, figure)
    mend = (
        "set net.ipv4.ip_local_reserved_ports to the ports of daemons, or move [daemons]lease_ports"
    )
    return warn(name, figure, mend)


def network(mtu: int | None, speed_mbit: int | None, interface: str | None) -> list[Line]:
    """Judge the interface that has the host's address on the GPU network; None for what it does not report."""
    if interface is None:
        mend = "set [monitor]gpu_address to an address of this host"
        return [fail("GPU network", "no interface has the address", mend)]
    lines = []
    if mtu is None:
        lines.append(skip("MTU", f"{interface} does not report it"))
    elif mtu < LEAST_MTU:
        mend = f"ip link set {interface} mtu {LEAST_MTU} here, on the switches and on compute hosts: copies get faster"
        lines.append(warn("MTU", f"{mtu} on {interface}", mend, mtu=mtu))
    else:
        lines.append(ok("MTU", f"{mtu} on {interface}", mtu=mtu))
    if speed_mbit is None or speed_mbit <= 0:
        lines.append(skip("link speed", f"{interface} does not report it"))
    elif speed_mbit < 10_000:
        mend = "use a link of 10 Gbit/s or more: every copy to a GPU passes it"
        lines.append(warn("link speed", f"{speed_mbit} Mbit/s", mend, mbit_s=speed_mbit))
    else:
        lines.append(ok("link speed", f"{speed_mbit} Mbit/s", mbit_s=speed_mbit))
    return lines


# -- a CUDA program ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """How a program of `gsaas.prove.program` ended."""

    result: Mapping[str, object] | None
    """What it printed; None if it printed nothing that could be read."""
    problem: str | None = None
    """Why it did not end well; None if it did."""


def computed(
    name: str, ran: Ran, native: Ran | None = None, *, on: str | None = None
) -> list[Line]:
    """Judge a run of `compute`, against the same program on the host itself if *native* is given.

    *on* is the UUID of the GPU that it should have used; None: any.
    """
    result = ran.result
    if ran.problem is not None or result is None:
        hint = FABRIC if SYSTEM_NOT_READY in (ran.problem or "") else ""
        return [fail(f"{name}: program", "did not run", f"it says: {ran.problem}{hint}")]
    wrong = result.get("failed")
    if isinstance(wrong, Sequence) and wrong:
        mend = "do not use this GPU with this middleware and driver: " + "; ".join(map(str, wrong))
        return [fail(f"{name}: program", "computed something wrong", mend)]
    compared = native.result if native is not None and native.problem is None else None
    uuid = result.get("uuid")
    return [
        ok(f"{name}: program", f"right; CUDA {_cuda(result)}, {uuid or 'GPU not known'}"),
        *([] if on is None else [_used_gpu(f"{name}: GPU", uuid, on)]),
        _rate(f"{name}: call", result, compared, "call_s", 1e6, "µs", more_is_better=False),
        _rate(f"{name}: copy to the GPU", result, compared, "to_device_mib_s", 1, "MiB/s"),
        _rate(f"{name}: copy from the GPU", result, compared, "to_host_mib_s", 1, "MiB/s"),
        _rate(
            f"{name}: matrix product",
            result,
            compared,
            "matrix_gflops",
            1,
            "GFLOP/s",
            least=LEAST_OF_NATIVE,
        ),
    ]


def _used_gpu(name: str, uuid: object, expected: str) -> Line:
    """Judge which GPU a program used, by the UUID that CUDA reported."""
    if not isinstance(uuid, str):
        return skip(name, "CUDA does not report its UUID there")
    if uuid == expected:
        return ok(name, uuid)
    mend = f"it should have used {expected}; see CUDA_VISIBLE_DEVICES in [daemons]environment"
    return fail(name, uuid, mend)


def _cuda(result: Mapping[str, object]) -> str:
    version = result.get("driver")
    return f"{version // 1000}.{version % 1000 // 10}" if isinstance(version, int) else "?"


def _rate(
    name: str,
    result: Mapping[str, object],
    native: Mapping[str, object] | None,
    key: str,
    factor: float,
    unit: str,
    *,
    more_is_better: bool = True,
    least: float = 0.0,
) -> Line:
    """Return a figure, and its share of the native one."""
    value = _float(result.get(key))
    if value is None:
        return skip(name, "it was not measured")
    figure, values = f"{value * factor:,.4g} {unit}", {key: value}
    reference = None if native is None else _float(native.get(key))
    if not reference:
        return Line(name, Verdict.OK, figure, None, values)
    share = value / reference
    figure += f", {share:.2f} of native"
    values["of_native"] = share
    if more_is_better and share < least:
        mend = (
            "find the reason before tenants come: network, power limit, another program on the GPU"
        )
        return Line(name, Verdict.WARN, figure, mend, values)
    return Line(name, Verdict.OK, figure, None, values)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def limited(
    limit_mb: int, ran: Ran, neighbour: Ran, *, way: str, free_mb: int | None = None
) -> list[Line]:
    """Judge a program that went over its memory limit while a neighbour on the same GPU computed.

    *way* is `[daemons]memory_limit`; *free_mb* are the MiB of the GPU that were free before, None: enough.
    """
    name = "memory limit"
    lines = []
    result = ran.result or {}
    allocated = result.get("allocated_mb")
    values = _reach(way, limit_mb, result, result.get("out_of_memory"))
    if way == "none":
        lines.append(skip(name, "[daemons]memory_limit is none: tenants are trusted"))
    elif ran.problem is not None or not isinstance(allocated, int):
        lines.append(fail(name, "not measured", f"the program says: {ran.problem}"))
    elif result.get("refused") is None or allocated > (1 + LIMIT_MARGIN) * limit_mb:
        # One that was refused far beyond its limit has met the end of the GPU, not the limit.
        mend = "it had no effect: check the MPS control daemon, or the library, and [daemons]memory_limit"
        lines.append(fail(name, f"{allocated} MiB with a limit of {limit_mb}", mend, **values))
    elif not result.get("out_of_memory"):
        figure = f"refused with {result['refused']}"
        lines.append(fail(name, figure, "expected is out of memory", **values))
    elif free_mb is not None and free_mb < 2 * limit_mb:
        why = (
            f"the GPU has {free_mb} MiB free, less than twice the limit of {limit_mb}; see --share"
        )
        lines.append(skip(name, why))
    elif allocated > limit_mb:
        mend = "the limit is not exact: leave a reserve on each GPU"
        lines.append(warn(name, f"refused after {allocated} of {limit_mb} MiB", mend, **values))
    elif allocated < (1 - LIMIT_MARGIN) * limit_mb:
        mend = "contexts take much of it: tell tenants, or give larger shares"
        lines.append(warn(name, f"refused after {allocated} of {limit_mb} MiB", mend, **values))
    else:
        lines.append(ok(name, f"refused after {allocated} of {limit_mb} MiB", **values))
    lines.append(undisturbed("neighbour under pressure", neighbour))
    return lines


def limited_by_process(way: str, share_mb: int, allowed_mb: int, ran: Ran) -> Line:
    """Judge a program that went over its share of a CPU device, through a daemon that *way* keeps to *allowed_mb*.

    These are its share and what the daemon needs itself.
    """
    result = ran.result or {}
    values = _reach(way, share_mb, result, result.get("computes"))
    mend = "nothing keeps a daemon to its share: see [monitor]source and the limits of its unit"
    return _kept(way, share_mb, allowed_mb, ran, values, mend)


def limited_by_group(way: str, share_mb: int, allowed_mb: int, ran: Ran) -> Line:
    """Judge code in a daemon's place that took memory as several processes would, whom *way* keeps to *allowed_mb*."""
    values = _reach(way, share_mb, ran.result or {}, False)
    mend = (
        "a tenant whose code runs in a daemon gets memory of the host without a bound: boot with control groups that "
        "limit memory"
    )
    return _kept(way, share_mb, allowed_mb, ran, values, mend)


def _reach(
    way: str, share_mb: int, result: Mapping[str, object], clean: object
) -> dict[str, object]:
    """Return the measured values of a limit; *clean*: the program can go on after it was refused."""
    got = result.get("allocated_mb")
    sees = "out of memory" if clean else "the end of its connection"
    return {
        "way": way,
        "share_mb": share_mb,
        "asked_mb": result.get("asked_mb"),
        "got_mb": got,
        "beyond_mb": got - share_mb if isinstance(got, int) else None,
        "sees": sees if result.get("refused", "its process was ended") else "no limit",
    }


def _kept(
    way: str, share_mb: int, allowed_mb: int, ran: Ran, values: dict[str, object], mend: str
) -> Line:
    name = f"memory limit: {way}"
    got = values["got_mb"]
    if ran.problem is not None or not isinstance(got, int):
        return fail(name, "not measured", f"the program says: {ran.problem}")
    figure = f"asked {values['asked_mb']}, got {got} of {share_mb} MiB ({got - share_mb:+}), sees {values['sees']}"
    if got > allowed_mb or values["sees"] == "no limit":
        return fail(name, figure, mend, **values)
    if got < (1 - LIMIT_MARGIN) * share_mb:
        return warn(name, figure, "the daemon needs much of it: give larger shares", **values)
    return ok(name, figure, **values)


def undisturbed(name: str, neighbour: Ran) -> Line:
    """Judge the neighbour on the same GPU, which has to go on computing, and to compute correctly."""
    result = neighbour.result or {}
    wrong = result.get("failed")
    if neighbour.problem is not None or not result.get("rounds"):
        why = neighbour.problem or "its program was ended"
        return fail(name, "stopped", f"tenants on one GPU disturb each other: {why}")
    if isinstance(wrong, Sequence) and wrong:
        return fail(name, "computed something wrong", "do not share this GPU")
    longest = _float(result.get("longest_s")) or 0.0
    figure = f"{result['rounds']} rounds, the longest {longest * 1e3:.3g} ms"
    return ok(name, figure, rounds=result["rounds"], longest_s=longest)


def confined(seen: Ran, own: str, *, own_devices: bool) -> list[Line]:
    """Judge what a program in a daemon's place sees of its host: it should see the GPU *own*, and no other."""
    if seen.result is None or seen.problem is not None:
        return [fail("view of a daemon", "not seen", f"the program says: {seen.problem}")]
    lines = [_sees("CUDA in a daemon", seen.result, "cuda", own)]
    lines.append(_sees("NVML in a daemon", seen.result, "nvml", own, mended_by=own_devices))
    openable = seen.result.get("openable")
    nodes = [
        node
        for node, opens in (openable.items() if isinstance(openable, Mapping) else ())
        if opens and node.removeprefix("nvidia").isdigit()
    ]
    name = "device nodes of a daemon"
    if len(nodes) <= 1:
        lines.append(ok(name, ", ".join(nodes) or "none"))
    elif own_devices:
        lines.append(
            fail(name, ", ".join(nodes), "its unit does not keep it from them: see systemctl show")
        )
    else:
        lines.append(
            warn(name, ", ".join(nodes), "set [daemons]own_devices: it can use each of them")
        )
    return lines


def _sees(
    name: str, seen: Mapping[str, object], key: str, own: str, *, mended_by: bool = True
) -> Line:
    found = seen.get(key)
    if not isinstance(found, Sequence):
        return skip(name, str(seen.get(f"{key}_error", "it reports nothing")))
    others = [uuid for uuid in found if uuid != own]
    if others:
        mend = "see [daemons]own_devices"
        figure = f"{len(others)} GPUs that are not its own"
        return (fail if mended_by else warn)(name, figure, mend)
    return ok(name, "its own GPU") if found else warn(name, "no GPU", "it cannot serve its tenant")


def freed(name: str, before_mb: int | None, after_mb: int | None, seconds: float | None) -> Line:
    """Judge whether the memory of a GPU is free again: MiB in use before and after, and how long that took.

    *seconds* None: it did not get free while that was waited for.
    """
    if before_mb is None or after_mb is None:
        return skip(name, "NVML does not report the memory in use")
    if seconds is None:
        mend = (
            "a process is left: nvidia-smi shows it; until it ends, the next tenant has less memory"
        )
        return fail(name, f"{after_mb - before_mb} MiB still in use", mend)
    return ok(name, f"free after {seconds:.2f} s", seconds=seconds)


def pointers(found: Sequence[Mapping[str, object]]) -> Line:
    """Judge whether two daemons hand out the same device pointers; each item is a result of `pointers`."""
    name = "device pointers of two daemons"
    sets = []
    for each in found:
        of_devices = each.get("pointers")
        if isinstance(of_devices, Mapping):
            sets.append({pointer for several in of_devices.values() for pointer in several})
    if len(sets) < 2:
        return skip(name, "two daemons could not be asked")
    equal = len(sets[0] & sets[1])
    if equal:
        mend = "leave [remoting]several_daemons off: a program with two cGPUs would read the wrong data"
        return warn(name, f"{equal} are equal", mend, equal=equal)
    return ok(name, f"none of {len(sets[0])} is equal", equal=0)


def suspended(driver_version: str | None, tool: bool, outcome: str | None) -> Line:
    """Judge suspending and resuming a program; *outcome* is None if it worked, else what went wrong."""
    name = "suspend and resume"
    major = (driver_version or "").partition(".")[0]
    if not tool:
        return skip(name, "cuda-checkpoint is not installed")
    if not major.isdigit() or int(major) < SUSPENDING_DRIVER:
        return skip(name, f"needs driver {SUSPENDING_DRIVER} or newer")
    if outcome is None:
        return ok(name, "the program went on, and computed correctly")
    return warn(name, "failed", f"cuda-checkpoint: {outcome}")


def numbered(line: Line, number: int) -> Line:
    """Return the line about the GPU with this number of several."""
    return Line(f"GPU {number}: {line.name}", line.verdict, line.figure, line.mend, line.values)


def failed(lines: Collection[Line]) -> bool:
    """Return whether any line says that tenants must not be let in."""
    return any(line.verdict is Verdict.FAIL for line in lines)
