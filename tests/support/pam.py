# SPDX-License-Identifier: Apache-2.0
"""pam_env itself, to ask which variables a login gets from an `/etc/environment`."""

from __future__ import annotations

import ctypes
import ctypes.util
import tempfile
from pathlib import Path

_SUCCESS = 0


class _Conversation(ctypes.Structure):
    """What PAM would ask the user with; pam_env asks nothing."""

    _fields_ = [("ask", ctypes.c_void_p), ("data", ctypes.c_void_p)]


def environment(path: Path) -> dict[str, str]:
    """What `pam_env.so` makes of *path*, in a session of its own on a PAM stack of its own."""
    name = ctypes.util.find_library("pam")
    if name is None:
        raise RuntimeError(
            "libpam is missing: install the Debian packages libpam0g and libpam-modules"
        )
    pam = ctypes.CDLL(name)
    pam.pam_getenvlist.restype = ctypes.POINTER(ctypes.c_char_p)
    handle = ctypes.c_void_p()
    with tempfile.TemporaryDirectory() as stack:
        rule = f"session required pam_env.so readenv=1 user_readenv=0 envfile={path}"
        (Path(stack) / "gsaas").write_text(f"{rule} conffile=/dev/null\n")
        started = pam.pam_start_confdir(
            b"gsaas", b"root", ctypes.byref(_Conversation()), stack.encode(), ctypes.byref(handle)
        )
        assert started == _SUCCESS, f"pam_start says {started}"
        try:
            opened = pam.pam_open_session(handle, 0)
            assert opened == _SUCCESS, f"pam_env says {opened}"
            variables = {}
            for line in pam.pam_getenvlist(handle):
                if line is None:
                    return variables
                key, _, value = line.decode().partition("=")
                variables[key] = value
        finally:
            pam.pam_end(handle, 0)
    raise AssertionError("unreachable: PAM ends its list")
