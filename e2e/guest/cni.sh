#!/bin/busybox sh
# A network plugin: an address of the machine's own network for each pod, reached through a pair of interfaces, with the
# machine as the next hop. Called as `loopback` it has nothing to do: the runtime has that up already.
b=/bin/busybox
configuration=$($b cat)
case "$CNI_COMMAND $configuration" in
VERSION*) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}'; exit ;;
ADD*'"loopback"'*) $b nsenter --net="$CNI_NETNS" $b ip link set lo up; echo '{"cniVersion": "0.4.0"}'; exit ;;
ADD*) ;;
*) exit ;;
esac
inside() { $b nsenter --net="$CNI_NETNS" $b "$@"; }
exec 9>/run/cni.lock
$b flock 9
number=$(($($b cat /run/cni.number 2>/dev/null || echo 256) + 1))
echo $number > /run/cni.number
host=pod$number address=10.96.$((number / 256)).$((number % 256))
{
    inside ip link add eth0 type veth
    inside ip link set veth0 name $host
    inside ip link set $host netns 1
    inside ip link set eth0 up
    $b ip link set $host up
    echo 1 > /proc/sys/net/ipv4/conf/$host/proxy_arp
    $b ip route add $address/32 dev $host
    inside ip addr add $address/32 dev eth0
    inside ip route add 10.96.0.15 dev eth0
    inside ip route add default via 10.96.0.15
} >&2
echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}],
 "ips": [{"version": "4", "interface": 0, "address": "'$address'/32"}]}'
