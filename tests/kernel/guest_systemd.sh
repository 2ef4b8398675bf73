#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run by systemd after multi-user.target: facts of the boot for system.py, then the end.

exec >/dev/console 2>&1
sysctls=/proc/sys/net/ipv4

fact() { name=$1; shift; echo "NDM-FACT $name $*"; }
show() { systemctl show -P "$2" "$1"; }
journal() { journalctl -b -o cat "$@" | tr '\n' '|'; }

echo	# the firmware leaves the console in the middle of a line
fact default "$(cat $sysctls/tcp_congestion_control)"
fact available "$(cat $sysctls/tcp_available_congestion_control)"
fact multi-user "$(systemctl is-active multi-user.target)"
fact failed "$(systemctl list-units --failed --plain --no-legend | cut -d ' ' -f 1 | tr '\n' ' ')"
fact unit "$(systemctl is-active ndm-tcp-bpf)"
fact unit-conflicts "$(show ndm-tcp-bpf Conflicts)"
fact unit-says "$(journal -u ndm-tcp-bpf)"
# By name: who ends before the journal has read its lines belongs to no unit.
fact modules-say "$(journal -t systemd-modules-load)"
fact sysctls-say "$(journal -t systemd-sysctl)"
# Microseconds since the kernel began.
fact modules-end "$(show systemd-modules-load ExecMainExitTimestampMonotonic)"
fact unit-end "$(show ndm-tcp-bpf ExecMainExitTimestampMonotonic)"
fact sysctls-begin "$(show systemd-sysctl ExecMainStartTimestampMonotonic)"
fact network-begin "$(show network-pre.target ActiveEnterTimestampMonotonic)"
echo "NDM-PROOF first load"
dmesg
echo "NDM-PROOF end"
systemctl poweroff -ff
