/* SPDX-License-Identifier: GPL-2.0-only */
/* What Python calls (src/ndm_tcp/core_build.py gives it to cffi); explained in capture.h. */
struct ndm_counters {
	uint64_t packets, not_tcp, cut_headers, fragments, duplicates, bad_times;
	uint64_t tunnelled, moved, clock_steps, other_links;
	uint32_t bad_link_type;
	...;
};
struct ndm_flow_info {
	int status, family, forward, sender_port, receiver_port, handshake;
	int64_t first_us, mss, packets, segments, retransmitted, rtos;
	int64_t gaps, unseen, duplicates, zero_windows, keepalives, resent_control;
	int64_t rows, rounds;
	uint8_t host[2][16];
	const struct ndm_ack_row *row;
	const struct ndm_round_row *round;
	...;
};
struct ndm_ack_row { ...; };
struct ndm_round_row { ...; };
struct ndm_ack { ...; };
struct ndm_capture;
struct ndm_capture *ndm_capture_new(uint64_t seed, int keep_rows, int64_t min_segments,
				    int64_t min_rows);
void ndm_capture_drops(struct ndm_capture *c, int64_t n, const uint32_t *seq,
		       const int64_t *at_us, const uint8_t *cause);
uint8_t *ndm_capture_room(struct ndm_capture *c, size_t *n);
int ndm_capture_take(struct ndm_capture *c, size_t n);
int ndm_capture_packet(struct ndm_capture *c, int64_t time_ns, uint32_t link,
		       const uint8_t *data, uint32_t caught, uint32_t wire);
int ndm_capture_flush(struct ndm_capture *c);
int ndm_capture_order(const struct ndm_capture *c);
void ndm_capture_again(struct ndm_capture *c, int order);
uint64_t ndm_capture_left(const struct ndm_capture *c);
uint64_t ndm_capture_offset(const struct ndm_capture *c);
void ndm_capture_second_pass(struct ndm_capture *c, int64_t shard, int64_t shards);
void ndm_capture_end(struct ndm_capture *c);
const struct ndm_counters *ndm_capture_counters(const struct ndm_capture *c);
int64_t ndm_capture_flows(const struct ndm_capture *c);
void ndm_capture_flow(const struct ndm_capture *c, int64_t number, struct ndm_flow_info *info);
void ndm_capture_free(struct ndm_capture *c);
int64_t ndm_rounds_of(const struct ndm_ack *ack, int64_t n, const uint8_t *cause,
		      const uint8_t *rwnd_limited, struct ndm_round_row *row);

struct ndm_names;
struct ndm_names *ndm_names_new(uint64_t seed);
int32_t ndm_names_count(const struct ndm_names *s);
const char *ndm_names_text(const struct ndm_names *s, int32_t number, size_t *n);
void ndm_names_free(struct ndm_names *s);
struct ndm_probe_row { ...; };
struct ndm_line { ...; };
struct ndm_chunk { uint64_t rows, others, lines; };
void ndm_probe_lines(const char *text, size_t n, struct ndm_names *sockets,
		     struct ndm_probe_row *row, struct ndm_line *other,
		     struct ndm_chunk *done);
struct ndm_tcp_info_row { ...; };
void ndm_tcp_info_lines(const char *text, size_t n, struct ndm_names *ccs,
			struct ndm_tcp_info_row *row, struct ndm_line *other,
			struct ndm_chunk *done);
struct ndm_ss_row { ...; };
struct ndm_ss_chunk {
	int64_t time_us;
	uint64_t rows, lines, not_open, no_window;
};
void ndm_ss_lines(const char *text, size_t n, struct ndm_names *ends, struct ndm_names *ccs,
		  struct ndm_ss_row *row, struct ndm_ss_chunk *done);
