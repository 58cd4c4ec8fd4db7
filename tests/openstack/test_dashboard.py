# SPDX-License-Identifier: Apache-2.0
"""GSaaS's dashboard in a real Horizon, a real Chromium and the real cloud: what tenants and administrators do with it.

With the variable GSAAS_SCREENSHOTS, which names a folder, the pictures of doc/images are written there.
"""

from __future__ import annotations

import base64
import csv
import io
import os
import re
import signal
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from openstack.connection import Connection
from selenium.webdriver.common.keys import Keys

from gsaasclient import sdk
from tests.openstack import users
from tests.openstack.bed import cpu_host, gsaas, keystone, processes, settings
from tests.openstack.browser import Browser
from tests.openstack.horizon import Horizon
from tests.openstack.servers import Servers
from tests.support import ggml

pytestmark = users.pytestmark

TENANT, OTHER = settings.TENANTS
PICTURES = os.environ.get("GSAAS_SCREENSHOTS")
CHECK = "[data-gsaas-check]"
LEASES, GPUS = "/project/gpu_leases/", "/admin/gpus/"
ALL_GPUS = sum(gsaas.GPUS.values())
ALL_DEVICES = ALL_GPUS + cpu_host.DEVICES
SCRIPT = "<img src=x onerror=document.title='taken'>"
ANGULAR, COMPUTED = "{$ 999999 * 10000019 $}", str(999999 * 10000019)
"""What Horizon's pages would compute if it were not escaped, and to what: no id has as many digits in a row."""
VM_FIELDS = {"image", "flavor", "network", "key_name"}
SELECTED = VM_FIELDS | {"gpu_model", "mode", "locality", "hosts", "policy", "wait"}
"""Fields of the launch page that are on its second tab, and those in which one selects."""
CHARTS = "#gsaas-lease .gsaas-chart svg"
BUSY = re.compile(r"cGPU 0: utilisation: (?!0 %)")
ENDLESS = ggml.BARE.read_text().replace("SIZE, ROUNDS = 24, 5", "SIZE, ROUNDS = 1024, 0")
COMPUTES = f"""\
#cloud-config
runcmd:
  - |
    . /etc/profile.d/gsaas.sh
    python3 - <<'END'
{textwrap.indent(ENDLESS, "    ")}
    import itertools, time
    for turn in itertools.count():
        for device in devices[: 1 + turn // 60 % 2]:
            ggml.ggml_backend_graph_compute(device.backend, device.graph)
        time.sleep(0.5)
    END
"""
"""User data: it multiplies matrices for ever, on the first cGPU and then on both, in turns."""


@pytest.fixture
def as_admin(browser: Browser) -> Browser:
    browser.login("admin", settings.password("admin"))
    return browser


@pytest.fixture
def gpus(tenant: Connection, admin: Connection) -> Iterator[Any]:
    """GSaaS as the tenant; sees at the end that all GPUs are in service."""
    sdk.add_service(tenant)
    sdk.add_service(admin)
    enable_all(admin)  # what a test took out of service that was interrupted
    yield tenant.gpu_scheduling
    assert enable_all(admin) == []


def enable_all(admin: Connection) -> list[str]:
    """Return all hosts and GPUs to service; return those that were out of it."""
    pool = admin.gpu_scheduling
    hosts = [host.name for host in pool.hosts() if host.is_disabled]
    gpus = [gpu.uuid for gpu in pool.gpus() if gpu.is_disabled]
    for name in hosts:
        pool.enable_host(name)
    for uuid in gpus:
        pool.enable_gpu(uuid)
    return hosts + gpus


@pytest.fixture
def everything(connect: Callable[[str], Connection], gpus: Any) -> Iterator[Any]:
    """A lease of another project that has every GPU, or None once it is released."""
    other = connect(OTHER)
    sdk.add_service(other)
    lease = other.gpu_scheduling.create_lease(cgpus={"count": ALL_GPUS}, server=None)
    yield lambda: other.gpu_scheduling.delete_lease(lease)
    other.gpu_scheduling.delete_lease(lease)
    other.gpu_scheduling.wait_for_release(lease)


def shoot(browser: Browser, name: str) -> None:
    if PICTURES:
        browser.shoot(Path(PICTURES) / f"{name}.png")


def shoot_page(browser: Browser, name: str) -> None:
    """Take a picture of the whole page, which has no scroll bar then."""
    browser.whole()
    assert browser.scrolls() == []
    shoot(browser, name)


def open_launch(browser: Browser) -> None:
    browser.go(LEASES)
    browser.click("Launch GPU Lease")
    browser.see("This request fits now.", CHECK)


def fill(browser: Browser, **fields: object) -> None:
    """Fill in the fields of the launch page that are given, on the tabs where they are."""
    for name, value in fields.items():
        tab = "last" if name in VM_FIELDS else "first"
        browser.find(f".workflow .nav-pills li:{tab}-child a").click()
        if name in SELECTED:
            browser.select(name, str(value))
        else:
            browser.fill(name, value)


def launched(gpus: Any, name: str) -> Any:
    """Return the lease with this name, as GSaaS has it."""
    return gpus.find_lease(name, ignore_missing=False)


def pids(name: str) -> list[int]:
    """The processes of a daemon of the bed."""
    record = processes.running(name)
    assert record is not None
    return [record.pid, *processes.descendants([record.pid])]


@contextmanager
def draining(pool: Any, gpus: Any) -> Iterator[None]:
    """Have two leases of the tenant for a while, and the host of one of them drained."""
    leases = [
        gpus.create_lease(cgpus={"count": 1, "mode": "shared", "memory_mb": 4096}, server=None)
    ]
    (host,) = [gpu.host for gpu in pool.gpus() if leases[0].id in gpu.leases]
    pool.disable_host(host, "new racks")
    leases.append(gpus.create_lease(cgpus={"count": 2, "mode": "exclusive"}, server=None))
    try:
        yield
    finally:
        pool.enable_host(host)
        for lease in leases:
            gpus.delete_lease(lease)
            gpus.wait_for_release(lease)


@contextmanager
def away(daemon: processes.Daemon) -> Iterator[None]:
    """Have a daemon of the bed not run for a while."""
    processes.end(pids(daemon.name))
    try:
        yield
    finally:
        processes.ensure(daemon)


@contextmanager
def frozen(*names: str) -> Iterator[None]:
    """Have daemons of the bed not answer for a while."""
    stopped = [pid for name in names for pid in pids(name)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def read(browser: Browser, horizon: Horizon, path: str) -> requests.Response:
    """Read a page in the browser's session, without following a redirect."""
    return requests.get(
        horizon.url + path, cookies=browser.cookies(), allow_redirects=False, timeout=180
    )


def test_a_tenant_launches_a_vm_with_a_cgpu_sees_what_it_has_and_releases_it(
    as_tenant: Browser, gpus: Any, admin: Connection, tenant: Connection
):
    browser = as_tenant
    open_launch(browser)
    fill(browser, name_of_lease="training", count=2, memory_mb="1G")
    browser.see("This request fits now.", CHECK)
    fill(browser, image=settings.EMPTY_IMAGE, flavor=settings.FLAVOR, network=settings.NETWORK)
    browser.click("Launch")
    browser.see("The launch of training has begun.")
    browser.click("training")
    browser.see("ACTIVE", "#gsaas-status")

    lease = launched(gpus, "training")
    servers = Servers(admin, tenant)
    servers.watch(tenant.compute.get_server(lease.server["id"]))
    assert [row.text.split() for row in browser.all("#gsaas-devices tbody tr")] == [
        ["0", "169.254.71.1:8308", "1024", "MiB"],
        ["1", "169.254.71.2:8308", "1024", "MiB"],
    ]
    environment = dict(
        line.split("=", 1) for line in browser.text("#gsaas-environment").splitlines()
    )
    assert environment == gpus.get_lease_environment(lease)
    picture = browser.find("#gsaas-phases").accessible_name
    assert "boot until Nova says active: " in picture
    assert "connection to the GPUs: " in picture
    page = browser.driver.page_source
    assert not [name for name in (*gsaas.GPUS, *gsaas.COMPUTE_HOSTS) if name in page]
    assert browser.nameless("#gsaas-lease") == []

    browser.go(LEASES)
    browser.see("2 x 1024 MiB, shared")
    browser.click("training")
    browser.click("Release")
    browser.click("Release this lease")
    browser.see("The release of the lease has begun.")
    browser.until(lambda: "This project has no GPU leases." in browser.reloaded())
    assert servers.remains() == []


def test_a_request_that_does_not_fit_is_refused_on_the_page_with_what_would(
    as_tenant: Browser, gpus: Any
):
    browser = as_tenant
    open_launch(browser)
    fill(browser, name_of_lease="greedy", mode="exclusive", count=ALL_GPUS + 1)
    browser.see("This cloud can never serve this request.", CHECK)
    browser.see(f"{ALL_GPUS} whole GPUs", CHECK)
    shoot(browser, "dashboard-refusal")
    fill(browser, image="none")
    browser.click("Launch")
    browser.see("This cloud can never serve this request.", ".alert-danger")
    assert browser.find("[name='count']").get_attribute("value") == str(ALL_GPUS + 1)
    assert list(gpus.leases()) == []

    fill(browser, mode="shared", memory_mb="")
    browser.see("say how much memory", CHECK)
    fill(browser, memory_mb="much")
    browser.see("It is an amount of memory such as 2G", CHECK)


def test_a_vm_has_the_clouds_defaults_where_nobody_chooses(as_tenant: Browser, gpus: Any):
    browser = as_tenant
    open_launch(browser)
    fill(browser, name_of_lease="unchosen", memory_mb="1G")
    browser.click("Virtual machine")
    for name in ("image", "flavor", "network"):
        assert browser.find(f"[name='{name}'] option:checked").text == "the cloud's default"
    browser.click("Launch")
    browser.see("The launch of unchosen has begun.")
    chosen = f"image {settings.IMAGE}, flavor {settings.FLAVOR}, network {settings.NETWORK}"
    browser.see(f"the cloud chose: {chosen}")
    lease = gpus.wait_for_lease(launched(gpus, "unchosen"))
    assert lease.status == "ACTIVE"
    gpus.delete_lease(lease)
    gpus.wait_for_release(lease)


def test_what_has_no_default_is_said_at_its_field(as_admin: Browser, admin: Connection):
    """The administrator's own project has no network."""
    sdk.add_service(admin)
    browser = as_admin
    open_launch(browser)
    browser.click("Launch")
    browser.see("This cloud has no default network for your project: your project can use none.")
    assert browser.find("[name='network']").is_displayed()
    assert browser.all("[name='image'] ~ .help-block.error, .has-error [name='image']") == []
    project = admin.current_project_id
    assert [each for each in admin.gpu_scheduling.leases() if each.project_id == project] == []


def test_a_form_asks_for_little_at_first_and_offers_the_models_that_there_are(
    as_tenant: Browser, gpus: Any
):
    browser = as_tenant
    open_launch(browser)

    def visible() -> list[str | None]:
        fields = browser.all(".workflow fieldset:first-child .form-control")
        return [field.get_attribute("name") for field in fields if field.is_displayed()]

    assert visible() == ["name_of_lease", "count", "gpu_model", "mode", "memory_mb", "wait"]
    fill(browser, mode="exclusive")
    browser.until(lambda: visible() == ["name_of_lease", "count", "gpu_model", "mode", "wait"])
    browser.click("Advanced")
    folded = ["locality", "hosts", "policy", "compute_capability", "duration"]
    browser.until(lambda: visible()[5:] == folded)

    (model,) = [each for each in gpus.models() if each.kind == "cpu"]
    fill(browser, name_of_lease="chosen", mode="shared", memory_mb=256)
    fill(browser, gpu_model=f"cpu/{model.model}")
    browser.see("This request fits now.", CHECK)
    fill(browser, image="none")
    browser.click("Launch")
    browser.see("The launch of chosen has begun.")
    lease = launched(gpus, "chosen")
    assert (lease.cgpus["kind"], lease.cgpus["gpu_model"]) == ("cpu", model.model)
    gpus.delete_lease(lease)
    gpus.wait_for_release(lease)


def test_a_request_waits_in_the_queue_and_gets_its_turn(
    as_tenant: Browser, gpus: Any, everything: Callable[[], None]
):
    browser = as_tenant
    browser.go(f"{LEASES}launch")
    browser.see("This request does not fit now.", CHECK)
    fill(browser, name_of_lease="patient", mode="exclusive", wait="600", image="none")
    browser.click("Launch")
    browser.see("QUEUED (1 of 1")
    browser.click("patient")
    browser.see("place in the queue: 1 of 1", "#gsaas-status")
    everything()
    browser.see("ACTIVE", "#gsaas-status")
    browser.go(LEASES)
    browser.see("ACTIVE")
    browser.click("Release GPU Lease")
    browser.click_last("Release GPU Lease")
    browser.see("Started to release GPU Lease: patient")
    assert list(gpus.leases(status="ACTIVE")) == []


def test_everything_can_be_done_with_the_keyboard(as_tenant: Browser, gpus: Any):
    browser = as_tenant
    browser.go(f"{LEASES}launch")
    assert browser.nameless("#launch_gpu_lease__gpusaction, form[action$='launch']") == []
    browser.tab_to("Name")
    browser.press("typed")
    browser.tab_to("Number of cGPUs")
    browser.press(Keys.CONTROL + "a", "3")
    browser.see("This request fits now.", CHECK)
    browser.tab_to("Virtual machine", backwards=True)
    browser.press(Keys.ENTER)
    browser.tab_to("Image")
    browser.press("no VM")
    browser.tab_to("Launch")
    browser.press(Keys.ENTER)
    browser.see("The launch of typed has begun.")
    assert launched(gpus, "typed").cgpus["count"] == 3
    browser.tab_to("typed")
    browser.press(Keys.ENTER)
    browser.see("ACTIVE", "#gsaas-status")
    browser.tab_to("Release")
    browser.press(Keys.ENTER)
    browser.tab_to("Release this lease")
    browser.press(Keys.ENTER)
    browser.see("The release of the lease has begun.")


def test_a_name_is_text_wherever_it_is_shown(
    browser: Browser, gpus: Any, everything: Callable[[], None]
):
    lease = gpus.create_lease(cgpus={"count": 1}, server=None, wait=600, name=f"{SCRIPT}{ANGULAR}")
    for user, paths in (
        (TENANT, (LEASES, f"{LEASES}{lease.id}/")),
        ("admin", (f"{GPUS}?tab=gpus__queue", f"{LEASES}{lease.id}/")),
    ):
        browser.login(user, settings.password(user))
        for path in paths:
            browser.go(path)
            browser.see(SCRIPT)
            assert browser.all("img[src='x']") == []
            assert COMPUTED not in browser.text()
    gpus.delete_lease(lease)


def test_an_administrator_sees_the_pool_and_takes_gpus_out_of_service(
    as_admin: Browser, admin: Connection, gpus: Any
):
    browser, pool = as_admin, admin.gpu_scheduling
    lease = gpus.create_lease(cgpus={"count": 1, "mode": "shared", "memory_mb": 4096}, server=None)
    browser.go(GPUS)
    assert len(browser.all("#gsaas-map .gsaas-tile")) == ALL_DEVICES
    (holder,) = browser.all(f"#gsaas-map a[href*='{lease.id}']")
    assert holder.accessible_name == f"lease {lease.id}"
    assert browser.nameless("#gsaas-map") == []
    assert browser.nameless("#gpu_hosts") == []
    browser.see("shared", "#gsaas-map")

    (held,) = [gpu for gpu in pool.gpus() if gpu.leases]
    free = next(gpu for gpu in pool.gpus() if not gpu.leases)
    browser.find(f"[id='gpus__row_{free.uuid}__action_disable']").click()
    browser.fill("reason", "fan broken")
    browser.submit()
    browser.see(f"{free.uuid} is disabled.")
    assert pool.get_gpu(free.uuid).disabled_reason == "fan broken"

    browser.find(f"[id='gpu_hosts__row_{held.host}__action_disable']").click()
    browser.fill("reason", "new racks")
    browser.submit()
    browser.see("draining, 1 lease left", "#gsaas-map")
    browser.see("disabled: new racks", "#gsaas-map")
    gpus.delete_lease(lease)
    browser.until(lambda: "drained" in browser.reloaded("#gsaas-map"))
    assert pool.get_host(held.host).is_disabled

    for row in (f"gpu_hosts__row_{held.host}", f"gpus__row_{free.uuid}"):
        browser.find(f"[id='{row}__action_enable']").click()
        browser.see("Enabled ")
        browser.go(GPUS)
    assert not pool.get_host(held.host).is_disabled
    assert not pool.get_gpu(free.uuid).is_disabled


def test_the_pages_of_a_lease_that_computes_have_its_readings(
    browser: Browser, admin: Connection, gpus: Any
):
    lease = gpus.create_lease(
        name="training",
        cgpus={"count": 2, "kind": "cpu", "mode": "shared", "memory_mb": 512},
        server={"name": "training", "user_data": base64.b64encode(COMPUTES.encode()).decode()},
        duration=8 * 3600,
    )
    with draining(admin.gpu_scheduling, gpus):
        gpus.wait_for_lease(lease)
        browser.login(TENANT, settings.password(TENANT))
        browser.go(f"{LEASES}{lease.id}/")

        def shows_readings() -> bool:
            browser.driver.refresh()
            busy = [one for one in browser.all(CHARTS) if BUSY.match(one.accessible_name)]
            # A picture shows some minutes of them.
            lines = [one.get_attribute("points") for one in browser.all(f"{CHARTS} polyline")]
            return bool(busy) and (not PICTURES or any(len(one.split()) >= 7 for one in lines))

        browser.until(shows_readings, patience=900)
        shoot_page(browser, "dashboard-lease")
        browser.login("admin", settings.password("admin"))
        browser.go(GPUS)
        browser.see("draining, 1 lease left", "#gsaas-map")
        assert len(browser.all(f"#gsaas-map a[href*='{lease.id}']")) == 2
        shoot_page(browser, "dashboard-pool")
    gpus.delete_lease(lease)
    gpus.wait_for_release(lease)


def test_an_administrator_changes_the_queue_and_the_policy(
    as_admin: Browser, admin: Connection, gpus: Any, everything: Callable[[], None]
):
    browser, pool = as_admin, admin.gpu_scheduling
    first, second = (
        gpus.create_lease(cgpus={"count": 1}, server=None, wait=600, name=name)
        for name in ("first", "second")
    )
    browser.go(f"{GPUS}?tab=gpus__queue")
    assert [row.text.split()[:2] for row in browser.all("#queue tbody tr")] == [
        ["1", "first"],
        ["2", "second"],
    ]
    browser.find(f"[id='queue__row_{second.id}__action_priority']").click()
    browser.fill("priority", 5)
    browser.submit()
    browser.see("The priority is 5 now.")
    assert [place.name for place in pool.queue()] == ["second", "first"]
    for lease in (first, second):
        gpus.delete_lease(lease)

    configured = next(policy.name for policy in pool.policies() if policy.is_configured)
    browser.go(f"{GPUS}?tab=gpus__policies")
    try:
        browser.find("[id='policies__row_first-fit__action_use']").click()
        browser.see("Made Default")
        assert pool.get_policy("first-fit").is_default
    finally:
        pool.set_default_policy(None)
    assert pool.get_policy(configured).is_default


def test_usage_by_project_is_a_chart_and_a_file(
    as_admin: Browser, admin: Connection, tenant: Connection, horizon: Horizon, gpus: Any
):
    browser = as_admin
    lease = gpus.create_lease(cgpus={"count": 1}, server=None)
    gpus.delete_lease(lease)
    browser.go(f"{GPUS}?tab=gpus__usage")
    browser.see(TENANT, "#gsaas-usage")
    answer = read(
        browser, horizon, browser.find("#gsaas-csv").get_attribute("href").removeprefix(horizon.url)
    )
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = {row["project_id"]: row for row in csv.DictReader(io.StringIO(answer.text))}
    used = {each["project_id"]: each for each in admin.gpu_scheduling.get_usage().projects}
    project = tenant.current_project_id
    assert rows[project]["project"] == TENANT
    assert int(rows[project]["leases"]) == used[project]["leases"] > 0
    assert browser.nameless("#gsaas-usage") == []

    browser.go(f"{GPUS}?tab=gpus__usage&start=never")
    browser.see("The usage cannot be shown")
    answer = read(browser, horizon, f"{GPUS}usage.csv?start=never")
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{GPUS}?tab=gpus__usage")


def test_a_tenant_has_no_pages_of_administrators(as_tenant: Browser, horizon: Horizon):
    for path in (GPUS, f"{GPUS}usage.csv", f"{GPUS}host/gpu1/disable"):
        assert read(as_tenant, horizon, path).status_code in (302, 403)
    lease = f"{LEASES}0a2c5c06-32cd-421e-ba95-8b63f5ba0ea4/"
    answer = read(as_tenant, horizon, lease)
    assert (answer.status_code, answer.headers["Location"]) == (302, LEASES)


PAGES = {
    TENANT: (LEASES, f"{LEASES}launch", f"{LEASES}check?count=1&mode=exclusive"),
    "admin": (
        GPUS,
        *(f"{GPUS}?tab=gpus__{tab}" for tab in ("pool", "queue", "policies", "usage")),
        f"{GPUS}host/gpu1/disable",
    ),
}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("gone", "GSaaS cannot be reached"),
        ("silent", "GSaaS does not answer"),
        ("keystone", "Keystone"),
    ],
)
def test_every_page_appears_and_says_why_when_a_service_is_away(
    browser: Browser, horizon: Horizon, gpus: Any, what: str, said: str
):
    sessions = {}
    for user in PAGES:
        browser.login(user, settings.password(user))
        sessions[user] = browser.cookies()
    gone = {
        "gone": lambda: away(gsaas.API),
        "silent": lambda: frozen(gsaas.API.name),
        "keystone": lambda: away(keystone.DAEMON),
    }

    def get(user: str, path: str) -> requests.Response:
        return requests.get(horizon.url + path, cookies=sessions[user], timeout=180)

    # At the same time, because each waits as long as Horizon does for what is away.
    with gone[what](), ThreadPoolExecutor(4) as threads:
        answers = {
            path: threads.submit(get, user, path) for user, paths in PAGES.items() for path in paths
        }
    for path, asked in answers.items():
        answer = asked.result()
        assert answer.status_code == 200, path
        assert answer.url == horizon.url + path
        if not path.endswith("disable") and not (what == "keystone" and "check" in path):
            assert said in answer.text, path


def test_without_an_engine_a_launch_waits_and_its_page_says_so(as_tenant: Browser, gpus: Any):
    browser = as_tenant
    with frozen(*(engine.name for engine in gsaas.ENGINES)):
        browser.go(f"{LEASES}launch")
        fill(browser, name_of_lease="later", image=settings.IMAGE, flavor=settings.FAKE_FLAVOR)
        browser.click("Launch")
        browser.see("The launch of later has begun.")
        browser.click("later")
        browser.see("CLAIMED: has its GPUs", "#gsaas-status")
        lease = launched(gpus, "later")
        browser.click("Release")
        browser.click("Release this lease")
        browser.see("RELEASING")
    gpus.wait_for_release(lease)
