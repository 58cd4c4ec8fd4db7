# SPDX-License-Identifier: Apache-2.0
"""`OS::GSaaS::Lease`: cGPUs in a stack. What properties and answers mean is in `gsaas_heat.translation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heat.common import exception
from heat.engine import constraints, resource
from heat.engine.attributes import Schema as Attribute
from heat.engine.properties import Properties
from heat.engine.properties import Schema as Property
from heat.engine.translation import TranslationRule
from openstack import exceptions

from gsaas_heat import translation
from gsaasclient.sdk import api_error
from gsaasclient.sdk.leases import ENDED
from gsaasclient.sdk.leases import Lease as SdkLease

CGPUS = {
    "count": Property(
        Property.INTEGER,
        "The number of cGPUs.",
        default=1,
        constraints=[constraints.Range(min=1)],
    ),
    "kind": Property(
        Property.STRING,
        "cuda: GPUs of NVIDIA; cpu: CPU devices, which are cores and memory of hosts. By default what the operator has "
        "chosen.",
        constraints=[constraints.AllowedValues(["cuda", "cpu"])],
    ),
    "mode": Property(
        Property.STRING,
        "exclusive: each cGPU is a whole GPU that no other lease uses; shared: each is a part of one, of memory_mb. "
        "By default shared with memory_mb, else exclusive.",
        constraints=[constraints.AllowedValues(["exclusive", "shared"])],
    ),
    "memory_mb": Property(
        Property.INTEGER,
        "MiB of GPU memory of each shared cGPU.",
        constraints=[constraints.Range(min=1)],
    ),
    "locality": Property(
        Property.STRING,
        "any: the VM runs on any host; local: on the host that has all its GPUs; remote: on a host that has none of "
        "them.",
        constraints=[constraints.AllowedValues(["any", "local", "remote"])],
    ),
    "policy": Property(Property.STRING, "How to choose among the GPUs that fit."),
    "gpu_model": Property(Property.STRING, "Only GPUs whose model contains this text."),
    "compute_capability": Property(
        Property.STRING, "Only GPUs of at least this CUDA compute capability, such as 8.0."
    ),
    "hosts": Property(
        Property.STRING,
        "any: on any GPU hosts; one: all cGPUs on one GPU host; spread: each on another one.",
        constraints=[constraints.AllowedValues(["any", "one", "spread"])],
    ),
    "host": Property(Property.STRING, "Only GPUs of this GPU host."),
}
NETWORK = {
    "network": Property(
        Property.STRING,
        "Name or id of a network in which the VM gets a port.",
        constraints=[constraints.CustomConstraint("neutron.network")],
    ),
    "port": Property(
        Property.STRING,
        "Name or id of a port for the VM.",
        constraints=[constraints.CustomConstraint("neutron.port")],
    ),
    "fixed_ip": Property(
        Property.STRING,
        "The address of the VM in the network.",
        constraints=[constraints.CustomConstraint("ip_addr")],
    ),
    "tag": Property(Property.STRING, "A tag for the interface, which the VM can read."),
}
SERVER = {
    "name": Property(Property.STRING, "The VM's name; by default that of the lease."),
    "image": Property(
        Property.STRING,
        "Name or id of its image.",
        constraints=[constraints.CustomConstraint("glance.image")],
    ),
    "flavor": Property(
        Property.STRING,
        "Name or id of its flavor.",
        required=True,
        constraints=[constraints.CustomConstraint("nova.flavor")],
    ),
    "networks": Property(
        Property.LIST,
        "Its networks.",
        schema=Property(Property.MAP, schema=NETWORK),
    ),
    "key_name": Property(
        Property.STRING,
        "The key pair to log in with.",
        constraints=[constraints.CustomConstraint("nova.keypair")],
    ),
    "security_groups": Property(
        Property.LIST,
        "Names or ids of the security groups of its ports.",
        schema=Property(Property.STRING),
    ),
    "user_data": Property(
        Property.STRING,
        "User data for cloud-init, in any of its formats, or a software config that is such user data; GSaaS adds a "
        "part of its own.",
    ),
    "user_data_format": Property(
        Property.STRING,
        "RAW, the default and the only one: user_data is what the VM gets, without agents of Heat.",
        constraints=[
            constraints.AllowedValues(
                ["RAW"],
                "user_data_format can only be RAW: a lease's VM has no agent of Heat, and so no metadata of Heat and "
                "no software deployments",
            )
        ],
    ),
    "user_data_update_policy": Property(
        Property.STRING,
        "REPLACE, the default and the only one: other user data means a new VM.",
        constraints=[
            constraints.AllowedValues(
                ["REPLACE"],
                "user_data_update_policy can only be REPLACE: other user data means a new lease with a new VM",
            )
        ],
    ),
    "availability_zone": Property(Property.STRING, "Its availability zone."),
    "config_drive": Property(Property.BOOLEAN, "Whether it has a configuration drive."),
    "metadata": Property(Property.MAP, "Nova's metadata of it."),
    "tags": Property(
        Property.LIST,
        "Nova's tags of it.",
        schema=Property(Property.STRING),
    ),
    "scheduler_hints": Property(
        Property.MAP, "Hints for Nova's scheduler, such as the group of servers."
    ),
    "block_device_mapping_v2": Property(
        Property.LIST,
        "Its volumes and disks, with the fields that Nova gives them.",
        schema=Property(Property.MAP),
    ),
}
CONSUMER = {
    "host": Property(Property.STRING, "The host on which the consumer runs, by its name in GSaaS."),
    "uid": Property(
        Property.INTEGER,
        "The uid of the only user of that host who may use the masked addresses.",
        constraints=[constraints.Range(min=0)],
    ),
    "address": Property(
        Property.STRING,
        "The only IPv4 address from which the grant may be redeemed.",
        constraints=[constraints.CustomConstraint("ip_addr")],
    ),
}


class Lease(resource.Resource):
    """cGPUs for a VM, which is launched with them, or for a program or VM that exists.

    With `server`, the resource is complete when the VM runs and its cGPUs are connected; its reference is the id of the
    lease. Only `name`, `priority`, `wait`, `duration` and `movable` change in place. Any other change makes a new lease
    with a new VM.
    """

    default_client_name = "gsaas"
    physical_resource_name_limit = 255

    properties_schema = {
        "name": Property(
            Property.STRING,
            "The name of the lease; by default one of the stack's and the resource's names.",
            constraints=[constraints.Length(min=1, max=255)],
            update_allowed=True,
        ),
        "cgpus": Property(Property.MAP, "Which cGPUs.", schema=CGPUS, default={}),
        "server": Property(
            Property.MAP,
            "The VM to launch with them. Without it, an existing program or VM uses the cGPUs.",
            schema=SERVER,
        ),
        "consumer": Property(
            Property.MAP,
            "Without server: the program or VM that uses them, as far as it is known.",
            schema=CONSUMER,
        ),
        "wait": Property(
            Property.INTEGER,
            "Seconds to wait in the queue for cGPUs that are not free now; -1: without a limit but that of the stack. "
            "By default such a request fails. A change has an effect on the next lease only.",
            default=0,
            constraints=[constraints.Range(min=translation.NO_LIMIT)],
            update_allowed=True,
        ),
        "priority": Property(
            Property.INTEGER,
            "Requests of a higher priority come first in the queue; above 0 for administrators. A change has an effect "
            "while the lease is in the queue, and on the next lease.",
            default=0,
            update_allowed=True,
        ),
        "duration": Property(
            Property.INTEGER,
            "Seconds that the lease lasts from when it has its cGPUs; then it is ended, with its VM. By default what "
            "the operator has chosen.",
            constraints=[constraints.Range(min=1)],
            update_allowed=True,
        ),
        "movable": Property(
            Property.STRING,
            "When operators may move the lease to other GPUs unasked: `idle`, while no connection is open; `cut`, also "
            "with connections, which are cut, so that programs have to start again.",
            constraints=[constraints.AllowedValues(["idle", "cut"])],
            default="idle",
            update_allowed=True,
        ),
    }
    attributes_schema = {
        "status": Attribute(
            "The status of the lease.", type=Attribute.STRING, cache_mode=Attribute.CACHE_NONE
        ),
        "server_id": Attribute("The id of the VM.", type=Attribute.STRING),
        "masked_addresses": Attribute(
            "The addresses of the cGPUs as the VM uses them, ip:port, in the order of their numbers.",
            type=Attribute.LIST,
        ),
        "devices": Attribute(
            "The cGPUs: index, masked_address and memory_mb of each.", type=Attribute.LIST
        ),
        "environment": Attribute(
            "The environment variables with which programs find the cGPUs. A VM that was launched with them has them "
            "already.",
            type=Attribute.MAP,
            # It may hold a grant, which is a secret and a new one in each answer.
            cache_mode=Attribute.CACHE_NONE,
        ),
    }

    def translation_rules(self, properties: Properties) -> list[TranslationRule]:
        """Return how names become ids, which is what the API takes."""
        neutron = self.client_plugin("neutron")
        return [
            _resolved(
                properties,
                ["server", "image"],
                self.client_plugin("glance"),
                "find_image_by_name_or_id",
            ),
            _resolved(
                properties,
                ["server", "flavor"],
                self.client_plugin("nova"),
                "find_flavor_by_name_or_id",
            ),
            *(
                _resolved(
                    properties,
                    ["server", "networks", entity],
                    neutron,
                    "find_resourceid_by_name_or_id",
                    entity=entity,
                )
                for entity in ("network", "port")
            ),
        ]

    def handle_create(self) -> str:
        """Claim the cGPUs, or take a place in the queue; return the id of the lease."""
        fields = translation.request(self.properties, self.physical_resource_name(), self._config())
        lease = self.client().create_lease(**fields)
        self.resource_id_set(lease.id)
        return str(lease.id)

    def check_create_complete(self, lease_id: str) -> bool:
        """Return whether the lease can be used. Raises what Heat shows as the resource's failure."""
        lease = self.client().get_lease(lease_id)
        if (
            lease.status == "ERROR"
        ):  # Heat deletes it and tries again, [DEFAULT]action_retry_limit times
            raise exception.ResourceInError(
                resource_status=lease.status, status_reason=translation.failure(lease.to_dict())
            )
        if lease.status in ENDED:  # its time in the queue was over, or someone has ended it
            raise exception.Error(translation.failure(lease.to_dict()))
        return bool(lease.status == "ACTIVE")

    def handle_update(
        self, json_snippet: Any, tmpl_diff: Any, prop_diff: Mapping[str, Any]
    ) -> None:
        """Change the lease as far as the API can; Heat replaces the resource if anything else changes."""
        for change in translation.changes(prop_diff, self.physical_resource_name()):
            try:
                self.client().update_lease(self.resource_id, **change)
            except exceptions.ConflictException as error:
                refusal = api_error(error)
                if refusal is None or refusal.code != translation.NOT_QUEUED:
                    raise

    def needs_replace_failed(self) -> bool:
        """Return whether a resource in a failed state needs a new lease, rather than another try of its update."""
        lease = self._lease()
        return lease is None or lease.status in ENDED

    def handle_check(self) -> None:
        """Fail unless the lease can be used."""
        lease = self.client().get_lease(self.resource_id)
        if lease.status != "ACTIVE":
            raise exception.Error(translation.failure(lease.to_dict()))

    def handle_delete(self) -> str | None:
        """Have the lease ended, if there is one; return its id."""
        if self.resource_id is None:
            return None
        self.client().delete_lease(self.resource_id)  # one that has ended already is no error
        return str(self.resource_id)

    def check_delete_complete(self, lease_id: str | None) -> bool:
        """Return whether the VM is gone and the GPUs are free again."""
        if lease_id is None:
            return True
        lease = self._lease()
        return lease is None or lease.status == "RELEASED"

    def _config(self) -> dict[str, Any] | None:
        """Return the software config that is the user data, as `OS::Nova::Server` looks it up; None if none is."""
        config_id = translation.config_id(self.properties)
        if config_id is not None:
            with self.rpc_client().ignore_error_by_name("NotFound"):
                config: dict[str, Any] = self.rpc_client().show_software_config(
                    self.context, config_id
                )
                return config
        return None

    def _lease(self) -> SdkLease | None:
        """Return the lease; None if there is none, or none any more."""
        if self.resource_id is not None:
            with self.client_plugin().ignore_not_found:
                lease: SdkLease = self.client().get_lease(self.resource_id)
                return lease
        return None

    def _resolve_attribute(self, name: str) -> Any:
        if self.resource_id is None:
            return None
        if name == "environment":
            with self.client_plugin().ignore_conflict_and_not_found:  # while it has no cGPUs
                return self.client().get_lease_environment(self.resource_id)
            return None
        lease = self.client().get_lease(self.resource_id)
        return translation.attribute(name, lease.to_dict())

    def _show_resource(self) -> dict[str, Any]:
        lease = self.client().get_lease(self.resource_id)
        return dict(lease.to_dict(headers=False, computed=False, ignore_none=True))

    def get_live_resource_data(self) -> dict[str, Any]:
        """Return the lease as it is. Raises `EntityNotFound` for one that has ended, which Heat then replaces."""
        data: dict[str, Any] = super().get_live_resource_data()
        if data["status"] in ENDED:
            raise exception.EntityNotFound(entity="Lease", name=self.resource_id)
        return data

    def parse_live_resource_data(
        self, resource_properties: Properties, resource_data: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the properties that others may have changed: a name that the template gives."""
        named = resource_properties.get("name") is not None
        return {"name": resource_data["name"]} if named else {}


def _resolved(
    properties: Properties, path: list[str], plugin: Any, finder: str, entity: str | None = None
) -> TranslationRule:
    return TranslationRule(
        properties,
        TranslationRule.RESOLVE,
        translation_path=path,
        client_plugin=plugin,
        finder=finder,
        entity=entity,
    )


def resource_mapping() -> dict[str, type[resource.Resource]]:
    """Return the types of this module; heat-engine calls it."""
    return {"OS::GSaaS::Lease": Lease}
