#!/bin/sh
# Packs what podslice reads of a machine, on a node where podslice is not installed; writes a tar.gz to standard output:
#
#     ssh node7 sh -s < deploy/capture.sh > node7.tar.gz
#
# Files of /sys and /proc are copied first, because tar believes the sizes they claim. Needs GNU cp and tar, no root.
set -eu
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cpu=/sys/devices/system/cpu
node=/sys/devices/system/node
# Not every kernel has every file.
cp -r --parents /proc/cpuinfo /proc/meminfo /sys/kernel/mm/hugepages /sys/devices/cpu_*/cpus \
    $cpu/online $cpu/present $cpu/isolated \
    $cpu/cpu[0-9]*/online $cpu/cpu[0-9]*/cpu_capacity \
    $cpu/cpu[0-9]*/topology/*_id $cpu/cpu[0-9]*/topology/*_cpus $cpu/cpu[0-9]*/topology/*_siblings \
    $cpu/cpu[0-9]*/cache/index*/[ilt]* $cpu/cpu[0-9]*/cache/index*/size $cpu/cpu[0-9]*/cache/index*/shared_cpu_map \
    $node/node[0-9]*/cpu* $node/node[0-9]*/distance $node/node[0-9]*/meminfo $node/node[0-9]*/hugepages \
    "$copy" 2>/dev/null || test -d "$copy$cpu"
tar -C "$copy" -cz proc sys
