/* SPDX-License-Identifier: GPL-2.0-only */
/* The report of a round that has ended. */
#ifndef _NDM_ROUND_H
#define _NDM_ROUND_H

#include "generated/ndm_contract.h"

/* Which rule set the window after a round; see the diagram in ndm_policy.h. */
enum ndm_mode {
	NDM_MODE_NETWORK,	/* the network's gain */
	NDM_MODE_BLIND,		/* no inputs: one packet more */
	NDM_MODE_SLOW_START,
	NDM_MODE_GOES_ON,	/* slow start returns after losses ended it */
	NDM_MODE_RECOVERY,	/* CWR, Recovery or Loss; the target is not used */
	NDM_MODE_WATCHDOG,	/* the network is ignored: one packet more */
	NDM_MODE_DRAIN,		/* a quarter of the window to empty the queue, then twice it */
};

/* Counters since loading. */
enum ndm_counter {
	NDM_COUNT_FLOWS,	/* sockets that use the algorithm now */
	NDM_COUNT_ROUNDS,
	NDM_COUNT_FALLBACKS,	/* how often the watchdog took over */
	NDM_COUNT_GUARDED,	/* rounds in which the guard against floods held the window */
	NDM_COUNT_NO_MEMORY,	/* rounds without the network: the kernel had no memory */
	NDM_N_COUNTERS,
};

struct ndm_round_report {
	s16 x[NDM_N_DENSE];	/* all zero if not valid */
	s32 out[NDM_N_OUTPUTS];	/* likewise */
	u32 cwnd;		/* the window when the round ended, packets: see ndm_window_of() */
	u32 target;		/* packets, for the next round */
	u32 ssthresh;		/* packets, for the next round */
	bool valid;
	u8 state;		/* enum tcp_ca_state */
	u8 phase;		/* of the probe, if the network decided */
	enum ndm_mode why;
};

#endif /* _NDM_ROUND_H */
