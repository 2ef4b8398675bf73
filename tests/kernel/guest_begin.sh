#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# How init begins in every guest of boot.py, whose steps follow: each prints one marked line.

/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up

pass() { echo "NDM-PROOF pass $*"; }
fail() { echo "NDM-PROOF fail $*"; }

# step NAME COMMAND...: pass if the command does.
step() {
	name=$1; shift
	if said=$("$@" 2>&1); then pass "$name" $said; else fail "$name" $said; fi
}

# By its path: busybox has a tc of its own, which it prefers and which cannot netem.
# Deleted and added: replace would keep what is not named.
netem() {
	/usr/sbin/tc qdisc del dev lo root 2>/dev/null
	/usr/sbin/tc qdisc add dev lo root netem limit 1000 "$@"
}

# Every packet by itself, so that netem delays and loses packets and not bursts.
single_packets() {
	insmod /sch_netem.ko && ip link set lo mtu 1500 && tcp_transfer -g lo
}

# The kernel's log counts from here on.
first_load() {
	echo	# the firmware leaves the console in the middle of a line
	dmesg -c >/dev/null
	echo "NDM-PROOF first load" >/dev/kmsg
}

end() {
	dmesg
	echo "NDM-PROOF end"
	poweroff -f
}
