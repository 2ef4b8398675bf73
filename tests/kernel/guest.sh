#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# The steps with the module; guest_begin.sh comes before it.

loaded() { test -d /sys/module/ndm_tcp; }
counter() {
	awk -v name="$1" '$1 == "TcpExt:" {
		if (!n) n = split($0, key); else { split($0, value)
		for (i = 2; i <= n; i++) if (key[i] == name) print value[i] } }' /proc/net/netstat
}

parameter_refused() {
	! insmod /ndm_tcp.ko model_hash=0 && ! loaded
}

load() {
	insmod "$@" || return 1
	loaded || return 1
	echo "model=$(cat /sys/module/ndm_tcp/parameters/model_hash)"
	echo "contract=$(cat /sys/module/ndm_tcp/parameters/contract_hash)"
	grep -o '[^ ]*ndm_tcp[^ ]*' /proc/sys/net/ipv4/tcp_available_congestion_control >/dev/null
}

# A connection that uses the module is open: the module must stay.
busy() {
	tcp_transfer -w >hold.txt &
	holder=$!
	for i in 1 2 3 4 5 6 7 8 9 10; do grep -q holding hold.txt && break; sleep 1; done
	grep -q holding hold.txt || { echo "no connection"; return 1; }
	echo "users=$(cat /sys/module/ndm_tcp/refcnt)"
	rmmod ndm_tcp && { echo "rmmod took the module from an open socket"; return 1; }
	loaded || return 1
	kill $holder
	wait $holder
	return 0
}

# Networks swapped without a pause while data flows.
parameters=/sys/module/ndm_tcp/parameters
swap() {
	built_in=$(cat $parameters/model_hash)
	tcp_transfer -b 24000000 >swap.txt &
	transfer=$!
	swaps=0
	while kill -0 $transfer 2>/dev/null; do
		echo other.blob >$parameters/model || return 1
		test "$(cat $parameters/model_hash)" = "$(cat /other.hash)" || return 1
		echo built-in >$parameters/model || return 1
		test "$(cat $parameters/model_hash)" = "$built_in" || return 1
		swaps=$((swaps + 2))
	done
	wait $transfer || { cat swap.txt; return 1; }
	echo "swaps=$swaps $(cat swap.txt)"
	test $swaps -gt 4
}

# Refused, with a line each; the network before stays, and is freed with the module.
swap_refused() {
	echo other.blob >$parameters/model || return 1
	dmesg -c >>log.txt
	for name in bad.blob missing.blob ../ndm_tcp/other.blob .. ""; do
		echo "$name" >$parameters/model 2>/dev/null && { echo "took $name"; return 1; }
	done
	test "$(cat $parameters/model_hash)" = "$(cat /other.hash)" || return 1
	dmesg | grep -q 'ndm_tcp/bad.blob: vector: output differs' || { dmesg; return 1; }
	dmesg | grep -o 'ndm_tcp: ndm_tcp/missing.blob: .*'
}

unload() {
	for i in 1 2 3 4 5; do rmmod ndm_tcp 2>rmmod.txt && break; sleep 1; done
	loaded && { cat rmmod.txt; return 1; }
	return 0
}

# Refused, for the reason that it is corrupt, and said so.
corrupt_refused() {
	dmesg -c >>log.txt
	insmod /corrupt.ko 2>insmod.txt && { echo "a wrong model was loaded"; return 1; }
	loaded && return 1
	grep -q 'nvalid' insmod.txt || { cat insmod.txt; return 1; }
	dmesg | grep -o 'ndm_tcp: golden .*' | head -n 1
}

# Another network from the first round on.
begin_swapped() {
	insmod /ndm_tcp.ko model=other.blob || { dmesg | grep ndm_tcp; return 1; }
	test "$(cat $parameters/model_hash)" = "$(cat /other.hash)" || return 1
	unload
}

begin_refused() {
	dmesg -c >>log.txt
	insmod /ndm_tcp.ko model=bad.blob 2>insmod.txt && { echo "took bad.blob"; return 1; }
	loaded && return 1
	dmesg | grep -o 'ndm_tcp: ndm_tcp/bad.blob: .*'
}

free_kb() { awk '$1 == "MemFree:" { print $2 }' /proc/meminfo; }

refuse_times() {
	i=$1
	while [ $i -gt 0 ]; do
		insmod /ndm_tcp.ko model=other.blob flows=1 2>insmod.txt && return 1
		i=$((i - 1))
	done
}

# A later parameter is refused: the network that `model` names must not stay in memory.
begin_leaves_nothing() {
	refuse_times 3 || return 1
	before=$(free_kb)
	refuse_times 60 || return 1
	kept=$((before - $(free_kb)))
	echo "kept=$kept KB"
	test $kept -lt 2500
}

# Without a moment in between in which nothing is delayed; what is not named stays.
netem_change() {
	/usr/sbin/tc qdisc change dev lo root netem "$@" limit 1000
}

# through_netem COUNTER ARGUMENTS...: a transfer that must count at least one.
through_netem() {
	what=$1; shift
	line=$(tcp_transfer "$@") || { echo "$line"; return 1; }
	echo "$line"
	test "$(echo "$line" | sed "s/.* $what=\([0-9]*\).*/\1/")" -gt 0
}

# The event of every round, to the console for the host to compute again.
trace_rounds() {
	tracing=/sys/kernel/tracing
	test -e $tracing/events || mount -t tracefs trace $tracing || return 1
	echo >$tracing/trace
	echo 1 >$tracing/events/ndm_tcp/ndm_tcp_round/enable || return 1
	tcp_transfer -b 6000000 -t 90 || return 1
	echo 0 >$tracing/events/ndm_tcp/ndm_tcp_round/enable
	grep ndm_tcp_round: $tracing/trace >trace.txt || return 1
	echo "rounds=$(wc -l <trace.txt)"
}

# Nothing gets through for two seconds: timeouts, backoff, slow start again.
outage() {
	before=$(counter TCPTimeouts)
	tcp_transfer -b 1500000 -t 90 >outage.txt &
	transfer=$!
	sleep 1
	netem_change delay 20ms rate 4mbit loss 100%
	sleep 2
	netem_change delay 20ms rate 4mbit
	wait $transfer || { cat outage.txt; return 1; }
	cat outage.txt
	after=$(counter TCPTimeouts)
	echo "timeouts=$((after - before))"
	test $((after - before)) -gt 0
}

prepare_netem() {
	single_packets && netem delay 20ms
}

first_load
step parameter-refused parameter_refused
step load load /ndm_tcp.ko
step ipv4 tcp_transfer -b 8000000
step ipv6 tcp_transfer -6 -b 8000000
step switch tcp_transfer -b 8000000 -a cubic,ndm_tcp,reno,ndm_tcp
step swap swap
step swap-refused swap_refused
step busy busy
step unload unload
step corrupt-refused corrupt_refused
step begin-swapped begin_swapped
step begin-refused begin_refused
step begin-leaves-nothing begin_leaves_nothing
step reload load /ndm_tcp.ko selftest_full=1

# A receiver that offers little: windows of a few packets, never window-limited.
echo "4096 4096 4096" >/proc/sys/net/ipv4/tcp_rmem
step small-window tcp_transfer -b 200000
echo "4096 131072 6291456" >/proc/sys/net/ipv4/tcp_rmem

if test -e /sch_netem.ko; then
	step netem prepare_netem
	step delay tcp_transfer -b 2000000
	netem delay 20ms loss 2%
	step loss through_netem retransmits -b 1000000 -t 90
	# A pipe that fills, or slow start would never end; a short queue, so that rounds are many.
	netem delay 20ms loss 2% rate 20mbit limit 150
	step trace trace_rounds
	cat trace.txt
	echo other.blob >$parameters/model
	step swapped-trace trace_rounds
	sed s/ndm_tcp_round:/ndm_swapped_round:/ trace.txt
	echo built-in >$parameters/model
	echo 1 >/proc/sys/net/ipv4/tcp_ecn
	# Else a lost SYN, resent without ECN, would leave nothing to mark.
	echo 0 >/proc/sys/net/ipv4/tcp_ecn_fallback
	netem delay 20ms loss 2% ecn
	step ecn through_netem ce -b 1000000 -t 90
	netem delay 20ms rate 4mbit
	step outage outage
fi
step final-unload unload

cat log.txt
end
