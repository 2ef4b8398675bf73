#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run by `guest` as the first process of the lab's guest. Its root is a folder of copied
# programs, read only; /run/host is the run's folder on the host, with plan.sh and all that
# it needs; what the guest writes elsewhere is in memory.

mount -t devtmpfs dev /dev
exec </dev/null >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tracefs trace /sys/kernel/tracing
mount -t debugfs debug /sys/kernel/debug
cd /run/out

# NDM-LAB lines are for the host, which judges by them alone.
if (set -e; . /run/host/plan.sh); then
	cp -r /run/out/. /run/host/out && echo "NDM-LAB end"
else
	echo "NDM-LAB failed"
fi
guest off
