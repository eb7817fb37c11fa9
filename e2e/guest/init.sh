#!/bin/busybox sh
# First process of the guest: mounts and configuration, then the runner that answers the host.
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
# what a kubelet wants: its folder is mounted into pods, a network, and to know on what it runs
mount --make-rshared /
mkdir -p /var/lib/kubelet /var/log /etc/kubernetes/manifests /etc/cni/net.d /opt/cni/bin /opt/nri/plugins
mount -t tmpfs -o size=256m none /var/lib/kubelet && mount --make-shared /var/lib/kubelet
for name in e2e loopback; do cp /opt/e2e/cni.sh /opt/cni/bin/$name; chmod 755 /opt/cni/bin/$name; done
echo '{"cniVersion": "0.4.0", "name": "e2e", "plugins": [{"type": "e2e"}]}' > /etc/cni/net.d/10-e2e.conflist
echo 0a1b2c3d4e5f60718293a4b5c6d7e8f9 > /etc/machine-id
printf 'NAME=e2e\nID=e2e\nPRETTY_NAME=e2e\n' > /etc/os-release
ip link set lo up
hostname e2e
mkdir -p /etc/containerd && cp /opt/e2e/containerd.toml /etc/containerd/config.toml
echo "root:x:0:0::/root:/bin/sh" > /etc/passwd; echo "root:x:0:" > /etc/group
printf '127.0.0.1 localhost\n10.96.0.15 e2e\n' > /etc/hosts; : > /etc/resolv.conf
grep -q e2e.systemd /proc/cmdline || exec python3.13 /opt/e2e/runner.py
# the same under systemd as the first process, and as the driver of cgroups
sed -i 's/SystemdCgroup = false/SystemdCgroup = true/' /etc/containerd/config.toml
units=/etc/systemd/system
mkdir -p $units
for name in systemd-journald.service systemd-journald.socket systemd-udevd.service systemd-logind.service getty.target; do
    ln -sf /dev/null $units/$name
done
printf '[Unit]\nWants=e2e.service\nAllowIsolate=yes\n' > $units/e2e.target
ln -sf e2e.target $units/default.target
cat > $units/e2e.service <<END
[Unit]
DefaultDependencies=no
[Service]
Environment=PATH=$PATH HOME=/root PYTHON_COLORS=0 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ExecStart=/usr/bin/python3.13 /opt/e2e/runner.py
Delegate=yes
KillMode=process
StandardOutput=file:/run/runner.log
StandardError=file:/run/runner.log
LimitNOFILE=1048576
END
exec /usr/lib/systemd/systemd
