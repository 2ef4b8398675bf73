/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A simulator of TCP flows on one path: the kernel's sender and receiver as far as bulk
 * transfers need them, around algorithms that are compiled unchanged. Packets have one size;
 * the flow's n-th packet has sequence number n * SIM_MSS. Times are nanoseconds since
 * the start of the run.
 */
#ifndef _NDM_SIM_H
#define _NDM_SIM_H

#include <stdio.h>
#include <stdlib.h>

#include "include/core.h"
#include "../../datasets/native/peaks.h"
#include "kmod/generated/ndm_contract.h"

#define SIM_PACKET	1500	/* bytes on the path, IP header included */
#define SIM_MSS		1448	/* with timestamps */
#define SIM_BUFFER	2046	/* packets that tcp_wmem's 4 MiB hold */
#define SIM_ACK		52	/* bytes; of a message, too */
#define SIM_FRAME	1514	/* what a shaper counts after a change of its rate */
#define SIM_RING	(1U << 17)	/* packets of a flow that may be under way */
#define SIM_FLOWS	256	/* as a scenario may have */
#define SIM_NONE	(~0U)
#define SIM_TWICE	(1U << 31)	/* beside a packet's number: it had come before */
#define SIM_MESSAGE	(1U << 31)	/* in the place of a packet's number: of a handshake */
#define SIM_RTO_MIN_US	200000U
#define SIM_NS_US	1000ULL
#define SIM_NS_MS	1000000ULL
#define SIM_NS_S	1000000000ULL

/* A sent packet, in a ring by its number. */
struct sim_packet {
	u64 sent_us;		/* when its newest transmission left */
	u64 first_tx_us;	/* of the rate sample, as in struct tcp_skb_cb */
	u64 delivered_us;
	u32 delivered;
	u32 older, newer;	/* in order of transmission, for RACK */
	u8 cause;		/* why its newest transmission was dropped; 0: it was not */
	bool app_limited, sacked, lost, retrans, ever_retrans, listed;
};

/* Why a packet counts as lost: LossCause of datasets/rounds/flow.py. */
enum sim_cause { SIM_CAUSE_REORDERED = 1, SIM_CAUSE_RANDOM, SIM_CAUSE_QUEUE };

/* What a receiver knows of a flow. */
struct sim_receiver {
	u32 next;		/* the first packet that is missing */
	u32 highest;		/* behind the newest that arrived */
	u32 acked;		/* next, as of the newest ACK */
	u32 read;		/* up to here the program has read */
	u32 held;		/* packets behind a missing one */
	u8 *got;		/* ring */
	u32 *log;		/* ring: which packet arrived as the n-th */
	u64 *echo;		/* ring: the timestamp, us, that an ACK after the n-th has */
	u64 recent_us;		/* RFC 7323, 4.3 */
	u64 arrivals;
	u32 quick, dup_acks, compressed;
	u64 read_at, read_ns;	/* the program reads again from then on; and waits so long */
	bool reads;		/* that event is queued */
	u64 delack_at;		/* 0: not waiting */
	u64 data_at, pause_ns;	/* the newest packet; after so long without one ACKs are quick */
	u64 compress_at;
	u32 window, clamp, ssthresh;	/* bytes: advertised, limits of it */
	u32 space;		/* bytes copied in the last round trip */
	u32 space_read;
	u64 space_at;
};

enum sim_timer { SIM_TIMER_OFF, SIM_TIMER_RTO, SIM_TIMER_TLP, SIM_TIMER_REO };

struct sim_flow {
	struct tcp_sock tp;	/* first: a struct sock is a flow */
	struct ndm_memory *memory;
	u32 number;
	const struct tcp_congestion_ops *ops;
	u64 start_ns, length_ns, measured_ns, extra_ns;
	u32 message;		/* that it waits for an answer to */
	bool sends, ended;

	struct sim_packet *ring;
	u32 una, nxt;		/* packets */
	u32 written;		/* by the program */
	u32 fack;		/* behind the highest one that arrived */
	u32 oldest, newest;	/* ends of the list for RACK */
	u32 retransmit_from;	/* no lost packet before this waits */
	s32 undo_retrans;	/* as in the kernel: -1, before the first one */
	u32 retransmits, reordering, high;
	u32 usage_seq, wnd_end;	/* packets */
	u64 seen;		/* entries of the receiver's log */
	u64 first_tx_us;
	u64 rack_us, rack_rtt_us;
	u32 rack_end, rack_steps, rack_round, rack_persist;
	bool rack_advanced, rack_dsack;
	u32 rtt_seq, mdev_max_us, rttvar_us;
	bool frto;
	enum sim_timer timer;
	u64 timer_at;
	bool pacing;		/* that event is queued */

	/* record.c */
	struct ndm_peaks peaks;
	u32 recorded_lost, min_rtt_us;
	u8 recorded_state;
	u32 own_min_rtt_us;	/* ndm.c: with which ndm_tcp took the newest ACK; 0: another algorithm */
	u8 cause;		/* of losses since the newest ACK */

	struct sim_receiver in;
	/* Results; packets unless said otherwise. */
	u64 sent, retransmitted, random_lost, queue_lost;
	u32 common[2];		/* acknowledged, when the time of all flows began and ended */
	u32 *rtt_us;		/* smoothed, of every sample */
	u32 rtts, room;
	u32 silent;		/* seconds in which nothing arrived */
	u32 counted;		/* arrived when the newest of them began */
};

enum sim_kind {
	SIM_MESSAGE_OUT, SIM_START, SIM_END, SIM_STOP, SIM_TIMER, SIM_PACE, SIM_DEQUEUE,
	SIM_SLOT, SIM_DATA, SIM_ACK_OUT, SIM_ACK_IN,
	SIM_READ, SIM_DELACK, SIM_COMPRESS, SIM_STEP, SIM_SAMPLE, SIM_SECOND, SIM_COMMON,
};

struct sim_event {
	u64 at, order;
	enum sim_kind kind;
	u32 flow, packet;
	u64 value;
};

extern u64 sim_now;
extern struct sim_flow sim_flow[SIM_FLOWS];
extern u32 sim_flows;

/* events.c */
void sim_at(u64 at, enum sim_kind kind, u32 flow, u32 packet, u64 value);
bool sim_next(struct sim_event *event);
void sim_seed(u64 seed);
u32 sim_random(void);
double sim_uniform(void);
double sim_normal(void);

/* path.c */
struct sim_path {
	double bps, rtt_us, loss, ack_loss, jitter_us;
	double burst_start, burst_end, burst_loss;
	double slot_us[2], hold_us[2], ack_bps;
	u32 queue, bucket, ack_queue;
	u32 jitter_kind;	/* 0: normal, 1: uniform */
	bool ordered;		/* nobody overtakes */
};

struct sim_step {
	u64 at;
	double bps, rtt_us;	/* 0: as before */
};

extern struct sim_path sim_path;
void sim_path_change(const struct sim_step *step);
void sim_path_begin(void);
void sim_path_step(u32 number);
void sim_send(u32 flow, u32 packet, u64 sent_us);
void sim_dequeue(u64 at);
void sim_slot(u32 number, u64 at);
void sim_send_ack(u32 flow, u32 acked, u64 log, u32 window_end);
void sim_ack_out(const struct sim_event *event);

/* sender.c; times of a sender begin at a second, for zero means none */
static inline u64 sim_us(void)
{
	return (sim_now + SIM_NS_S) / SIM_NS_US;
}


void sim_open(struct sim_flow *f, long rtt_us);
void sim_refresh(struct sim_flow *f);
void sim_timer_fires(struct sim_flow *f);
void sim_pace(struct sim_flow *f);
void sim_write(struct sim_flow *f, bool probe);
void sim_transmit(struct sim_flow *f, u32 packet);
bool sim_paces(struct sim_flow *f);
void sim_arm(struct sim_flow *f, enum sim_timer timer, u64 wait_us);
void sim_arm_rto(struct sim_flow *f);
bool sim_arm_probe(struct sim_flow *f, bool advancing);
void sim_set_state(struct sim_flow *f, u8 state);

/* acks.c */
void sim_ack(struct sim_flow *f, u32 ack, u64 log, u32 window_end);
void sim_take_rtt(struct sim_flow *f, long rtt_us, long newest_us);

/* recovery.c */
enum {
	SIM_ADVANCED = 1, SIM_SACKED = 2, SIM_DSACK = 4, SIM_TLP_DSACK = 8, SIM_ORIGINAL = 16,
	SIM_WINDOW = 32,
};
void sim_unlist(struct sim_flow *f, u32 packet);
void sim_list(struct sim_flow *f, u32 packet);
void sim_rack_advance(struct sim_flow *f, const struct sim_packet *p, u32 packet);
bool sim_rack(struct sim_flow *f);
void sim_rack_window(struct sim_flow *f);
int sim_recover(struct sim_flow *f, u32 flags);
void sim_enter_recovery(struct sim_flow *f);
void sim_process_tlp(struct sim_flow *f, u32 flags, u32 ack);
void sim_timeout(struct sim_flow *f);
void sim_retransmit(struct sim_flow *f);
void sim_probe(struct sim_flow *f);
void sim_reduce(struct sim_flow *f, u32 acked, u32 lost, u32 flags);
bool sim_is_reducing(const struct sim_flow *f);

/* receiver.c */
void sim_receive(struct sim_flow *f, u32 packet, u64 sent_us);
void sim_read(struct sim_flow *f);
void sim_delack(struct sim_flow *f, u64 at);
void sim_compressed(struct sim_flow *f, u64 at);
void sim_receiver_begin(struct sim_flow *f, double rtt_us);

/* record.c */
void sim_record_to(const char *path);
void sim_record_end(void);
void sim_dropped(u32 flow, u32 packet, enum sim_cause cause);
void sim_record_lost(struct sim_flow *f, u32 packet);
struct ndm_ack sim_record_ack(struct sim_flow *f, const struct rate_sample *rs);
void sim_record_keep(struct sim_flow *f, const struct rate_sample *rs, const struct ndm_ack *ack);

/* algorithms.c */
const struct tcp_congestion_ops *sim_algorithm(const char *name);
bool sim_set_param(const char *name, u32 value);

static inline struct sim_packet *sim_packet(const struct sim_flow *f, u32 number)
{
	return &f->ring[number & (SIM_RING - 1)];
}

static inline struct sock *sim_sk(struct sim_flow *f)
{
	return (struct sock *)f;
}

static inline u8 sim_state(const struct sim_flow *f)
{
	return f->tp.inet_conn.icsk_ca_state;
}

#endif /* _NDM_SIM_H */
