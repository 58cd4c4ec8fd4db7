# SPDX-License-Identifier: Apache-2.0
"""Clients of the API: each request is answered in an API process, which may be killed, and its answer may be lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gsaas.api import auth, microversions
from gsaas.api.idempotency import HEADER as KEY
from tests.api.world import token
from tests.world import baton, facade
from tests.world.baton import Process, Task
from tests.world.history import Call

if TYPE_CHECKING:
    from tests.world.world import World

PATIENCE = 90.0
"""Seconds for which a client waits for an answer."""
NEWEST = "latest"


@dataclass
class Answer:
    """Status and body; status 0 for an answer that never came."""

    status: int
    body: Any = None

    @property
    def is_known(self) -> bool:
        return self.status != 0


LOST = Answer(0)


@dataclass(eq=False)
class Request:
    """A request that is under way."""

    process: Process
    waiting: list[Task] = field(default_factory=list)
    answer: Answer | None = None

    def lose(self) -> None:
        self.finish(LOST)

    def finish(self, answer: Answer) -> None:
        if self.answer is None:
            self.answer = answer
            baton.here().wake(self.waiting)


def call(
    world: World,
    caller: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    version: str = NEWEST,
    key: str | None = None,
    loses_answers: bool = True,
) -> Answer:
    """Send one request to any API worker, and wait for its answer."""
    scheduler = world.scheduler
    if not world.apis:
        return LOST
    names = sorted(world.apis)
    name = names[int(scheduler.chance.random() * len(names))]
    app, process = world.apis[name], world.processes[name]
    headers = {auth.HEADER: token(caller), microversions.HEADER: f"gpu-scheduling {version}"}
    if key is not None:
        headers[KEY] = key
    request = Request(process)
    world.pending.append(request)
    record = Call(caller, method, path, body, key, scheduler.points, version=version)
    record.began_at = _now()
    world.history.calls.append(record)

    def answer() -> None:
        response = app.test_client().open(path, method=method, headers=headers, json=body)
        found = response.get_json(silent=True) if response.is_json else None
        scheduler.point()
        request.finish(Answer(response.status_code, found))

    scheduler.spawn(f"{name}: {method} {path}", answer, process)
    until = scheduler.now + PATIENCE
    while request.answer is None:
        if not scheduler.wait(request.waiting, until):
            break
    world.pending.remove(request)
    found = request.answer or LOST
    what = f"{caller}: {method} {path}" + (f" with key {key}" if key else "")
    if loses_answers and not world.is_calm and scheduler.chance.random() < world.lost_answers:
        world.story.tell(f"{what}: {found.status or 'no answer'}, which is lost", name)
        return LOST
    if found.is_known:
        record.end, record.ended_at = scheduler.points, _now()
        record.status, record.answer = found.status, found.body
    error = found.body["errors"][0]["title"] if found.body and "errors" in found.body else ""
    world.story.tell(f"{what}: {found.status or 'no answer'} {error}".rstrip(), name)
    if found.status >= 500 and found.status != 503:
        world.broken.append(f"{what}: {found.status} {found.body}")
        world.story.tell(f"BROKEN {world.broken[-1]}", "rules")
    world.note_answer(caller, method, path, body, found)
    return found


def _now() -> str:
    return f"{facade.true_time():%Y-%m-%d %H:%M:%S}"


def versions() -> list[str]:
    """Return every microversion."""
    return [microversions.format_version(each) for each in microversions.HISTORY]
