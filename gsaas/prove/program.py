# SPDX-License-Identifier: Apache-2.0
"""A CUDA program that computes, checks what it computed, and measures; it prints one JSON object.

It uses the CUDA driver API of any `libcuda.so.1`: NVIDIA's own, or the client library of a middleware. It needs nothing
but Python 3.9 and its standard library, as it is sent to the machines of tenants as text. Times are seconds.

    program.py compute [DEVICE]      context, copies, kernel, streams, events, matrix product
    program.py exceed MIB            allocate more than MIB, and say after how many MiB that was refused
    program.py occupy MIB SECONDS    allocate MIB, and compute with it for so long; one line for each round
    program.py pointers COUNT        allocate on every device, and tell the pointers
    program.py used                  MiB of the GPU that are in use, and that are free
    program.py look                  what it sees: devices of CUDA and NVML, nodes in /dev, limits
    program.py fill MIB              take more than MIB of the host's memory; needs no CUDA
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
MIB = 1 << 20
COPY_MIB = 64
"""Size of a copy whose bandwidth is measured."""
CALLS = 200
"""Calls whose latency is measured."""
SIDE = 1024
"""Rows and columns of the matrices."""
OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""

PTX = """\
.version 6.0
.target sm_50
.address_size 64

.visible .entry gsaas_affine(.param .u64 data, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra END;
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    mad.lo.u32 %r7, %r6, 3, 7;
    st.global.u32 [%rd3], %r7;
END:
    ret;
}

.visible .entry gsaas_matrix(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 side)
{
    .reg .pred %p<4>;
    .reg .f32 %f<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r1, [side];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mov.u32 %r6, %ctaid.y;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    setp.ge.u32 %p2, %r6, %r1;
    @%p2 bra DONE;
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mul.lo.u32 %r7, %r6, %r1;
    mul.wide.u32 %rd4, %r7, 4;
    add.u64 %rd5, %rd1, %rd4;
    mul.wide.u32 %rd6, %r5, 4;
    add.u64 %rd7, %rd2, %rd6;
    mul.wide.u32 %rd8, %r1, 4;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r8, 0;
LOOP:
    ld.global.f32 %f2, [%rd5];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.u64 %rd5, %rd5, 4;
    add.u64 %rd7, %rd7, %rd8;
    add.u32 %r8, %r8, 1;
    setp.lt.u32 %p3, %r8, %r1;
    @%p3 bra LOOP;
    add.u32 %r9, %r7, %r5;
    mul.wide.u32 %rd9, %r9, 4;
    add.u64 %rd10, %rd3, %rd9;
    st.global.f32 [%rd10], %f1;
DONE:
    ret;
}
"""
"""Kernels for any GPU of the last ten years: the driver compiles them for its own."""


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code


class Driver:
    """The CUDA driver API of a library. Every method raises `CudaError`, its constructor `OSError`."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver API."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(name, code, self._name(code))

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(text)) or text.value is None:
            return "unknown error"
        return text.value.decode()

    def number(self, name: str, *arguments: object) -> int:
        """Return the int that a function writes to its first argument."""
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def uuid(self, device: int) -> str | None:
        """Return the UUID of a device, as NVML writes it; None if the library does not report it."""
        raw = (ctypes.c_ubyte * 16)()
        try:
            self.call("cuDeviceGetUuid", ctypes.byref(raw), device)
        except (AttributeError, CudaError):  # a middleware need not have this function
            return None
        if not any(raw):
            return None
        text = bytes(raw).hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def enter(self, device: int) -> None:
        """Make the primary context of a device the current one."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Return the device pointer of *size* new bytes."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer: ctypes.c_uint64) -> None:
        """Free what `allocate` returned."""
        self.call("cuMemFree_v2", pointer)

    def write(self, pointer: ctypes.c_uint64, data: bytes) -> None:
        """Copy *data* to the device."""
        self.call("cuMemcpyHtoD_v2", pointer, data, ctypes.c_size_t(len(data)))

    def read(self, pointer: ctypes.c_uint64, size: int) -> bytes:
        """Return *size* bytes from the device."""
        buffer = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", buffer, pointer, ctypes.c_size_t(size))
        return buffer.raw

    def memory(self) -> tuple[int, int]:
        """Return the free and all bytes of the current device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def kernels(self) -> dict[str, ctypes.c_void_p]:
        """Load the module; return its kernels by name."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX.encode() + b"\0")
        found = {}
        for name in ("gsaas_affine", "gsaas_matrix"):
            found[name] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(found[name]), module, name.encode())
        return found

    def launch(
        self, kernel: ctypes.c_void_p, grid: tuple[int, int], block: int, *parameters: Any
    ) -> None:
        """Launch a kernel in the default stream; *grid* has two numbers of blocks, of *block* threads each."""
        pointers = (ctypes.c_void_p * len(parameters))(
            *[ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in parameters]
        )
        self.call("cuLaunchKernel", kernel, *grid, 1, block, 1, 1, 0, None, pointers, None)

    def wait(self) -> None:
        """Wait until the device has done everything."""
        self.call("cuCtxSynchronize")


def compute(device: int = 0) -> dict[str, Any]:
    """Return figures of everything that a program does; `failed` names what computed something wrong."""
    began = time.perf_counter()
    driver = Driver()
    driver.enter(device)
    result: dict[str, Any] = {
        "begin_s": time.perf_counter() - began,
        "uuid": driver.uuid(device),
        "driver": driver.number("cuDriverGetVersion"),
        "devices": driver.number("cuDeviceGetCount"),
        "memory_mb": driver.memory()[1] // MIB,
        "failed": [],
    }
    for step in (_copy, _kernel, _order, _matrix):
        try:
            result.update(step(driver, result["failed"]))
        except CudaError as error:
            result["failed"].append(str(error))
            return result
    result["call_s"] = _latency(driver)
    return result


def _copy(driver: Driver, failed: list[str]) -> dict[str, Any]:
    data = os.urandom(MIB) * COPY_MIB
    pointer = driver.allocate(len(data))
    driver.write(pointer, data[:MIB])  # the first copy makes buffers
    began = time.perf_counter()
    driver.write(pointer, data)
    middle = time.perf_counter()
    back = ctypes.create_string_buffer(len(data))  # not measured: it is memory of this host
    ctypes.memset(back, 1, len(data))
    before = time.perf_counter()
    driver.call("cuMemcpyDtoH_v2", back, pointer, ctypes.c_size_t(len(data)))
    ended = time.perf_counter()
    driver.free(pointer)
    if hashlib.sha256(back).digest() != hashlib.sha256(data).digest():
        failed.append("what was copied to the device and back is not what was sent")
    return {
        "to_device_mib_s": COPY_MIB / (middle - began),
        "to_host_mib_s": COPY_MIB / (ended - before),
    }


def _kernel(driver: Driver, failed: list[str]) -> dict[str, Any]:
    count = 1 << 16
    numbers = array.array("I", range(count))
    pointer = driver.allocate(4 * count)
    driver.write(pointer, numbers.tobytes())
    began = time.perf_counter()
    kernel = driver.kernels()["gsaas_affine"]
    driver.launch(kernel, (count // 256, 1), 256, pointer, ctypes.c_uint(count))
    driver.wait()
    took = time.perf_counter() - began
    back = array.array("I")
    back.frombytes(driver.read(pointer, 4 * count))
    driver.free(pointer)
    if list(back) != [3 * number + 7 for number in numbers]:
        failed.append("a kernel that computes 3 x + 7 gave something else")
    return {"kernel_s": took}


def _order(driver: Driver, failed: list[str]) -> dict[str, Any]:
    """A copy in one stream waits for an event of another one."""
    first, second, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    for stream in (first, second):
        driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    driver.call("cuEventCreate", ctypes.byref(event), 0)
    data, size = b"\x5a" * MIB, ctypes.c_size_t(MIB)
    pointer, back = driver.allocate(MIB), ctypes.create_string_buffer(MIB)
    driver.call("cuMemcpyHtoDAsync_v2", pointer, data, size, first)
    driver.call("cuEventRecord", event, first)
    driver.call("cuStreamWaitEvent", second, event, 0)
    driver.call("cuMemcpyDtoHAsync_v2", back, pointer, size, second)
    driver.call("cuStreamSynchronize", second)
    if back.raw != data:
        failed.append("a copy did not wait for an event of another stream")
    driver.free(pointer)
    driver.call("cuEventDestroy_v2", event)
    for stream in (first, second):
        driver.call("cuStreamDestroy_v2", stream)
    return {"streams": 2}


def _matrix(driver: Driver, failed: list[str]) -> dict[str, Any]:
    """The product of a matrix and a permutation, so that every element of the result is known."""
    shift = 5
    cells = SIDE * SIDE
    left = array.array("f", [float(index % 251) for index in range(cells)])
    right = array.array("f", bytes(4 * cells))
    for row in range(SIDE):
        right[row * SIDE + (row + shift) % SIDE] = 1.0
    pointers = [driver.allocate(4 * cells) for _ in range(3)]
    driver.write(pointers[0], left.tobytes())
    driver.write(pointers[1], right.tobytes())
    kernel = driver.kernels()["gsaas_matrix"]
    grid = (SIDE // 256, SIDE)
    driver.launch(kernel, grid, 256, *pointers, ctypes.c_uint(SIDE))
    driver.wait()
    began = time.perf_counter()
    driver.launch(kernel, grid, 256, *pointers, ctypes.c_uint(SIDE))
    driver.wait()
    took = time.perf_counter() - began
    back = array.array("f")
    back.frombytes(driver.read(pointers[2], 4 * cells))
    for pointer in pointers:
        driver.free(pointer)
    expected = array.array("f")
    for row in range(SIDE):
        line = left[row * SIDE : (row + 1) * SIDE]
        expected += line[SIDE - shift :] + line[: SIDE - shift]
    if back != expected:
        failed.append("a matrix product is wrong")
    return {"matrix_s": took, "matrix_gflops": 2 * SIDE**3 / took / 1e9}


def _latency(driver: Driver) -> float:
    """Return the median of calls that a middleware cannot answer by itself."""
    took = []
    for _ in range(CALLS):
        began = time.perf_counter()
        driver.memory()
        took.append(time.perf_counter() - began)
    return sorted(took)[CALLS // 2]


def exceed(limit_mib: int) -> dict[str, Any]:
    """Allocate in steps, up to twice *limit_mib* and at least 1 GiB beyond it; say when that was refused."""
    driver = Driver()
    driver.enter(0)
    step = max(1, limit_mib // 16)
    most = limit_mib + max(limit_mib, 1024)
    allocated, kept, refusal = 0, [], None
    while allocated < most and refusal is None:
        try:
            kept.append(driver.allocate(step * MIB))
            driver.write(kept[-1], b"\1" * 4096)
            allocated += step
        except CudaError as error:
            refusal = str(error)
            out_of_memory = error.code == OUT_OF_MEMORY
    return {
        "allocated_mb": allocated,
        "asked_mb": allocated + (0 if refusal is None else step),
        "refused": refusal,
        "out_of_memory": refusal is not None and out_of_memory,
    }


def fill(limit_mib: int) -> dict[str, Any]:
    """Take memory of the host in steps, up to twice *limit_mib*, and say so before each step.

    It is memory that processes share, which counts for a control group, and not for RLIMIT_DATA.
    """
    step = max(1, limit_mib // 16)
    allocated, kept = 0, []
    while allocated < 2 * limit_mib:
        asked = allocated + step
        print(json.dumps({"allocated_mb": allocated, "asked_mb": asked}), flush=True)  # noqa: T201
        try:
            kept.append(mmap.mmap(-1, step * MIB))
        except OSError as error:
            return {"allocated_mb": allocated, "asked_mb": asked, "refused": str(error)}
        kept[-1].write(b"\1" * (step * MIB))
        allocated = asked
    return {"allocated_mb": allocated, "asked_mb": allocated, "refused": None}


def occupy(mib: int, seconds: float) -> dict[str, Any]:
    """Compute with *mib* MiB for *seconds*, and print a line for each round: the neighbour of another program."""
    driver = Driver()
    driver.enter(0)
    size = mib * MIB
    pointer = driver.allocate(size)
    kernel = driver.kernels()["gsaas_affine"]
    count = min(size // 4, 1 << 16)
    numbers = array.array("I", range(count))
    driver.write(pointer, numbers.tobytes())
    ends_at, rounds, longest = time.monotonic() + seconds, 0, 0.0
    while time.monotonic() < ends_at:
        began = time.perf_counter()
        driver.launch(kernel, ((count + 255) // 256, 1), 256, pointer, ctypes.c_uint(count))
        driver.wait()
        longest = max(longest, time.perf_counter() - began)
        rounds += 1
        numbers = array.array("I", [(3 * number + 7) & 0xFFFFFFFF for number in numbers])
        back = driver.read(pointer, 4 * count)
        if back != numbers.tobytes():
            return {
                "rounds": rounds,
                "longest_s": longest,
                "failed": ["it computed something wrong"],
            }
        if rounds == 1:
            print(json.dumps({"computing": True}), flush=True)  # noqa: T201
    return {"rounds": rounds, "longest_s": longest, "failed": []}


def pointers(count: int) -> dict[str, Any]:
    """Return *count* device pointers of each device, all allocated at the same time."""
    driver = Driver()
    found: dict[str, list[int]] = {}
    for device in range(driver.number("cuDeviceGetCount")):
        driver.enter(device)
        found[str(device)] = [driver.allocate(MIB).value for _ in range(count)]
    return {"pointers": found}


def look() -> dict[str, Any]:
    """Return what a program in the place of this one sees of its host."""
    seen: dict[str, Any] = {
        "nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),  # noqa: PTH208
        "user": os.getuid(),
        "openable": {},
    }
    for node in seen["nodes"]:
        path = f"/dev/{node}"
        if os.path.isdir(path):  # noqa: PTH112
            continue
        try:
            os.close(os.open(path, os.O_RDWR))
            seen["openable"][node] = True
        except OSError:
            seen["openable"][node] = False
    try:
        driver = Driver()
        devices = range(driver.number("cuDeviceGetCount"))
        uuids = [driver.uuid(device) for device in devices]
        if None in uuids:
            seen["cuda_error"] = "CUDA does not report UUIDs there"
        else:
            seen["cuda"] = uuids
    except (OSError, CudaError) as error:
        seen["cuda_error"] = str(error)
    try:
        seen["nvml"] = _nvml()
    except OSError as error:
        seen["nvml_error"] = str(error)
    return seen


def _nvml() -> list[str]:
    """Return the UUIDs that NVML reports; raises `OSError`."""
    nvml = ctypes.CDLL(NVML)
    if code := nvml.nvmlInit_v2():
        raise OSError(f"nvmlInit_v2 fails with {code}")
    count, found = ctypes.c_uint(), []
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        if not nvml.nvmlDeviceGetUUID(handle, text, 96):
            found.append(text.value.decode(errors="replace"))
    return found


def used() -> dict[str, Any]:
    """Return the MiB that all programs have of the GPU, this one included, and the MiB that are free."""
    driver = Driver()
    driver.enter(0)
    free, total = driver.memory()
    return {"used_mb": (total - free) // MIB, "free_mb": free // MIB}


COMMANDS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "used": lambda _words: used(),
    "compute": lambda words: compute(*map(int, words)),
    "exceed": lambda words: exceed(int(words[0])),
    "occupy": lambda words: occupy(int(words[0]), float(words[1])),
    "pointers": lambda words: pointers(int(words[0])),
    "look": lambda _words: look(),
    "fill": lambda words: fill(int(words[0])),
}


def main(words: list[str]) -> int:
    """Run one command; print its result, or why there is none, as JSON; return the exit status."""
    try:
        result = COMMANDS[words[0]](words[1:])
    except OSError as error:
        result = {"error": f"CUDA cannot be used: {error}"}
    except CudaError as error:
        result = {"error": str(error), "code": error.code}
    print(json.dumps(result), flush=True)  # noqa: T201
    return 1 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
