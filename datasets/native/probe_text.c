/* SPDX-License-Identifier: GPL-2.0-only */
#define _GNU_SOURCE
#include "text_scan.h"

static bool take_value(struct span *s, struct span *value)
{
	value->p = s->p;
	while (s->p < s->end && *s->p != ' ')
		s->p++;
	value->end = s->p;
	return value->end > value->p && s->p < s->end && *s->p++ == ' ';
}

static bool take_u32(struct span *s, uint32_t *value)
{
	int64_t wide;

	if (!take_int(s, &wide) || wide > UINT32_MAX)
		return false;
	*value = (uint32_t)wide;
	return s->p == s->end || *s->p == ' ';
}

static bool take_hex(struct span *s, uint32_t *value)
{
	const char *first;

	if (!TAKE(s, "0x"))
		return false;
	*value = 0;
	for (first = s->p; s->p < s->end && *s->p != ' '; s->p++) {
		char c = *s->p;
		int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (digit < 0 || s->p - first == 8)
			return false;
		*value = *value << 4 | (uint32_t)digit;
	}
	return s->p > first;
}

static bool is_word(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* "address:port" as the kernel prints it. */
static bool is_endpoint(struct span s)
{
	const char *colon = memrchr(s.p, ':', (size_t)(s.end - s.p));

	if (!colon || colon == s.p || s.end - colon < 2 || s.end - colon > 6)
		return false;
	while (++colon < s.end)
		if (!is_digit(*colon))
			return false;
	return s.end - s.p < 64;
}

/* "src dest cookie" distinguishes one socket from another. */
static int32_t socket_number(struct ndm_names *sockets, struct span src, struct span dest,
			     struct span cookie)
{
	char text[192];
	size_t a = (size_t)(src.end - src.p), b = (size_t)(dest.end - dest.p);
	size_t c = (size_t)(cookie.end - cookie.p);

	if (c > 32)
		return -1;
	memcpy(text, src.p, a);
	text[a] = ' ';
	memcpy(text + a + 1, dest.p, b);
	text[a + b + 1] = ' ';
	memcpy(text + a + b + 2, cookie.p, c);
	return ndm_names_number(sockets, text, a + b + c + 2);
}

static bool parse(struct span line, struct ndm_names *sockets, void *to)
{
	struct ndm_probe_row *row = to;
	const char *name = memmem(line.p, (size_t)(line.end - line.p), "tcp_probe: ", 11);
	const char *event = name;
	struct span s, src, dest, skipped, time, cookie = { "", "" };
	uint32_t unused;

	if (!name || !is_plain(line))
		return false;
	if (name - line.p >= 4 && !memcmp(name - 4, "tcp:", 4))
		event -= 4;
	while (event > line.p && event[-1] == ' ') /* perf script pads names to the longest */
		event--;
	if (event == name || event == line.p || *--event != ':')
		return false;
	for (time.p = event; time.p > line.p && (is_digit(time.p[-1]) || time.p[-1] == '.');)
		time.p--;
	time.end = event;
	if (!memchr(time.p, '.', (size_t)(event - time.p)) || !take_decimal(&time, &row->t_s) ||
	    time.p != time.end)
		return false;
	s = (struct span){ name + 11, line.end };
	while (s.p < s.end && *s.p == ' ') /* trace-cmd pads behind them */
		s.p++;
	if (TAKE(&s, "family=") && !take_value(&s, &skipped))
		return false;
	if (!TAKE(&s, "src=") || !take_value(&s, &src) || !TAKE(&s, "dest=") ||
	    !take_value(&s, &dest) || !TAKE(&s, "mark=") || !take_value(&s, &skipped) ||
	    !(TAKE(&s, "data_len=") || TAKE(&s, "length=")) || !take_value(&s, &skipped) ||
	    !TAKE(&s, "snd_nxt=") || !take_hex(&s, &row->snd_nxt) ||
	    !TAKE(&s, " snd_una=") || !take_hex(&s, &row->snd_una) ||
	    !TAKE(&s, " snd_cwnd=") || !take_u32(&s, &row->cwnd) ||
	    !TAKE(&s, " ssthresh=") || !take_u32(&s, &row->ssthresh) ||
	    !TAKE(&s, " snd_wnd=") || !take_u32(&s, &unused) ||
	    !TAKE(&s, " srtt=") || !take_u32(&s, &row->srtt_us) ||
	    !TAKE(&s, " rcv_wnd=") || !take_u32(&s, &unused))
		return false;
	if (TAKE(&s, " sock_cookie=")) {
		cookie.p = s.p;
		while (s.p < s.end && is_word(*s.p))
			s.p++;
		cookie.end = s.p;
		if (cookie.p == cookie.end || (s.p < s.end && *s.p != ' '))
			return false;
	} else if (s.p < s.end) {
		return false;
	}
	if (!is_endpoint(src) || !is_endpoint(dest))
		return false;
	row->socket = socket_number(sockets, src, dest, cookie);
	return row->socket >= 0;
}

void ndm_probe_lines(const char *text, size_t n, struct ndm_names *sockets,
		     struct ndm_probe_row *row, struct ndm_line *other,
		     struct ndm_chunk *done)
{
	scan_lines(text, n, parse, sockets, row, sizeof(*row), other, done);
}
