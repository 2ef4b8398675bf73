// SPDX-License-Identifier: GPL-2.0-only
/*
 * Another network for the programs that run. It is written to a slot that no program uses;
 * the loaded self-test computes the blob's vectors with it; then the index of the slot that
 * runs is changed. A round reads that index once: all of its inference is by one network.
 *
 * Programs that began before the change may run on with the former slot. Nobody writes to it
 * before the kernel has confirmed that they have ended.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kmod/ndm_blob.h"
#include "kmod/generated/ndm_model.h"

#include "loader.h"

static struct ndm_blob blob;

static double now_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The file, which stays in memory; NULL after fail(). */
static const u8 *read_file(const char *path, u32 *n)
{
	static u8 data[1 << 20];
	FILE *file = fopen(path, "rb");
	size_t got;

	if (!file) {
		fail("%s: %s", path, strerror(errno));
		return NULL;
	}
	got = fread(data, 1, sizeof(data), file);
	fclose(file);
	if (got == sizeof(data)) {
		fail("%s: no blob, but 1 MB or more; write one: ndm export RUN", path);
		return NULL;
	}
	*n = (u32)got;
	return data;
}

int read_blob(const char *path)
{
	struct ndm_blob_fault fault;
	const u8 *data;
	u32 n;

	data = read_file(path, &n);
	if (!data)
		return 1;
	if (!ndm_blob_read(&blob, &ndm_model, data, n, &fault) ||
	    !ndm_blob_verify(&blob, &fault))
		return fault.index || fault.element ?
			fail("%s: %s (index %u, element %u); the former network runs on", path,
			     fault.what, fault.index, fault.element) :
			fail("%s: %s; the former network runs on; another blob: ndm export RUN",
			     path, fault.what);
	return 0;
}

int put_slot(const struct slots *slots, u32 slot)
{
	u32 entry = slot - 1;

	return bpf_map_update_elem(slots->models, &entry, &blob.weights, BPF_ANY);
}

int set_active(const struct slots *slots, u32 slot, bool settled)
{
	struct ndm_active active = { slot, settled };
	u32 zero = 0;

	return bpf_map_update_elem(slots->active, &zero, &active, BPF_ANY);
}

/* The vectors in the loaded program, bit for bit. */
static int check_slot(const struct slots *slots, u32 slot)
{
	s32 want[NDM_N_OUTPUTS];
	int err;

	for (u32 v = 0; v < blob.n_vectors; v++) {
		struct ndm_check_infer check = { .slot = slot };

		ndm_blob_vector(&blob, v, check.x, want);
		err = run_program(slots->infer, &check, sizeof(check));
		if (err)
			return fail("the self-test does not run in this kernel: %s",
				    strerror(-err));
		for (u32 i = 0; i < NDM_N_OUTPUTS; i++)
			if (check.out[i] != want[i])
				return fail("golden vector %u, output %u: want %d, got %d in this "
					    "kernel; the former network runs on", v, i, want[i],
					    check.out[i]);
	}
	return 0;
}

/*
 * Wait until every program that runs now has ended: the kernel does so whenever an array of
 * maps changes, so that user space may rely on the new entry.
 */
static int wait_for_programs(void)
{
	int inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "ndm_inner", 4, 4, 1, NULL), outer, err;
	LIBBPF_OPTS(bpf_map_create_opts, options, .inner_map_fd = (u32)inner);
	u32 zero = 0;

	if (inner < 0)
		return inner;
	outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "ndm_outer", 4, 4, 1, &options);
	err = outer < 0 ? outer : bpf_map_update_elem(outer, &zero, &inner, BPF_ANY);
	if (outer >= 0)
		close(outer);
	close(inner);
	return err;
}

/* The loader's network has the shape that it lays a blob out by: it must be the programs'. */
static int require_same_build(void)
{
	struct ndm_shared shared;
	int fd = open_shared(&shared);

	if (fd < 0)
		return -fd;
	close(fd);
	if (strcmp(shared.model, NDM_MODEL_HASH))
		return fail("the loaded programs were built with network %.16s, this loader with "
			    NDM_MODEL_HASH "; use the loader that loaded them", shared.model);
	return 0;
}

static int settle(const struct slots *slots, u32 slot)
{
	int err = wait_for_programs();

	if (!err)
		err = set_active(slots, slot, true);
	return err ? fail("the kernel does not confirm that the former network is out of use: %s",
			  strerror(-err)) : 0;
}

/* Locked: change from a slot to another. */
static int change(const struct slots *slots, const struct ndm_active *before, bool built_in,
		  double began_ms)
{
	u32 slot = built_in ? 0 : before->slot == 1 ? 2 : 1;
	double changed_ms, cpu_ms;
	int err;

	if (!before->settled && settle(slots, before->slot))
		return 1;
	if (slot && put_slot(slots, slot))
		return fail("slot %u cannot be written: %s", slot, strerror(errno));
	if (slot && check_slot(slots, slot))
		return 1;
	if (set_active(slots, slot, false))
		return fail("the slot cannot be changed: %s", strerror(errno));
	changed_ms = now_ms(CLOCK_MONOTONIC);
	cpu_ms = now_ms(CLOCK_PROCESS_CPUTIME_ID);
	err = settle(slots, slot);
	printf("swap_ms=%.3f\ncpu_ms=%.3f\nsettled_ms=%.3f\n", changed_ms - began_ms, cpu_ms,
	       now_ms(CLOCK_MONOTONIC) - began_ms);
	return err;
}

/*
 * Programs that never sleep would delay the swap, which needs a few milliseconds. Where no
 * real-time class is allowed, it runs as any program.
 */
static void hurry(void)
{
	const struct sched_param lowest = { .sched_priority = 1 };

	sched_setscheduler(0, SCHED_FIFO, &lowest);
}

int swap_model(const char *path)
{
	double began_ms = now_ms(CLOCK_MONOTONIC);
	struct ndm_active before;
	struct slots slots;

	if (geteuid())
		return fail("not root: only root may swap a network; run it with sudo");
	if (require_pins())
		return 1;
	if (!is_pinned())
		return fail(NAME " is not loaded; run: ndm bpf load");
	hurry();
	/* The lock before the pins: they could be unloaded, and others loaded, meanwhile. */
	if ((path && read_blob(path)) || lock_pins() || require_same_build() ||
	    open_slots(&slots) || read_active(&slots, &before))
		return 1;
	return change(&slots, &before, !path, began_ms);
}
