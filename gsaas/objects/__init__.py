# SPDX-License-Identifier: Apache-2.0
"""The values that all parts of GSaaS exchange. These modules import nothing else of GSaaS.

lifecycle   a lease's states                  timings          the phases of a launch
gpu         a GPU and what is claimed of it   gpu_report       what a GPU host reports of its GPUs
request     what a consumer asks for          placement        where it would go, or why nowhere
access      how a consumer reaches its GPUs   usage            what projects used, in sums
address     a TCP address                     binding          masked addresses and what they lead to
daemon      daemons and admissions            endpoint_report  what a RODVR endpoint reports
ports       ranges of TCP ports               host_names       which names hosts may have
received    what hosts report, value by value rate             how many events each source may cause
"""
