# SPDX-License-Identifier: Apache-2.0
"""Notifications for operators' programs, such as Ceilometer and Watcher: what happened to leases, GPUs and access.

events    which notifications a change leads to, and their priorities (pure)
payloads  what they contain, in versions (pure)
cadf      security events in the form of CADF
outbox    sends in a thread of its own, and drops what it cannot send
emitter   puts all of them together

A notification is sent at most once, after the commit of what it is about. doc/notifications.md lists them.
"""
