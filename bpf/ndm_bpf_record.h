/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One record of a scripted flow: what the core has in the socket, what it calls, and what
 * comes out.
 */
#ifndef _NDM_BPF_RECORD_H
#define _NDM_BPF_RECORD_H

#include "kmod/ndm_memory.h"

enum ndm_replay_op {
	NDM_REPLAY_INIT,	/* a new socket with cwnd and ssthresh of this record */
	NDM_REPLAY_ACK,
	NDM_REPLAY_CUT,		/* tcp_init_cwnd_reduction(): arg: of enum ndm_replay_cut */
	NDM_REPLAY_STATE,	/* tcp_set_ca_state(arg) */
	NDM_REPLAY_UNDO,	/* tcp_undo_cwnd_reduction() */
	NDM_REPLAY_IDLE,	/* the first packet after a silence */
};

enum ndm_replay_cut {
	NDM_REPLAY_CUT_MARK,	/* no undo */
	NDM_REPLAY_CUT_LOSS,
	NDM_REPLAY_CUT_TLP,	/* a tail loss probe repaired it: prior_ssthresh stays */
};

struct ndm_replay_record {
	u32 op;
	u32 arg;
	u64 mstamp, bytes_acked, prior_mstamp;
	s64 interval_us, rtt_us;
	u32 cwnd, ssthresh;	/* only of an INIT; else what the flow has */
	u32 random, jiffies;
	u32 packets_out, sacked_out, lost_out, retrans_out, max_packets_out, prr_out;
	u32 mss_cache, srtt_us, mdev_us, min_rtt_us;
	u32 delivered, delivered_ce, lost, total_retrans, reord_seen, data_segs_out;
	u32 undo_marker, tlp_high_seq, lsndtime, rto;
	u32 prior_delivered, acked_sacked;
	s32 rs_delivered, losses;
	u32 app_limited, advanced, cwnd_limited, tlp_retrans, probing_mtu;
	u32 ns;			/* not zero: how long it took is written here */
	/* what came out */
	u32 out_cwnd, out_ssthresh, out_prior_cwnd, out_prior_ssthresh, out_state;
	u64 out_pacing;
	u64 out_private[13];
	struct ndm_memory out_memory;
};

#endif /* _NDM_BPF_RECORD_H */
