# SPDX-License-Identifier: Apache-2.0
from gsaas.netlink.addresses import interface_of


def test_an_address_leads_to_the_interface_that_has_it():
    assert interface_of("127.0.0.1") == "lo"


def test_an_address_of_another_host_is_on_no_interface():
    assert interface_of("192.0.2.1") is None
