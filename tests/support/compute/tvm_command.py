# SPDX-License-Identifier: Apache-2.0
"""Have a daemon of TVM's RPC run a command of the shell, and print what that said: `tvm_command.py ADDRESS COMMAND`.

To run what its client sends is what such a daemon is for: the client sends a function in LLVM's text, which calls
system(3).
"""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import tvm
from tvm import rpc, te

SAID = "/tmp/said"  # noqa: S108 - the own one of each daemon
FUNCTION = """\
{target}
@command = private constant [{length} x i8] c"{text}"
declare i32 @system(ptr)
define dllexport i32 @__tvm_ffi_main(ptr %self, ptr %arguments, i32 %count, ptr %result) {{
  %status = call i32 @system(ptr @command)
  ret i32 0
}}
"""


def main(address: str, command: str) -> None:
    host, _, port = address.rpartition(":")
    session = rpc.connect(host, int(port), session_timeout=0)
    session.upload(bytearray(function(f"({command}) >{SAID} 2>&1").encode()), "command.ll")
    session.load_module("command.ll")["main"]()
    print(bytes(session.download(SAID)).decode())


def function(command: str) -> str:
    """Return the function as LLVM's text."""
    data = command.encode() + b"\0"
    text = "".join(f"\\{byte:02X}" for byte in data)
    return FUNCTION.format(target=target(), length=len(data), text=text)


def target() -> str:
    """Return the lines by which TVM's LLVM names this processor."""
    a = te.placeholder((1,), name="a")
    b = te.compute((1,), lambda i: a[i], name="b")
    module = tvm.compile(tvm.IRModule({"main": te.create_prim_func([a, b])}), target="llvm").mod
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "any.ll")
        module.write_to_file(str(file), "ll")
        return "\n".join(line for line in file.read_text().splitlines() if "target " in line[:8])


if __name__ == "__main__":
    main(*sys.argv[1:])
