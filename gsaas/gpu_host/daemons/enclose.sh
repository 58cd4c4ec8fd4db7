#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# enclose.sh GROUP_FILE USER BOUNDING SCRATCH DEV PROC BUS NODES COMMAND...
#
# Become COMMAND: in the control group of GROUP_FILE (empty: none), as USER (empty: the current user), without
# capabilities, and, if NODES is not empty, with a /dev that contains only these nodes of DEV and a PROC/gpus that
# contains only BUS. No other process sees the mounts. BOUNDING is an option for setpriv, or empty.
set -eu

group_file=$1 user=$2 bounding=$3 scratch=$4 dev=$5 proc=$6 bus=$7 nodes=$8

if [ "${GSAAS_ENCLOSED:-}" != yes ]; then
    [ -z "$group_file" ] || echo $$ >"$group_file"
    if [ -n "$nodes" ]; then
        export GSAAS_ENCLOSED=yes
        exec unshare --mount --propagation private /bin/sh "$0" "$@"
    fi
else
    unset GSAAS_ENCLOSED
    if [ -n "$bus" ] && [ -d "$proc/gpus" ]; then
        mount -t tmpfs -o mode=755,size=1m tmpfs "$scratch"
        mkdir "$scratch/$bus"
        mount --bind "$proc/gpus/$bus" "$scratch/$bus"
        mount -o remount,ro "$scratch"
        mount --move "$scratch" "$proc/gpus"
    fi
    mount -t tmpfs -o mode=755,size=1m tmpfs "$scratch"
    for node in $nodes; do
        [ -e "$dev/$node" ] || continue
        if [ -d "$dev/$node" ]; then
            mkdir "$scratch/$node"
        else
            : >"$scratch/$node"
        fi
        mount --bind "$dev/$node" "$scratch/$node"
    done
    for name in shm pts mqueue; do
        [ -d "/dev/$name" ] || continue
        mkdir "$scratch/$name"
        mount --rbind "/dev/$name" "$scratch/$name"
    done
    ln -s /proc/self/fd "$scratch/fd"
    ln -s /proc/self/fd/0 "$scratch/stdin"
    ln -s /proc/self/fd/1 "$scratch/stdout"
    ln -s /proc/self/fd/2 "$scratch/stderr"
    mount -o remount,ro "$scratch"
    mount --move "$scratch" /dev
    # Where DEV is not /dev (in tests), cover it as well: its nodes must not be reachable by their other path.
    [ "$dev" = /dev ] || mount -t tmpfs -o ro,mode=755,size=1m tmpfs "$dev"
fi
shift 8
# A daemon gets none of the monitor's privileges.
if [ -n "$user" ]; then
    set -- --reuid "$user" --regid "$(id -g "$user")" --init-groups -- "$@"
else
    set -- -- "$@"
fi
exec setpriv --no-new-privs --ambient-caps=-all --inh-caps=-all $bounding "$@"
