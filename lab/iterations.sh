#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Record the rounds that the shipped network is trained on, from nothing: first what
# other algorithms do on the training paths; then, again and again, what the newest
# network does there, left alone and exploring, so that it learns from the states that
# it gets itself into. Every step resumes; the lab is deterministic.
#
#	lab/iterations.sh FOLDER [ITERATIONS]
#
# leaves FOLDER/rounds/{pool,1,1-explored,...}, the datasets, and FOLDER/run/{0,1,...}.
set -eu
out=$1
iterations=${2:-3}
ndm=${NDM:-.venv/bin/ndm}
data=

build() { # recordings, name of the dataset
	[ -f "$out/rounds/$2/dataset.json" ] ||
		"$ndm" dataset build "$1" -o "$out/rounds/$2" --jobs "$(nproc)"
	data="$data $out/rounds/$2"
}

train() { # number of the run
	# shellcheck disable=SC2086
	"$ndm" train --data $data -o "$out/run/$1"
}

mkdir -p "$out/rounds" "$out/run"
"$ndm" lab record training --cc reno,cubic,bbr -o "$out/runs/pool"
build "$out/runs/pool" pool
train 0
n=0
while [ "$n" -lt "$iterations" ]; do
	kmod=$out/kmod/$n
	if [ ! -d "$kmod" ]; then
		mkdir -p "$out/kmod"
		rm -rf "$kmod.part"
		cp -r kmod "$kmod.part"
		"$ndm" export "$out/run/$n" -o "$kmod.part/generated"
		mv "$kmod.part" "$kmod"
	fi
	n=$((n + 1))
	"$ndm" lab record training --cc ndm_tcp --kmod "$kmod" -o "$out/runs/$n"
	build "$out/runs/$n" "$n"
	"$ndm" lab record training --cc ndm_tcp --kmod "$kmod" --explore -o "$out/runs/$n-explored"
	build "$out/runs/$n-explored" "$n-explored"
	train "$n"
done
