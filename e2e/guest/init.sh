#!/bin/busybox sh
# First process of the guest: mounts, containerd with its images, then the runner that answers the host.
b=/bin/busybox
$b mount -t proc none /proc
$b mkdir -p /usr/local/bin && $b --install -s /usr/local/bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin HOME=/root PYTHON_COLORS=0 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm /dev/pts /run /tmp
mount -t tmpfs none /dev/shm; mount -t tmpfs none /run; mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
# containerd's snapshots must not lie on an overlay
mkdir -p /var/lib/containerd && mount -t tmpfs -o size=512m none /var/lib/containerd
ip link set lo up
hostname e2e
mkdir -p /etc/containerd && cp /opt/e2e/containerd.toml /etc/containerd/config.toml
echo "root:x:0:0::/root:/bin/sh" > /etc/passwd; echo "root:x:0:" > /etc/group
echo "127.0.0.1 localhost" > /etc/hosts; : > /etc/resolv.conf
exec python3.13 /opt/e2e/runner.py
