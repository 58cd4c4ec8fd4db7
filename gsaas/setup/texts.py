# SPDX-License-Identifier: Apache-2.0
"""The configuration files of each kind of machine, from its answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gsaas.setup.answers import Compute, Controller, GpuHost

ETC = "/etc/gsaas"
VIRTUAL_HOST = "gsaas"
"""Of GSaaS alone, so that the permissions of hosts' accounts mean something."""
ACCOUNT = "gsaas"
"""Of the controllers, on the message bus, in the database, and in Keystone."""
MARK = "# Written by gsaas-manage setup, which replaces it when an answer changes."
"""How a configuration file begins that setup may replace."""

Sections = Mapping[str, Mapping[str, str]]


def kept(role: str) -> str:
    """Return the path of the file in which the answers for *role* are kept, secrets included."""
    return f"{ETC}/setup-{role}.toml"


def configuration(name: str, sections: Sections) -> str:
    """Return the text of the configuration file *name*, without options that are empty."""
    lines = [
        MARK,
        f"# Your own options go into {ETC}/{name}.d/*.conf, which are read after it.",
    ]
    for section, options in sections.items():
        lines += ["", f"[{section}]"]
        lines += [f"{option} = {value}" for option, value in options.items() if value]
    return "\n".join([*lines, ""])


def bus_url(hosts: str, account: str, password: str, virtual_host: str) -> str:
    """Return the transport_url of *account*; *hosts* are `HOST:PORT`, with commas between them."""
    servers = (host if ":" in host else f"{host}:5672" for host in hosts.split(","))
    return f"rabbit://{','.join(f'{account}:{password}@{one}' for one in servers)}/{virtual_host}"


def database_url(answers: Controller) -> str:
    """Return [database]connection."""
    if "://" in answers.database:
        return answers.database
    return f"mysql+pymysql://{ACCOUNT}:{answers.database_password}@{answers.database}/gsaas"


def of_controller(answers: Controller) -> str:
    """Return gsaas.conf of a controller."""
    login = {
        "auth_url": answers.auth_url,
        "auth_type": "password",
        "username": ACCOUNT,
        "password": answers.keystone_password,
        "project_name": answers.service_project,
        "user_domain_name": "Default",
        "project_domain_name": "Default",
        "cafile": answers.cafile,
    }
    catalogue = {"region_name": answers.region, "valid_interfaces": "internal"}
    bus = answers.bus, ACCOUNT, answers.bus_password
    return configuration(
        "gsaas.conf",
        {
            "DEFAULT": {"transport_url": bus_url(*bus, VIRTUAL_HOST)},
            "database": {"connection": database_url(answers)},
            "bus": {"secrets": answers.bus_secret},
            "api": {"public_url": answers.url},
            "engine": {"cloud": "nova"},
            "remoting": {"driver": answers.driver},
            "gpu_network": {"prefixes": answers.gpu_network},
            "keystone_authtoken": {
                "www_authenticate_uri": answers.auth_url,
                **login,
                "service_token_roles": "service",
                "service_token_roles_required": "true",
            },
            "service_user": login,
            "nova": {**catalogue, "notification_url": bus_url(*bus, "")},
            "neutron": catalogue,
            "glance": catalogue,
            "placement": catalogue,
        },
    )


def _of_agent(answers: Compute | GpuHost) -> dict[str, Mapping[str, str]]:
    bus = answers.bus, answers.bus_account, answers.bus_password
    return {
        "DEFAULT": {"transport_url": bus_url(*bus, VIRTUAL_HOST), "host": answers.host},
        "bus": {"host_keys": answers.host_key},
    }


def of_compute(answers: Compute) -> str:
    """Return gsaas-rodvr.conf of a compute host."""
    sections = {
        **_of_agent(answers),
        "rodvr": {"gpu_device": answers.gpu_device},
        "gpu_network": {"prefixes": answers.gpu_network},
    }
    return configuration("gsaas-rodvr.conf", sections)


def of_gpu_host(answers: GpuHost) -> str:
    """Return gsaas-monitor.conf of a GPU host."""
    sections = {
        **_of_agent(answers),
        "monitor": {"gpu_address": answers.gpu_address},
        "remoting": {"driver": answers.driver},
    }
    return configuration("gsaas-monitor.conf", sections)
