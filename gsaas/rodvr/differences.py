# SPDX-License-Identifier: Apache-2.0
"""Says how the kernel differs from what it should contain, in words: of the plan that would make them equal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gsaas.objects.endpoint_audit import MISSING, SURPLUS, WRONG, KernelDifference
from gsaas.rodvr import plan

TABLES = KernelDifference(MISSING, "the tables of RODVR, or what all ports share in them")


def differences(
    change: plan.Plan, state: plan.DatapathState, wanted: Mapping[str, plan.Attachment]
) -> tuple[KernelDifference, ...]:
    """Return what *change* would add, remove and replace in *state*; *wanted* are the attachments by tap."""
    owners = _owners(state, wanted)
    removed: dict[str, None] = {}
    added: dict[str, None] = {}
    for operation in change.operations:
        is_removal, names = _named(operation, owners)
        (removed if is_removal else added).update(dict.fromkeys(names))
    return tuple(
        KernelDifference(how, name)
        for name in {**removed, **added}
        for how in [
            WRONG if name in removed and name in added else SURPLUS if name in removed else MISSING
        ]
    )


def _owners(state: plan.DatapathState, wanted: Mapping[str, plan.Attachment]) -> dict[str, str]:
    """Return identity -> the words for whose it is."""
    owners: dict[str, str] = {}
    for tag in state.chains.values():
        if tag is not None:
            of_port = f"port {tag.port_id}"
            others = state.sources.get(tag.ifindex, {}).values()
            owners |= dict.fromkeys((tag.identity, *others), of_port)
    for attachment in wanted.values():
        of_port = f"port {attachment.tag.port_id}"
        owners |= dict.fromkeys(attachment.return_paths(), of_port)
    return owners


def _named(operation: plan.Operation, owners: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Return whether *operation* removes something, and the names of what it adds or removes."""

    def of(identity: str) -> str:
        return owners.get(identity, f"the identity {identity}, which is nobody's")

    match operation:
        case plan.AddMappings(identity, mappings):
            return False, [f"the mapping {masked} of {of(identity)}" for masked in mappings]
        case plan.DeleteMappings(identity, masked):
            return True, [f"the mapping {each} of {of(identity)}" for each in masked]
        case plan.AddLocalMappings(local):
            return False, list(_local(local))
        case plan.DeleteLocalMappings(keys):
            return True, list(_local(dict.fromkeys(keys)))
        case plan.AddChain(tap) | plan.DeleteChain(tap):
            return isinstance(operation, plan.DeleteChain), [f"the chain of the tap {tap}"]
        case plan.AddReturnPath(identity) | plan.DeleteReturnPath(identity):
            is_removal = isinstance(operation, plan.DeleteReturnPath)
            return is_removal, [f"the return path of {of(identity)}"]
        case plan.AddSources(ifindex, identities):
            return False, [f"the source {ip} of interface {ifindex}" for ip in identities]
        case plan.DeleteSources(ifindex, ips):
            return True, [f"the source {ip} of interface {ifindex}" for ip in ips]


def _local(keys: Mapping[plan.LocalKey, object]) -> Iterator[str]:
    for key in keys:
        who = "every user" if key.uid is None else f"user {key.uid}"
        yield f"the mapping {key.masked} of this host's programs, for {who}"
