#!/bin/sh
# Packs what podslice reads of a node on which podslice is not installed; writes a bundle to standard output:
#
#     ssh node7 sudo sh -s < deploy/capture.sh > node7.podslice.tar.gz
#     podslice explain pod.yaml --node node7.podslice.tar.gz
#
# Needs a POSIX shell, tar and cp. Without root the kubelet's files are missing, and the bundle says so.
# PODSLICE_ROOT is where the node's file system is, PODSLICE_KUBELET the kubelet's folder below it.
#
# No secrets: of the kubelet's folder only state files and the names of pods, of its flags those that set its
# configuration, and the configuration without the headers of static pods' URLs. Files of /sys and /proc are copied
# first, because tar believes the sizes that they claim.
set -u
hidden=
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
plain() {
    printf %s "$1" | tr -cd 'A-Za-z0-9._/-'
}
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
# The flags of the kubelet that runs, as `--name=value`: those that concern its configuration, others may hold secrets.
# A container may run a process of that name too: those of the node's own PID namespace come first.
kept_flags="
    address allowed-unsafe-sysctls anonymous-auth authentication-token-webhook
    authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
    authorization-webhook-cache-unauthorized-ttl cgroup-driver cgroup-root cgroups-per-qos client-ca-file
    cluster-dns cluster-domain config config-dir container-log-max-files container-log-max-size
    container-runtime-endpoint contention-profiling cpu-cfs-quota cpu-cfs-quota-period cpu-manager-policy
    cpu-manager-policy-options cpu-manager-reconcile-period enable-controller-attach-detach
    enable-debugging-handlers enable-server enforce-node-allocatable event-burst event-qps eviction-hard
    eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period eviction-soft
    eviction-soft-grace-period fail-cgroupv1 fail-swap-on feature-gates file-check-frequency hairpin-mode
    healthz-bind-address healthz-port hostname-override http-check-frequency image-gc-high-threshold
    image-gc-low-threshold image-service-endpoint kernel-memcg-notification kube-api-burst kube-api-content-type
    kube-api-qps kube-reserved kube-reserved-cgroup kubelet-cgroups local-storage-capacity-isolation
    log-flush-frequency logging-format make-iptables-util-chains max-open-files max-pods memory-manager-policy
    minimum-image-ttl-duration node-status-max-images node-status-update-frequency oom-score-adj pod-cidr
    pod-manifest-path pod-max-pids pods-per-core port protect-kernel-defaults provider-id qos-reserved
    read-only-port register-node register-with-taints registry-burst registry-qps reserved-cpus reserved-memory
    resolv-conf root-dir rotate-certificates rotate-server-certificates runonce runtime-request-timeout
    seccomp-default serialize-image-pulls streaming-connection-idle-timeout sync-frequency system-cgroups
    system-reserved system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file
    topology-manager-policy topology-manager-policy-options topology-manager-scope v volume-plugin-dir
    volume-stats-agg-period
"
# Of words of a command line, one a line and the program first, the kept flags.
keep_flags() {
    awk -v kept="$kept_flags" '
        function finish() { if (waiting != "") print "--" waiting; waiting = "" }
        BEGIN { count = split(kept, names); for (i = 1; i <= count; i++) is_kept[names[i]] = 1 }
        NR == 1 { print "kubelet"; next }
        waiting != "" && !/^--/ && !/^-[A-Za-z]/ { print "--" waiting "=" $0; waiting = ""; next }
        { finish() }
        /^--$/ { exit }
        !/^--/ { next }
        {
            at = index($0, "=")
            name = substr($0, 3, at ? at - 3 : length($0))
            gsub(/_/, "-", name)
            if (!(name in is_kept)) next
            if (at) print "--" name substr($0, at); else waiting = name
        }
        END { finish() }'
}
own=
others=
k3s=
for process in proc/[0-9]*; do
    { read -r name < "$process/comm"; } 2>/dev/null || continue
    case $name in
        kubelet) ;;
        k3s-server) k3s=$process service=k3s; continue ;;
        k3s-agent) k3s=$process service=k3s-agent; continue ;;
        *) continue ;;
    esac
    words=$(tr '\0' '\n' < "$process/cmdline" 2>/dev/null | keep_flags)
    test -n "$words" || continue
    case $(sed -n 's/^NSpid:[[:space:]]*//p' "$process/status" 2>/dev/null) in
        *[[:space:]]*) test "$words" = "${others:-$words}" && others=$words || others=several ;;
        *) test "$words" = "${own:-$words}" && own=$words || own=several ;;
    esac
done
# k3s is the kubelet itself. It takes kubelet-arg from its command line, which ps does not show but its unit has, or else
# from its configuration, which has a token beside it; its own settings are drop-ins.
k3s_words() {
    tr '\0' '\n' < "$k3s/cmdline" 2>/dev/null
    unit=etc/systemd/system/$service.service
    test -r "$unit" && sed -n '/^ExecStart=/,/[^\\]$/p' "$unit" | tr -d "'\"\\\\" | tr -s '[:space:]' '\n'
}
k3s_command_line() {
    k3s_words | awk 'next_one { print; next_one = 0; next } sub(/^--kubelet-arg=/, "") { print } /^--kubelet-arg$/ { next_one = 1 }' |
        awk '!seen[$0]++'
}
k3s_configuration() {
    for file in etc/rancher/k3s/config.yaml etc/rancher/k3s/config.yaml.d/*.yaml; do
        test -r "$file" && cat "$file" && echo
    done | awk -v quote="'" '
        function add(text,    first) {
            gsub(/^[ \t]+|[ \t\r]+$/, "", text)
            first = substr(text, 1, 1)
            if (first == "\"" || first == quote) text = substr(text, 2, index(substr(text, 2), first) - 1)
            else sub(/[ \t]+#.*/, "", text)
            if (text != "") words[++count] = text
        }
        function add_flow(text,    i, one, open, word) {
            for (i = 1; i <= length(text); i++) {
                one = substr(text, i, 1)
                if (open != "") { if (one == open) open = "" }
                else if (one == "\"" || one == quote) open = one
                else if (one == "," || one == "]") { add(word); word = ""; if (one == "]") return; continue }
                word = word one
            }
        }
        /^["\047]?kubelet-arg\+?["\047]?[ \t]*:/ {
            if ($0 !~ /^["\047]?kubelet-arg\+/) count = 0
            on = 1
            sub(/^[^:]*:[ \t]*/, "")
            if (sub(/^\[/, "")) { add_flow($0); on = 0 } else if ($0 !~ /^(#|$)/) { add($0); on = 0 }
            next
        }
        on && /^[ \t]*- / { sub(/^[ \t]*- /, ""); add($0); next }
        /^[^ \t#]/ { on = 0 }
        END { for (i = 1; i <= count; i++) print words[i] }'
}
if test -z "$own$others" && test -n "$k3s"; then
    given=$(k3s_command_line)
    test -n "$given" || given=$(k3s_configuration)
    settings=var/lib/rancher/k3s/agent/etc/kubelet.conf.d
    own=$({
        echo k3s
        test -d "$settings" && echo "--config-dir=/$settings"
        printf '%s\n' "$given" | sed -n 's/^-*\(..*\)$/--\1/p'
    } | keep_flags)
    test -n "$given" || test -r etc/rancher || test -r "etc/systemd/system/$service.service" || {
        own=
        hidden="k3s runs the kubelet, and neither /etc/rancher/k3s nor its unit can be read here"
    }
fi
words=${own:-$others}
flag_value() {
    printf '%s\n' "$words" | sed -n "s/^--$1=//p" | tail -n 1
}
# Headers of static pods' URLs may be secrets. What cannot be cut out by lines, as in JSON, leaves the file out. A file
# that a flag names may be any, and has to say what it is.
copy_config() {
    mkdir -p "$copy/${2%/*}"
    if ! awk '/^[^ \t#-]/ { cut = /^["\047]?staticPodURL/ } !cut' "$1" > "$copy/$2" 2>/dev/null; then
        rm -f "$copy/$2"
        note "$2" "/$(plain "$1") cannot be read"
    elif grep -q -e staticPodURL -e '\\u' "$copy/$2"; then
        rm -f "$copy/$2"
        note "$2" "it has headers of static pods' URLs, which cannot be cut out"
    elif test -n "$words" && ! grep -q -E "kind[\"']?[[:space:]]*:[[:space:]]*[\"']?KubeletConfiguration" "$copy/$2"; then
        rm -f "$copy/$2"
        note "$2" "/$(plain "$1") is not a KubeletConfiguration"
    fi
}
if test "$words" = several; then
    note kubelet/cmdline "several processes are named kubelet, with different flags"
elif test -n "$words"; then
    printf '%s\n' "$words" | tr '\n' '\0' > "$copy/kubelet/cmdline"
    file=$(flag_value config)
    test -n "$file" && copy_config "${file#/}" kubelet/config.yaml
    folder=$(flag_value config-dir)
    folder=${folder#/}
    folder=${folder%/}
    if test -n "$folder"; then
        for file in "$folder"/*.conf "$folder"/*/*.conf; do
            name=${file#"$folder"/}
            case $name in
                [!A-Za-z0-9_]* | *[!A-Za-z0-9_./-]* | */[!A-Za-z0-9_]*) ;;
                *) test -f "$file" && copy_config "$file" "kubelet/config.d/$name" ;;
            esac
        done
        test -d "$copy/kubelet/config.d" || note kubelet/config.d "/$(plain "$folder") holds no drop-in that can be read"
    fi
else
    note kubelet/cmdline "${hidden:-no process is named kubelet: its flags and drop-ins are not known}"
    test -z "$hidden" && test -r "$kubelet/config.yaml" && copy_config "$kubelet/config.yaml" kubelet/config.yaml
fi
if pods=$(ls "$kubelet/pods" 2>/dev/null); then
    mkdir "$copy/kubelet/pods"
    for pod in $pods; do
        mkdir "$copy/kubelet/pods/$pod"
    done
fi
# gRPC needs a client, and podslice is one.
if test -S "$kubelet/pod-resources/kubelet.sock"; then
    if ! command -v podslice > /dev/null; then
        note kubelet/podresources.json "no podslice here to ask the kubelet; the agent's image has it"
    elif ! podslice capture --pod-resources "$PWD/$kubelet/pod-resources/kubelet.sock" \
        > "$copy/kubelet/podresources.json" 2> "$copy/problem"; then
        rm -f "$copy/kubelet/podresources.json"
        note kubelet/podresources.json "$(tr '\n"\\' '   ' < "$copy/problem" | tr -cd '[:print:]' | cut -c 1-400)"
    fi
fi
if ! test -e "$copy/kubelet/cpu_manager_state"; then
    note kubelet "no state file can be read in /$(plain "$kubelet"); root can"
fi
printf '{"format": 1, "node": "%s", "captured": "%s", "by": "capture.sh", "missing": [%s]}\n' \
    "$(printf %s "${PODSLICE_NODE:-$(uname -n)}" | tr -cd 'A-Za-z0-9._-')" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$missing" \
    > "$copy/bundle.json"
if command -v gzip > /dev/null; then
    tar -C "$copy" -cf - bundle.json kubelet proc sys | gzip -c
else
    tar -C "$copy" -cf - bundle.json kubelet proc sys
fi
