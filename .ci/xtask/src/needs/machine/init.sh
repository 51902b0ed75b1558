#!/bin/busybox sh
# The first process of a test's machine. It mounts the host's root read-only and runs the script that the kernel's
# command line names (skiff.init=), or it mounts a disk (skiff.disk=) and runs the init system of that disk.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
exec > /dev/console 2>&1
while read -r module; do
  # The kernel rejects a module that this processor does not need.
  /bin/busybox insmod "/modules/$module" 2>/dev/null
done < /modules/order
for word in $(/bin/busybox cat /proc/cmdline); do
  case $word in
    skiff.init=*) set -- /bin/sh "${word#skiff.init=}" ;;
    skiff.disk=*) disk=${word#skiff.disk=} ;;
  esac
done
if [ -n "$disk" ]; then
  /bin/busybox mount -t ext4 "$disk" /root || exit 1
  set -- /sbin/init
else
  /bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose root /root || exit 1
fi
/bin/busybox umount /proc
/bin/busybox umount -l /dev
exec /bin/busybox switch_root /root "$@"
