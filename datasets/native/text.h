/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lines of tcp_probe traces, ss logs and M-Lab archives that have their usual form. Everything else is
 * left to Python, which knows every form and reports errors: C never guesses.
 */
#ifndef NDM_TEXT_H
#define NDM_TEXT_H

#include "names.h"

struct ndm_probe_row {
	double t_s;
	uint32_t snd_nxt, snd_una, cwnd, ssthresh, srtt_us;
	int32_t socket;		/* number of "src dest cookie" in the names */
};

struct ndm_line {		/* a line that is left to Python */
	uint64_t at;		/* its first byte in the chunk */
	uint64_t n;
	uint64_t number;	/* of the line in the chunk, from 0 */
	uint64_t row;		/* rows before it */
};

struct ndm_chunk {
	uint64_t rows, others, lines;
};

/* Room for as many rows and others as the chunk has lines. */
void ndm_probe_lines(const char *text, size_t n, struct ndm_names *sockets,
		     struct ndm_probe_row *row, struct ndm_line *other,
		     struct ndm_chunk *done);

#define NDM_TCP_INFO_BYTES 280

struct ndm_tcp_info_row {
	int64_t time_us;
	int32_t size;		/* of the struct; beyond 280 bytes it is cut */
	int32_t cc;		/* number of the congestion control; -1: not said */
	uint8_t info[NDM_TCP_INFO_BYTES];
};

/* Room as for ndm_probe_lines. */
void ndm_tcp_info_lines(const char *text, size_t n, struct ndm_names *ccs,
			struct ndm_tcp_info_row *row, struct ndm_line *other,
			struct ndm_chunk *done);

struct ndm_ss_row {
	int64_t line;		/* in the chunk, from 0 */
	int64_t time_us;	/* -1: no time stamp */
	int64_t cwnd, srtt_us, rttvar_us, min_rtt_us, ssthresh, delivered, bytes_acked;
	int64_t retransmitted, inflight, delivery_rate_bps, app_limited, ca_state;
	int64_t rwnd_limited_us, mss;
	int64_t window_scale;	/* of the receiver; 0: none */
	int64_t at, n;		/* the record's bytes in the chunk, if it is left to Python */
	int32_t ends;		/* number of "local remote"; -1: left to Python */
	int32_t cc;		/* number of the congestion control; -1: not said */
};

struct ndm_ss_chunk {
	int64_t time_us;	/* the newest time stamp, from chunk to chunk; -1: none yet */
	uint64_t rows, lines, not_open, no_window;
};

/* The chunk ends with a whole record. */
void ndm_ss_lines(const char *text, size_t n, struct ndm_names *ends, struct ndm_names *ccs,
		  struct ndm_ss_row *row, struct ndm_ss_chunk *done);

#endif
