/* SPDX-License-Identifier: GPL-2.0-only */
/* libFuzzer over datasets/native: the first byte chooses the reader, the rest is its file. */
#include <stdio.h>

#include "datasets/native/capture.h"
#include "datasets/native/text.h"

#define MIN_SEGMENTS 4
#define MIN_ROWS 1

/* In small pieces too, so that records are torn between them. */
static int one_pass(struct ndm_capture *c, const uint8_t *data, size_t n, size_t piece)
{
	int status = 0;

	while (n && !status) {
		size_t room, take;
		uint8_t *to = ndm_capture_room(c, &room);

		take = n < piece ? n : piece;
		take = take < room ? take : room;
		if (!take)
			__builtin_trap();
		memcpy(to, data, take);
		data += take;
		n -= take;
		status = ndm_capture_take(c, take);
	}
	if (status == NDM_FILE_OK || status == NDM_FILE_END)
		ndm_capture_flush(c);
	return status;
}

static void check(const struct ndm_capture *c, int64_t number, bool rows)
{
	struct ndm_flow_info info;
	int64_t i;

	ndm_capture_flow(c, number, &info);
	if (info.status != NDM_FLOW_REPLAYED)
		return;
	if (info.mss < 1 || info.retransmitted > info.segments || info.rows < MIN_ROWS)
		__builtin_trap();
	for (i = 0; !rows && i < info.rounds; i++) {
		const struct ndm_round_row *r = &info.round[i];

		if (!r->valid && r->x[0])
			__builtin_trap();
	}
	if (rows && info.rows && !info.row)
		__builtin_trap();
}

static void capture(const uint8_t *data, size_t n, bool rows, size_t piece)
{
	static const uint32_t seq[] = { 1, 1000, 1000, 5000 };
	static const int64_t at_us[] = { 0, 1, 2, 3 };
	static const uint8_t cause[] = { 2, 3, 2, 3 };
	struct ndm_capture *c = ndm_capture_new(1, rows, MIN_SEGMENTS, MIN_ROWS);
	int64_t i;

	if (!c)
		return;
	ndm_capture_drops(c, rows ? 4 : -1, seq, at_us, cause);
	one_pass(c, data, n, piece);
	if (ndm_capture_order(c)) {
		ndm_capture_again(c, ndm_capture_order(c));
		one_pass(c, data, n, piece);
	}
	if (ndm_capture_pair(c)) {
		ndm_capture_again(c, ndm_capture_order(c));
		one_pass(c, data, n, piece);
	}
	ndm_capture_left(c);
	ndm_capture_second_pass(c, 0, rows ? 1 : 2);
	one_pass(c, data, n, piece);
	if (ndm_capture_third_pass(c))
		one_pass(c, data, n, piece);
	ndm_capture_end(c);
	for (i = 0; i < ndm_capture_flows(c); i++)
		check(c, i, rows);
	ndm_capture_free(c);
}

static void text(const uint8_t *data, size_t n, int kind)
{
	size_t room = 2, i;
	struct ndm_names *a = ndm_names_new(1), *b = ndm_names_new(2);
	char *exact = malloc(n ? n : 1);
	struct ndm_chunk done;
	struct ndm_ss_chunk ss = { .time_us = -1 };
	struct ndm_line *other;
	void *rows;

	memcpy(exact, data, n); /* no byte behind it, so that ASan sees one read too many */
	for (i = 0; i < n; i++)
		room += data[i] == '\n';
	other = malloc(room * sizeof(*other));
	rows = malloc(room * (kind == 2 ? sizeof(struct ndm_probe_row) :
			      kind == 3 ? sizeof(struct ndm_ss_row) :
					  sizeof(struct ndm_tcp_info_row)));
	if (kind == 2)
		ndm_probe_lines(exact, n, a, rows, other, &done);
	else if (kind == 3)
		ndm_ss_lines(exact, n, a, b, rows, &ss);
	else
		ndm_tcp_info_lines(exact, n, a, rows, other, &done);
	free(rows);
	free(other);
	free(exact);
	ndm_names_free(a);
	ndm_names_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!n)
		return 0;
	if (data[0] % 5 < 2)
		capture(data + 1, n - 1, data[0] % 5, data[0] < 128 ? 1 << 20 : 97);
	else
		text(data + 1, n - 1, data[0] % 5);
	return 0;
}
