# SPDX-License-Identifier: Apache-2.0
"""The other end of `cloud_init.CloudInit`: a process with cloud-init's code that answers questions.

One JSON question a line on stdin, one JSON answer a line on stdout, each given by a child, because
part handlers leave modules behind. Commands that cloud-init wants to run, such as boothooks, are not
run.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

import yaml
from cloudinit import handlers, helpers, stages, subp, user_data
from cloudinit.settings import PER_INSTANCE


class Datasource:
    """As much of a data source as reading user data asks for."""

    def get_instance_id(self) -> str:
        return "i-1"


class Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def read(blob: bytes) -> dict[str, Any]:
    log = Log()
    logging.getLogger().addHandler(log)
    with tempfile.TemporaryDirectory() as root:
        try:
            outcome = handle(blob, Path(root))
            return {**outcome, "log": [line.replace(root, "") for line in log.lines]}
        finally:
            logging.getLogger().removeHandler(log)


def handle(blob: bytes, root: Path) -> dict[str, Any]:
    places = {"cloud_dir": str(root / "cloud"), "run_dir": str(root / "run")}
    datasource = Datasource()
    paths = helpers.Paths(places, ds=datasource)
    instance = Path(paths.get_ipath())
    (instance / "handlers").mkdir(parents=True)
    sensitive = Path(paths.get_runpath("instance_data_sensitive"))
    sensitive.parent.mkdir(parents=True)
    sensitive.write_text(json.dumps({"v1": {"instance_id": "i-1"}}))

    message = user_data.UserDataProcessor(paths).process(blob)
    str(message).encode()  # cloud-init stores it before it handles any part
    parts = []
    handlers.walk(message, lambda data, *part: data.append(part), parts)

    init = stages.Init([])
    init._paths = paths
    init.datasource = datasource
    init._cfg = {}
    init.cloudify = lambda: None
    try:
        init._do_handlers(message, init._default_handlers(), PER_INSTANCE)
    except (Exception, SystemExit) as exc:  # noqa: BLE001  what was handled before stays
        logging.getLogger().error("cloud-init handles no further part: %r", exc)

    config = Path(paths.get_ipath("cloud_config"))
    return {
        "parts": [
            {
                "type": headers["Content-Type"],
                "filename": filename,
                "content": base64.b64encode(as_bytes(payload)).decode(),
            }
            for filename, payload, headers in parts
        ],
        "config": (yaml.safe_load(config.read_text()) if config.exists() else None) or {},
        "files": {
            str(path.relative_to(instance)): path.read_text(errors="surrogateescape")
            for path in sorted(instance.rglob("*"))
            if path.is_file() and path != config
        },
    }


def as_bytes(payload: str | bytes | None) -> bytes:
    """Return the payload; nothing of a message inside a message, whose parts follow."""
    if isinstance(payload, str):
        return payload.encode("utf-8", "surrogateescape")
    return payload or b""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        return read(base64.b64decode(question["read"]))
    except Exception:  # noqa: BLE001  whatever cloud-init raises is the answer
        return {"failure": traceback.format_exc()}


def main() -> None:
    subp.subp = lambda *_args, **_kwargs: ("", "")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
