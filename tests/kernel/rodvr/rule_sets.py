# SPDX-License-Identifier: Apache-2.0
"""Rule sets in the manner of programs that manage the firewall of ordinary hosts. None of them concerns RODVR.

Each has drops, jumps, marks, sets and extensions that RODVR's packets pass without harm.
"""

from __future__ import annotations

FIREWALLD = """
table inet firewalld {
  chain mangle_PREROUTING {
    type filter hook prerouting priority -140; policy accept;
    jump mangle_PREROUTING_ZONES
  }
  chain mangle_PREROUTING_ZONES { iifname "eth0" goto mangle_PRE_public; goto mangle_PRE_public; }
  chain mangle_PRE_public { jump mangle_PRE_public_deny; }
  chain mangle_PRE_public_deny { ip saddr 198.51.100.0/24 drop; }
  chain filter_PREROUTING {
    type filter hook prerouting priority 10; policy accept;
    meta nfproto ipv6 fib saddr . mark . iif oif missing drop
  }
  chain filter_FORWARD {
    type filter hook forward priority 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD_ZONES { iifname "eth0" goto filter_FWD_public; goto filter_FWD_public; }
  chain filter_FWD_public { meta l4proto { icmp, ipv6-icmp } accept; reject with icmpx admin-prohibited; }
}
"""
UFW = """
*filter
:FORWARD ACCEPT [0:0]
:ufw-before-forward - [0:0]
:ufw-user-forward - [0:0]
:ufw-after-forward - [0:0]
:ufw-reject-forward - [0:0]
:ufw-not-local - [0:0]
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-after-forward
-A FORWARD -j ufw-reject-forward
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 3 -j ACCEPT
-A ufw-before-forward -m conntrack --ctstate INVALID -j DROP
-A ufw-before-forward -j ufw-user-forward
-A ufw-user-forward -s 198.51.100.7 -j DROP
-A ufw-user-forward -p tcp -m multiport --dports 22,23 -j DROP
-A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
-A ufw-not-local -j DROP
COMMIT
"""
DOCKER = """
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP
-A PREROUTING -d 127.0.0.1/32 ! -i lo -p tcp -m tcp --dport 8080 -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
COMMIT
*filter
:FORWARD ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
-A DOCKER-FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -o docker0 -j DOCKER
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER ! -i docker0 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
"""
LIBVIRT = """
*mangle
:POSTROUTING ACCEPT [0:0]
:LIBVIRT_PRT - [0:0]
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -o virbr0 -p udp -m udp --dport 68 -j CHECKSUM --checksum-fill
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
:LIBVIRT_PRT - [0:0]
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -s 192.168.122.0/24 -d 224.0.0.0/24 -j RETURN
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p tcp -j MASQUERADE --to-ports 1024-65535
COMMIT
*filter
:FORWARD ACCEPT [0:0]
:LIBVIRT_FWI - [0:0]
:LIBVIRT_FWO - [0:0]
:LIBVIRT_FWX - [0:0]
-A FORWARD -j LIBVIRT_FWX
-A FORWARD -j LIBVIRT_FWI
-A FORWARD -j LIBVIRT_FWO
-A LIBVIRT_FWI -d 192.168.122.0/24 -o virbr0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A LIBVIRT_FWI -o virbr0 -j REJECT --reject-with icmp-port-unreachable
-A LIBVIRT_FWO -s 192.168.122.0/24 -i virbr0 -j ACCEPT
-A LIBVIRT_FWO -i virbr0 -j REJECT --reject-with icmp-port-unreachable
-A LIBVIRT_FWX -i virbr0 -o virbr0 -j ACCEPT
COMMIT
"""
CALICO = """
*raw
:PREROUTING ACCEPT [0:0]
:cali-PREROUTING - [0:0]
-A PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m comment --comment "no rpfilter" -j DROP
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:cali-PREROUTING - [0:0]
-A PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*filter
:FORWARD ACCEPT [0:0]
:cali-FORWARD - [0:0]
:cali-from-hep-forward - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-to-wl-dispatch - [0:0]
-A FORWARD -j cali-FORWARD
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i cali+ -j cali-from-wl-dispatch
-A cali-FORWARD -o cali+ -j cali-to-wl-dispatch
-A cali-from-wl-dispatch -m comment --comment "Unknown interface" -j DROP
-A cali-to-wl-dispatch -m comment --comment "Unknown interface" -j DROP
-A FORWARD -m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
"""
NEUTRON = """
*raw
:PREROUTING ACCEPT [0:0]
:neutron-openvswi-PREROUTING - [0:0]
-A PREROUTING -j neutron-openvswi-PREROUTING
-A neutron-openvswi-PREROUTING -i tap11111111-11 -j CT --zone 1
-A neutron-openvswi-PREROUTING -i tap22222222-22 -j CT --zone 2
COMMIT
*filter
:FORWARD ACCEPT [0:0]
:neutron-filter-top - [0:0]
:neutron-openvswi-FORWARD - [0:0]
:neutron-openvswi-local - [0:0]
:neutron-openvswi-sg-chain - [0:0]
:neutron-openvswi-sg-fallback - [0:0]
:neutron-openvswi-scope - [0:0]
-A FORWARD -j neutron-filter-top
-A FORWARD -j neutron-openvswi-FORWARD
-A neutron-filter-top -j neutron-openvswi-local
-A neutron-openvswi-FORWARD -j neutron-openvswi-scope
-A neutron-openvswi-scope -o qr-1 -m mark ! --mark 0x4000000/0xffff0000 -j DROP
-A neutron-openvswi-FORWARD -o br-a -i br-a -j neutron-openvswi-sg-chain
-A neutron-openvswi-sg-chain -p udp -m udp --sport 68 -j RETURN
-A neutron-openvswi-sg-chain -m conntrack --ctstate INVALID -j DROP
-A neutron-openvswi-sg-chain -j neutron-openvswi-sg-fallback
-A neutron-openvswi-sg-fallback -j DROP
COMMIT
"""
KUBE_PROXY = """
table ip kube-proxy {
  set cluster-ips { type ipv4_addr; elements = { 10.96.0.1, 10.96.0.10 } }
  map no-endpoint-services {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.0.20 . tcp . 80 : drop }
  }
  chain filter-prerouting { type filter hook prerouting priority -110; policy accept;
    ct state new jump firewall-check
  }
  chain firewall-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
  chain filter-forward { type filter hook forward priority -110; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
    ct state invalid drop
  }
  chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
  chain cluster-ips-check { ip daddr @cluster-ips reject; ip daddr 10.96.0.0/16 drop; }
}
"""
BASTION = """
table inet filter {
  set blocked { type ipv4_addr; flags interval; elements = { 0.0.0.0/8, 100.64.0.0/10, 192.0.2.0/24, 224.0.0.0/4 } }
  chain prerouting { type filter hook prerouting priority -300; policy accept;
    iifname "eth0" ip saddr { 10.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, 240.0.0.0/4 } drop
    ip saddr @blocked drop
    iifname "eth0" notrack
    fib saddr . iif oif missing drop
    tcp flags & (fin|syn|rst|ack) == 0x0 drop
    tcp flags & (fin|syn) == fin|syn drop
  }
  chain forward { type filter hook forward priority 0; policy drop;
    iifname "rodvr1" oifname "gpu0" accept
    iifname "gpu0" oifname "rodvr1" ct state established,related accept
    limit rate 5/minute log prefix "dropped: "
  }
}
"""
BY_NUMBER = """
table inet filter {
  quota monthly { over 25 mbytes }
  chain prerouting { type filter hook prerouting priority -150; policy accept;
    quota name "monthly" drop
  }
  chain forward { type filter hook forward priority 0; policy drop;
    iif "rodvr1" oif "gpu0" accept
    iif vmap { "gpu0" : accept, "lo" : drop }
  }
}
"""
ORDINARY = {
    "firewalld": ("nft -f -", FIREWALLD),
    "kube-proxy": ("nft -f -", KUBE_PROXY),
    "a bastion's": ("nft -f -", BASTION),
    "a router's": ("nft -f -", BY_NUMBER),
}
for _name, _text in {
    "ufw": UFW,
    "Docker": DOCKER,
    "libvirt": LIBVIRT,
    "Calico": CALICO,
    "Neutron": NEUTRON,
}.items():
    ORDINARY[_name] = ("iptables-nft-restore", _text)
    ORDINARY[f"{_name} (legacy)"] = ("iptables-legacy-restore", _text)
