/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A capture to the rounds of its flows, in two passes over the file: the first learns which way
 * the data goes and the options of the handshakes, the second replays the senders. A third replays
 * those whose segments were smaller than their handshakes allow. Memory: one
 * buffer, some 640 bytes per connection and up to 48 KiB for its time stamps, 56 per segment in
 * flight of those that are not over, 88 per round; all ACKs (72 bytes each) only if the caller
 * requests them.
 */
#ifndef NDM_CAPTURE_H
#define NDM_CAPTURE_H

#include "capture_file.h"
#include "packet.h"
#include "rounds.h"
#include "sender.h"

#define NDM_BUFFER_BYTES (4u << 20)
#define NDM_MAX_FLOWS (1u << 20)
#define NDM_MAX_HELD (1 << 24)	/* segments in flight of all flows: 0.9 GB */

enum { NDM_CAPTURE_FLOWS = -8 }; /* beside those of ndm_file */

enum ndm_flow_status {
	NDM_FLOW_REPLAYED,
	NDM_FLOW_ONE_WAY,	/* no ACK of the receiver */
	NDM_FLOW_SHORT,		/* too few data segments */
	NDM_FLOW_RECEIVER,	/* captured near the receiver */
	NDM_FLOW_CLOCK,		/* time goes back by more than a second */
	NDM_FLOW_HOLES,		/* the capture lost too many packets */
	NDM_FLOW_HUGE,		/* more in flight than TCP allows, or out of memory */
	NDM_FLOW_OTHER_SHARD,	/* left to another process */
	NDM_FLOW_MERGED,	/* captured at two points, and these put into one file */
	NDM_FLOW_COPY,		/* another flow's packets under another address */
	NDM_FLOW_UNORDERED,	/* further from their place in time than can be sorted */
	NDM_FLOW_BEHIND,	/* captured behind the queue that drops its packets */
	NDM_FLOW_ACKS,		/* the data were not captured */
	NDM_FLOW_MIDWAY,	/* captured where a part of the RTT is not visible */
	NDM_FLOW_AHEAD,		/* ACKs have a clock that is behind that of the data */
	NDM_FLOW_FRAGMENTS,	/* the data are in IP fragments */
};

/* What is done about records that are older than the one before them. */
enum ndm_order {
	NDM_ORDER_FILE,		/* nothing */
	NDM_ORDER_SORT,		/* they were written too late: sort them */
	NDM_ORDER_CLOCK,	/* the clock was set back: go on from where it was */
};

struct ndm_counters {
	uint64_t packets, not_tcp, cut_headers, fragments, duplicates, bad_times;
	uint64_t tunnelled;	/* TCP packets that were read inside a tunnel */
	uint64_t cut_options;	/* of TCP, by the snaplen, with all SACK blocks */
	uint64_t moved;		/* packets that were sorted to their place in time */
	uint64_t clock_steps;
	uint64_t other_links;	/* packets of a link type that is not known here */
	uint32_t bad_link_type;	/* of the first of these */
};

struct ndm_flow_info {
	int status;
	int family;
	int forward;			/* 1: the data goes from the lower end to the higher */
	int sender_port, receiver_port;
	int handshake;			/* 1: SYN and SYN-ACK were captured */
	int window_scale;		/* of the receiver's windows; -1: not known */
	int sack;			/* 1: both ends permit it; -1: not known */
	int64_t first_us;		/* capture clock of the first row */
	int64_t mss;
	int header_bytes;		/* IP and TCP, of a full segment */
	int64_t packets, segments, retransmitted, rtos;
	int64_t gaps, unseen, duplicates, zero_windows, keepalives, dsacks;
	int64_t resent_control;		/* retransmitted SYN and FIN without data */
	int64_t rows, rounds;
	uint8_t host[2][16];		/* addresses, the lower one first */
	const struct ndm_ack_row *row;
	const struct ndm_round_row *round;
};

struct ndm_capture;

struct ndm_capture *ndm_capture_new(uint64_t seed, int keep_rows, int64_t min_segments,
				    int64_t min_rows);
void ndm_capture_drops(struct ndm_capture *c, int64_t n, const uint32_t *seq,
		       const int64_t *at_us, const uint8_t *cause);
/* Room for the next bytes of the file, and the news that they are there. */
uint8_t *ndm_capture_room(struct ndm_capture *c, size_t *n);
int ndm_capture_take(struct ndm_capture *c, size_t n);
/* A packet that somebody else found. */
int ndm_capture_packet(struct ndm_capture *c, int64_t time_ns, uint32_t link,
		       const uint8_t *data, uint32_t caught, uint32_t wire);
/* After the last byte of a pass: packets that wait for an older one. */
int ndm_capture_flush(struct ndm_capture *c);
/* After the first pass: how to read the file; then again in the first pass, if not as it is. */
int ndm_capture_order(const struct ndm_capture *c);
void ndm_capture_again(struct ndm_capture *c, int order);
/* Then: true if connections have another VLAN tag in each direction; then again, with these joined. */
bool ndm_capture_pair(struct ndm_capture *c);
/* Bytes that are left over at the end of the file; 0: it is whole. */
uint64_t ndm_capture_left(const struct ndm_capture *c);
uint64_t ndm_capture_offset(const struct ndm_capture *c);
/* Between the passes: only flows with number % shards == shard are replayed. */
void ndm_capture_second_pass(struct ndm_capture *c, int64_t shard, int64_t shards);
/* After it: true if segments turned out to be smaller than planned, which takes a third one. */
bool ndm_capture_third_pass(struct ndm_capture *c);
void ndm_capture_end(struct ndm_capture *c);
const struct ndm_counters *ndm_capture_counters(const struct ndm_capture *c);
int64_t ndm_capture_flows(const struct ndm_capture *c);
void ndm_capture_flow(const struct ndm_capture *c, int64_t number, struct ndm_flow_info *info);
void ndm_capture_free(struct ndm_capture *c);

#endif
