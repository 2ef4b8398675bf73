// SPDX-License-Identifier: GPL-2.0-only
/*
 * The golden vectors in the loaded programs: the module's self-test (kmod/ndm_selftest.h),
 * whose arithmetic the kernel runs, an integer network or an ACK at a time.
 */
#include "kmod/ndm_features.h"
#include "kmod/ndm_infer.h"
#include "kmod/ndm_memory.h"

#include "loader.h"

static int infer_fd, features_fd, failed;

static void loaded_infer(const s16 *x, s32 *out, s32 *trace);
static enum ndm_round loaded_features(const struct ndm_ack *ack, s16 *x);

#define ndm_infer(model, x, out, trace)		loaded_infer(x, out, trace)
#define ndm_features_ack(features, ack, x)	loaded_features(ack, x)
/* The program has done it. */
#define ndm_remember(memory, x)			((void)(memory))
#include "kmod/ndm_selftest.h"

static_assert(NDM_MODEL_TRACE <= NDM_TRACE_MOST, "more units than struct ndm_check_infer holds");

static void loaded_infer(const s16 *x, s32 *out, s32 *trace)
{
	struct ndm_check_infer check = {};

	memcpy(check.x, x, sizeof(check.x));
	if (!failed)
		failed = run_program(infer_fd, &check, sizeof(check));
	memcpy(out, check.out, sizeof(check.out));
	memcpy(trace, check.trace, NDM_MODEL_TRACE * sizeof(*trace));
}

static enum ndm_round loaded_features(const struct ndm_ack *ack, s16 *x)
{
	struct ndm_check_features check = { .ack = *ack, .restart = ack == ndm_stream_ack };

	if (!failed)
		failed = run_program(features_fd, &check, sizeof(check));
	memcpy(x, check.x, sizeof(check.x));
	return check.valid ? NDM_ROUND_VALID : NDM_ROUND_GOES_ON;
}

int check_loaded(const struct loaded *loaded)
{
	struct ndm_selftest_result r;
	const char *failure;

	infer_fd = program_of(loaded, "ndm_check_infer");
	features_fd = program_of(loaded, "ndm_check_features");
	if (infer_fd < 0 || features_fd < 0)
		return fail("the object has no self-test; build it again: make -C bpf");
	failure = ndm_selftest(&r);
	if (failed)
		return fail("the self-test does not run in this kernel: %s", strerror(-failed));
	if (failure)
		return fail("golden %s: index %u, element %u: want %d, got %d; not loaded", failure,
			    r.index, r.element, r.want, r.got);
	return 0;
}
