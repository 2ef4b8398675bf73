/* SPDX-License-Identifier: GPL-2.0-only */
/* What the BPF programs and the loader exchange. */
#ifndef _NDM_BPF_H
#define _NDM_BPF_H

#include "kmod/generated/ndm_contract.h"
#include "kmod/ndm_round.h"

#define NDM_HASH_BYTES	17
#define NDM_TRACE_MOST	256	/* pre-activations of all layers, at most */

/* The one entry of the map ndm_shared. */
struct ndm_shared {
	s64 count[NDM_N_COUNTERS];
	u64 events_lost;	/* the ring buffer was full */
	u64 no_memory;		/* rounds that passed without the socket's storage */
	u32 events;		/* not zero: somebody reads the events */
	char model[NDM_HASH_BYTES];
	char contract[NDM_HASH_BYTES];
};

/* A round in the ring buffer ndm_events; the fields of the module's event. */
struct ndm_event {
	u64 t_ns;		/* CLOCK_MONOTONIC */
	u64 cookie;
	struct ndm_round_report report;
	u8 saddr[16];
	u8 daddr[16];
	u16 family;
	u16 sport;
	u16 dport;
};

/* Contexts of the programs that the loader runs before it registers anything. */
struct ndm_check_infer {
	s16 x[NDM_N_DENSE];
	s32 out[NDM_N_OUTPUTS];
	s32 trace[NDM_TRACE_MOST];
};

struct ndm_check_features {
	struct ndm_ack ack;
	u32 restart;		/* forget all, then take the ACK */
	u32 valid;		/* the ACK ended a valid round */
	s16 x[NDM_N_DENSE];	/* its inputs and means */
};

#endif /* _NDM_BPF_H */
