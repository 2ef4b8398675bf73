/* SPDX-License-Identifier: GPL-2.0-only */
/* What a capture holds of its flows, for the files that read it: capture*.c and flow*.c. */
#ifndef NDM_CAPTURE_STATE_H
#define NDM_CAPTURE_STATE_H

#include "capture.h"
#include "flow_sizes.h"
#include "order.h"
#include "points.h"

#define RECENT 4		/* packets a capture's copy may lag behind */

struct key {
	uint64_t vlan;
	uint8_t ends[2][18];	/* the lower one first */
	uint8_t family;
	uint8_t zero[3];
};

/* State of one pass that distinguishes the packets of a flow. */
struct live {
	uint64_t recent[2][RECENT];	/* fingerprints; 0: none */
	uint32_t isn[2];
	int64_t prior_ns[2];		/* of the packet before in this direction */
	uint32_t prior_seq[2], prior_ack[2];
	uint8_t next_recent[2];
	bool isn_known[2], prior_known[2];
	bool data;
};

/* One half of a round trip between the capture and an end, timed by time stamps. */
struct echo {
	int64_t sent_ns, best_ns;	/* best: -1 none yet */
	uint32_t value, newest, n;	/* n: echoes timed */
	bool waiting, any;
};

struct flow {
	struct key key;
	struct live live;
	struct ndm_sizes sizes[2];
	uint64_t payload[2];
	int64_t acks[2], data[2];	/* packets by direction */
	int64_t packets, duplicates;
	int64_t first_ns;
	int64_t syn_ns, synack_ns, earlier_synack_ns;	/* -1: not seen */
	uint32_t synack_stamp, earlier_synack_stamp;
	int64_t gap_ns[2];
	struct echo echo[2];
	struct ndm_points points[2];
	uint64_t least[NDM_LEAST];
	uint64_t steps, far_steps;	/* of the clock, when the packet before came */
	int64_t control_resent;
	int32_t least_mss, offers;
	int32_t wscale[2];		/* by direction; -1: no such option */
	bool syn_seen[2], sack_permitted[2], gaps_known, stamps, first_way, backwards, unordered;
	uint32_t last_seq[2], last_ack[2];	/* of the last packet with an ACK in this direction */
	bool seen[2];			/* packets by direction */
	bool copied, playing;	/* playing: its sender is replayed in this pass */

	int status;
	int forward;
	int64_t mss, first_us;
	struct ndm_sender *sender;
	struct ndm_rounds *rounds;
	struct ndm_ack_row *row;
	size_t rows, row_room;
};

/* A half of a connection, and the VLAN that the other half has. */
struct ndm_tag {
	struct key key;
	uint64_t vlan;
};

struct ndm_capture {
	uint64_t seed;
	bool keep_rows, replaying;
	int64_t min_segments, min_rows;
	struct ndm_drops drops;
	int64_t budget;
	struct ndm_counters counters;
	struct ndm_capture_file file;
	struct ndm_window window;
	int order;
	int64_t newest_ns, seen_ns, shift_ns;
	uint64_t older, file_right, times_right;	/* packets older than the one before, and why */
	int64_t before_ns, most_back_ns;
	uint64_t far_steps;
	struct flow *flow;
	size_t flows, flow_room;
	size_t met;			/* flows met so far in this pass */
	uint32_t *slot;			/* flow number + 1 by hash of the key */
	size_t slots;
	struct ndm_tag *tag;
	size_t tags, tag_room;
	uint32_t last;			/* flow of the packet before */
	size_t filled;
	uint8_t buffer[NDM_BUFFER_BYTES];
};

/* flow_table.c: which flow a packet is of. */
bool ndm_flow_key(const struct ndm_segment *s, struct key *key);
struct flow *ndm_flow_find(struct ndm_capture *c, const struct ndm_segment *s,
			   const struct key *key, bool up);
bool ndm_flow_is_copy(struct flow *f, const struct ndm_segment *s, bool up);
void ndm_flow_forget_replay(struct flow *f);
void ndm_flow_free(struct flow *f);

/* flow_tags.c: the VLAN of a packet's connection, after ndm_capture_pair(). */
void ndm_flow_join(const struct ndm_capture *c, struct key *key);

/* flow_learn.c: the first pass. */
void ndm_flow_watch_order(struct ndm_capture *c, struct flow *f, const struct ndm_segment *s,
			  bool up);
bool ndm_flow_learn(const struct ndm_capture *c, struct flow *f, const struct ndm_segment *s,
		    bool up);

/* flow_plan.c: between the passes, and the result of the first one. */
int ndm_flow_plan(const struct ndm_capture *c, struct flow *f);
bool ndm_flow_find_copies(struct ndm_capture *c);
int ndm_flow_header_bytes(const struct flow *f);
int32_t ndm_flow_window_scale(const struct flow *f);
int ndm_flow_sack(const struct flow *f);
bool ndm_flow_opened_by_sender(const struct flow *f);
int64_t ndm_flow_handshake_rtt_us(const struct flow *f);
bool ndm_flow_near_receiver(const struct flow *f);
bool ndm_flow_midway(const struct flow *f);
bool ndm_flow_behind_queue(const struct flow *f);
bool ndm_flow_captured_twice(const struct flow *f);

#endif
