#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# The steps with the BPF form; guest_begin.sh comes before it.

available() { grep -q ndm_tcp_bpf /proc/sys/net/ipv4/tcp_available_congestion_control; }

load() {
	ndm_bpf load || return 1
	available || { echo "not registered"; return 1; }
	ls /sys/fs/bpf/ndm_tcp_bpf
}

corrupt_refused() {
	ndm_bpf load /corrupt.o 2>refused.txt && { echo "a wrong model was loaded"; return 1; }
	available && return 1
	grep 'golden vector' refused.txt
}

status() { ndm_bpf status | grep -E 'model_hash|rounds|flows|no_memory'; }

unload() { ndm_bpf unload && ! available; }

# The event of every round, to the console for the host to compute again.
events() {
	ndm_bpf events >events.txt &
	reader=$!
	sleep 1
	tcp_transfer -b 4000000 -t 120 -a ndm_tcp_bpf || return 1
	kill $reader
	wait $reader || return 1
	echo "rounds=$(wc -l <events.txt)"
}

lossy() {
	single_packets && netem delay 20ms loss 2% rate 20mbit
}

first_load
step corrupt-refused corrupt_refused
step load load
step ipv4 tcp_transfer -b 8000000 -a ndm_tcp_bpf
step ipv6 tcp_transfer -6 -b 8000000 -a ndm_tcp_bpf
step switch tcp_transfer -b 8000000 -a cubic,ndm_tcp_bpf,reno,ndm_tcp_bpf
if test -e /sch_netem.ko; then
	step lossy lossy
	step events events
	cat events.txt
fi
step status status
step unload unload
end
