#!/bin/sh
# Packs what podslice reads of a node on which podslice is not installed; writes a bundle to standard output:
#
#     ssh node7 sudo sh -s < deploy/capture.sh > node7.podslice.tar.gz
#     podslice explain pod.yaml --node node7.podslice.tar.gz
#
# Needs a POSIX shell, tar and cp. Without root the kubelet's files are missing, and the bundle says so.
# PODSLICE_ROOT is where the node's file system is, PODSLICE_KUBELET the kubelet's folder below it.
#
# No secrets: of the kubelet's folder only state files, the names of pods, and config.yaml without the headers of static
# pods' URLs. Files of /sys and /proc are copied first, because tar believes the sizes that they claim.
set -u
umask 077
cd "${PODSLICE_ROOT:-/}" || exit 1
copy=${TMPDIR:-/tmp}/podslice-capture.$$
mkdir "$copy" || exit 1
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM
cpu=sys/devices/system/cpu
node=sys/devices/system/node
pci=sys/bus/pci/devices

# One cp for all files of a call where it knows --parents (GNU, busybox), else a cat for each. Not every kernel has every
# file: a pattern without a match stays a word, and busybox would make its folder.
copy_all() {
    set -- $(for file in "$@"; do test -e "$file" && echo "$file"; done)
    test $# -gt 0 || return
    cp -r --parents "$@" "$copy" 2>/dev/null
    for last in "$@"; do :; done
    test -e "$copy/$last" && return
    for file in "$@"; do
        if test -d "$file"; then
            mkdir -p "$copy/$file"
        elif test -r "$file"; then
            mkdir -p "$copy/${file%/*}"
            cat "$file" > "$copy/$file" 2>/dev/null || rm -f "$copy/$file"
        fi
    done
}

# Several calls, because the words of one have a limit.
copy_all proc/cpuinfo proc/meminfo sys/kernel/mm/hugepages/*/nr_hugepages sys/devices/cpu_*/cpus \
    $cpu/present $cpu/isolated $cpu/nohz_full $cpu/online
copy_all $cpu/cpu[0-9]*/online $cpu/cpu[0-9]*/cpu_capacity $cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq \
    $cpu/cpu[0-9]*/topology/*_id $cpu/cpu[0-9]*/topology/*_cpus $cpu/cpu[0-9]*/topology/*_siblings
copy_all $cpu/cpu[0-9]*/cache/index*/[ilt]* $cpu/cpu[0-9]*/cache/index*/size $cpu/cpu[0-9]*/cache/index*/shared_cpu_map
copy_all $node/node[0-9]*/cpu* $node/node[0-9]*/meminfo $node/node[0-9]*/hugepages/*/nr_hugepages $node/node[0-9]*/distance
copy_all $pci/*/class $pci/*/vendor $pci/*/device $pci/*/numa_node $pci/*/local_cpulist $pci/*/sriov_numvfs $pci/*/physfn/class
for name in $pci/*/net/*; do
    test -d "$name" && mkdir -p "$copy/$name"
done
test -e "$copy/$cpu/online" || { echo "capture.sh: $cpu cannot be read" >&2; exit 1; }
# Of the kernel's command line only what concerns CPUs.
test -d "$copy/proc" || mkdir "$copy/proc"
test -r proc/cmdline && tr ' ' '\n' < proc/cmdline | grep -E '^rcu_nocbs=' | tr '\n' ' ' > "$copy/proc/cmdline"

kubelet=${PODSLICE_KUBELET:-var/lib/kubelet}
kubelet=${kubelet#/}
mkdir "$copy/kubelet"
missing=
note() {
    missing="$missing${missing:+, }[\"$1\", \"$2\"]"
}
for name in cpu_manager_state memory_manager_state allocated_pods_state actuated_pods_state \
    pod_status_manager_state dra_manager_state podslice_policy_state podslice_guard_state; do
    test -f "$kubelet/$name" && { cat "$kubelet/$name" > "$copy/kubelet/$name" || rm -f "$copy/kubelet/$name"; } 2>/dev/null
done
# The answers of device plugins hold environment variables.
if test -r "$kubelet/device-plugins/kubelet_internal_checkpoint"; then
    mkdir "$copy/kubelet/device-plugins"
    sed 's/"AllocResp":"[^"]*"/"AllocResp":null/g' "$kubelet/device-plugins/kubelet_internal_checkpoint" \
        > "$copy/kubelet/device-plugins/kubelet_internal_checkpoint"
fi
# Headers of static pods' URLs may be secrets. What cannot be cut out by lines, as in JSON, leaves the file out.
if test -r "$kubelet/config.yaml"; then
    awk '/^[^ \t#-]/ { cut = /^["\047]?staticPodURL/ } !cut' "$kubelet/config.yaml" > "$copy/kubelet/config.yaml"
    if grep -q -e staticPodURL -e '\\u' "$copy/kubelet/config.yaml"; then
        rm -f "$copy/kubelet/config.yaml"
        note kubelet/config.yaml "it has headers of static pods' URLs, which cannot be cut out"
    fi
fi
if pods=$(ls "$kubelet/pods" 2>/dev/null); then
    mkdir "$copy/kubelet/pods"
    for pod in $pods; do
        mkdir "$copy/kubelet/pods/$pod"
    done
fi
if ! test -e "$copy/kubelet/cpu_manager_state"; then
    note kubelet "no state file can be read in /$(printf %s "$kubelet" | tr -cd 'A-Za-z0-9._/-'); root can"
fi
printf '{"format": 1, "node": "%s", "captured": "%s", "by": "capture.sh", "missing": [%s]}\n' \
    "$(printf %s "${PODSLICE_NODE:-$(uname -n)}" | tr -cd 'A-Za-z0-9._-')" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$missing" \
    > "$copy/bundle.json"
if command -v gzip > /dev/null; then
    tar -C "$copy" -cf - bundle.json kubelet proc sys | gzip -c
else
    tar -C "$copy" -cf - bundle.json kubelet proc sys
fi
