#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The first program of the lab's guest. Its working directory on the host, which
# the kernel reaches as /proc/self/cwd, holds plan.sh and all that plan.sh needs.
# The host's files are the guest's, read only; what the guest writes is in memory.

here=$(cd /proc/self/cwd && pwd -P)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C TZ=UTC TMPDIR=/run
mount -t devtmpfs dev /dev
exec </dev/null >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tracefs trace /sys/kernel/tracing
mount -t debugfs debug /sys/kernel/debug
mount -t tmpfs -o size=100% tmp /run
mkdir /run/host /run/out
"$here/guest" hostfs "$here" /run/host
cd /run/out
PATH=/run/host:$PATH

# NDM-LAB lines are for the host, which judges by them alone.
if (set -e; . /run/host/plan.sh); then
	cp -r /run/out/. /run/host/out && echo "NDM-LAB end"
else
	echo "NDM-LAB failed"
fi
guest off
