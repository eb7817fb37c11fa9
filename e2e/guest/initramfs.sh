#!/bin/busybox sh
# Runs first: loads the modules, mounts the root read-only under a tmpfs and goes on there.
b=/bin/busybox
$b mount -t proc none /proc
$b mount -t devtmpfs none /dev
while read -r module; do $b insmod /modules/$module.ko || echo "cannot load $module"; done < /modules.list
$b mkdir -p /lower /upper
tries=0
until $b mount -t ext4 -o ro /dev/vda /lower; do
    tries=$((tries + 1)); [ $tries -gt 50 ] && echo "no root file system" && $b poweroff -f
    $b sleep 0.1
done
$b mount -t tmpfs -o size=1g none /upper
$b mkdir -p /upper/data /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work none /root
$b mkdir -p /root/upper && $b mount --move /upper /root/upper
$b umount /proc && $b umount /dev
exec $b switch_root /root /bin/busybox sh /opt/e2e/init.sh
