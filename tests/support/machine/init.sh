#!/bin/sh
# The first process of a machine whose root is the host's, read-only. A node writes to memory (/run, /tmp, /var/log) or
# to the machine's own disk (/mnt). At the end this script runs the scripts that the test sends.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec > /dev/console 2>&1
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620 devpts /dev/pts
for dir in /run /tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$dir"; done
chmod 755 /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for word in $(cat /proc/cmdline); do
  case $word in
    skiff.machine=*) machine=${word#skiff.machine=} ;;
    skiff.address=*) address=${word#skiff.address=} ;;
    skiff.gateway=*) gateway=${word#skiff.gateway=} ;;
  esac
done
# The kernel loads modules by itself too. The machine's modules are not in the host's directory for modules.
printf '#!/bin/sh\nexec modprobe -d %s "$@"\n' "$machine" > /run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe > /proc/sys/kernel/modprobe
for module in virtio_blk virtio_net virtio_console ext4 overlay bridge veth br_netfilter nf_tables nft_chain_nat nft_masq nft_fib_inet nft_ct nft_reject_inet loop; do
  modprobe -d "$machine" "$module" || echo "module $module: not loaded"
done
ip link set lo up
hostname machine
link=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
if [ -n "$link" ] && [ -n "$address" ]; then
  ip link set "$link" name uplink up
  ip addr add "$address" dev uplink
  ip route add default via "$gateway"
fi
fsck.ext4 -p /dev/vda > /run/fsck 2>&1
mount -t ext4 -o errors=panic /dev/vda /mnt || echo "the disk is not mounted"
exec sh "$machine/commands.sh"
