/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replays one direction of a captured connection through the sender's own bookkeeping.
 *
 * From the data packets that left and the ACKs that came back, this rebuilds what the kernel
 * knew at each ACK: RTT samples by the rule of tcp_clean_rtx_queue(), srtt by RFC 6298 as in
 * tcp_rtt_estimator(), delivery rate as in tcp_rate.c (draft-cheng-iccrg-delivery-rate-
 * estimation), losses by RACK (RFC 8985), recovery by RFC 6675. The window is not on the wire:
 * it is estimated from the packets in flight.
 */
#ifndef NDM_SENDER_H
#define NDM_SENDER_H

#include "flow_sizes.h"
#include "kmod/ndm_features.h"
#include "packet.h"
#include "peaks.h"

/* More segments in flight than a window of 1 GiB holds: not TCP, refused. */
#define NDM_MAX_OUT (1u << 20)

struct ndm_drops {
	int64_t n;		/* -1: unknown to the path */
	const uint32_t *seq;	/* sorted, equal ones in order of time */
	const int64_t *at_us;
	const uint8_t *cause;
};

/* Result of the replay for one ACK. */
struct ndm_ack_row {
	struct ndm_ack ack;
	uint8_t cause;		/* LossCause of what this ACK marked lost */
	uint8_t rwnd_limited;
	int32_t rtt_us;		/* as captured; the kernel rounds that of a timestamp */
};

struct ndm_out {		/* a segment in flight */
	int64_t seq;
	int64_t end;
	int64_t sent_us;
	int64_t first_tx_us;
	int64_t delivered_us;
	int64_t delivered;
	bool sacked : 1, lost : 1, resent : 1, resent_out : 1, rate_taken : 1, app_limited : 1;
	bool fits : 1, unfit : 1;	/* an edge at its beginning, or inside it, was counted */
	uint16_t ip_id;		/* of the packet that began with it; 0: none */
	uint16_t place;		/* in the packet that it came in; 0: first */
};

struct ndm_minimum {
	int64_t at_us;
	int64_t value;
};

struct ndm_sender {
	int64_t mss;
	int32_t wscale;		/* of the receiver; -1: the handshake was not captured */
	const struct ndm_drops *drops;
	int64_t *budget;	/* segments that all senders together may still hold */

	int64_t srtt8, mdev4;	/* us, << 3 and << 2, as in the kernel */
	struct ndm_minimum *minima;
	size_t min_head, min_end, min_room;

	struct ndm_out *out;
	size_t head, end, room;
	int64_t una, nxt, top_sacked;
	int64_t beyond;		/* end of the segments that are not replayed: FIN, window probe */
	bool closed;		/* the receiver's window is 0 */
	bool fin;
	int64_t sacked_out, lost_out, resent_out;
	uint32_t marked;	/* packets marked lost since the last row, by timers too, */
	uint8_t marked_cause;	/* and why they were lost */
	uint32_t entered;	/* of marked, those that a late ACK has begun a recovery for */
	int64_t delivered, delivered_us, first_tx_us, app_limited;
	int state;
	int64_t high_seq;
	bool reordered, rack_advanced, dsack_seen;
	int64_t rack_sent_us, rack_end, rack_rtt_us;
	int64_t reo_steps, reo_persist, reo_mark;
	int64_t repeated;	/* segments that the receiver reported to have come twice */
	int64_t probe_end;	/* of the tail repeated last (TLP); -1: none, or answered */
	int64_t window;
	int64_t held;		/* ACKs in a row before which it had no room, outside recovery */
	int64_t last_progress_us;

	uint32_t *stamp;	/* a ring of TSval and when it was first sent */
	int64_t *stamp_us;
	size_t stamps, stamp_next, stamp_room;
	uint32_t stamp_top;
	uint32_t tick;		/* the first TSval */
	int64_t tick_sent_us;	/* when it was first sent */
	/* When the millisecond of that TSval began: the lowest departure - 1 ms x (TSval - tick). */
	int64_t tick_us;

	struct ndm_peaks peaks;
	struct {
		int64_t prior_delivered, prior_us, end, send_us;
		bool app_limited;
	} sample;

	int64_t retransmitted, sent_segments, rtos, rows;
	int64_t gaps;		/* data packets that left a hole before them */
	int64_t gap_bytes;	/* in these holes */
	int64_t filled, filled_bytes;	/* retransmissions that fill a hole, and their bytes */
	int64_t unseen;		/* ACKs of data that was not captured */
	int64_t unseen_end;	/* the highest of these */
	int64_t early;		/* of them those whose data may only be written late */
	int64_t early_us;	/* when the first of these came */
	int64_t ahead;		/* ACKs that came long before their data, and gave no row */
	int64_t keepalives;	/* and window probes */
	int64_t fins_resent;
	/* Where segments of the wire end in packets that hold several: at a cut of ours, or not. */
	int64_t fitting, unfitting;
	struct ndm_sizes unfit;	/* the latter, bytes from the beginning of the packet */
	int64_t same_id;	/* retransmissions with the IP id of the first transmission */
	int64_t zero_windows;
	int64_t dsacks;		/* ACKs that report data that came twice (RFC 2883) */
	bool failed;		/* out of memory, or more in flight than TCP allows */
};

void ndm_sender_init(struct ndm_sender *s, int64_t mss, int32_t wscale,
		     const struct ndm_drops *drops, int64_t *budget);
void ndm_sender_seed_rtt(struct ndm_sender *s, int64_t now_us, int64_t rtt_us);
/* What a sender knows at the end of a handshake, as a row. */
void ndm_handshake_row(int64_t now_us, int64_t rtt_us, struct ndm_ack_row *row);
/* A data packet, with the IP id it had. */
void ndm_sender_sent(struct ndm_sender *s, int64_t now_us, uint32_t seq, uint32_t bytes,
		     uint16_t ip_id, const struct ndm_options *options);
/* A FIN with this sequence number; `alone`: in a packet without data. */
void ndm_sender_fin(struct ndm_sender *s, uint32_t seq, bool alone);
/* The capture's clock was set: no interval from before until now is known. */
void ndm_sender_clock_set(struct ndm_sender *s);
/* True if the ACK gave a row. */
bool ndm_sender_acked(struct ndm_sender *s, int64_t now_us, uint32_t ack, uint32_t window,
		      const struct ndm_options *options, struct ndm_ack_row *row);
/* The segment size of the wire, if ACKs and retransmissions clearly show a smaller one; else 0. */
int64_t ndm_sender_smaller_mss(const struct ndm_sender *s);
void ndm_sender_free(struct ndm_sender *s);

#endif
