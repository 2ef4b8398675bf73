/* SPDX-License-Identifier: GPL-2.0-only */
/* What the BPF programs and the loader exchange. */
#ifndef _NDM_BPF_H
#define _NDM_BPF_H

#include "kmod/generated/ndm_contract.h"
#include "kmod/ndm_round.h"

#define NDM_HASH_BYTES	17
#define NDM_TRACE_MOST	256	/* pre-activations of all layers, at most */

/*
 * The map ndm_models: entries 0 and 1 are the slots 1 and 2, each a network that was swapped
 * in. Slot 0 stands for the compiled network, which no swap changes.
 */
#define NDM_SLOTS	2

/* The one entry of the map ndm_active; the kernel copies it in one piece. */
struct ndm_active {
	u32 slot;	/* whose network runs */
	u32 settled;	/* not zero: no program runs on with another one */
};

/* The one entry of the map ndm_shared, which a reader of events maps: it writes its word alone. */
struct ndm_shared {
	s64 count[NDM_N_COUNTERS];
	u64 events_lost;	/* the ring buffer was full */
	u32 reader;		/* process that reads the events; 0: none */
	char model[NDM_HASH_BYTES];	/* the compiled network */
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
	u32 slot;		/* whose network to run */
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
