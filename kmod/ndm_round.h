/* SPDX-License-Identifier: GPL-2.0-only */
/* What is told of a round when it has ended. */
#ifndef _NDM_ROUND_H
#define _NDM_ROUND_H

#include "generated/ndm_contract.h"

/* Who decided what happens to the window. */
enum ndm_why {
	NDM_WHY_NETWORK,	/* the network's gain */
	NDM_WHY_BLIND,		/* no inputs: one packet more */
	NDM_WHY_SLOW_START,
	NDM_WHY_GOES_ON,	/* slow start that losses ended comes back */
	NDM_WHY_RECOVERY,	/* CWR, Recovery or Loss; the target is not used */
	NDM_WHY_WATCHDOG,	/* the network is not listened to: one packet more */
	NDM_WHY_DRAIN,		/* a quarter of the window to empty the queue, then twice it */
};

struct ndm_round_report {
	s16 x[NDM_N_DENSE];	/* all zero if not valid */
	s32 out[NDM_N_OUTPUTS];	/* likewise */
	u32 cwnd;		/* the window that is wanted, packets, when the round ended */
	u32 target;		/* packets, for the next round */
	u32 ssthresh;		/* packets, for the next round */
	bool valid;
	u8 state;		/* enum tcp_ca_state */
	u8 phase;		/* of the probe, if the network decided */
	enum ndm_why why;
};

#endif /* _NDM_ROUND_H */
