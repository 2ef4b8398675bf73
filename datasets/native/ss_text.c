/* SPDX-License-Identifier: GPL-2.0-only */
#define _GNU_SOURCE
#include <math.h>

#include "text.h"
#include "text_scan.h"

#define INITIAL_SSTHRESH 0x7FFFFFFF

static const char *const KNOWN[] = {
	"wscale", "rto", "backoff", "rtt", "ato", "qack", "bidir", "mss", "pmtu", "rcvmss",
	"advmss", "cwnd", "ssthresh", "bytes_sent", "bytes_retrans", "bytes_acked",
	"bytes_received", "segs_out", "segs_in", "data_segs_out", "data_segs_in", "lastsnd",
	"lastrcv", "lastack", "busy", "rwnd_limited", "sndbuf_limited", "unacked", "retrans",
	"lost", "sacked", "dsack_dups", "reordering", "reord_seen", "rcv_rtt", "rcv_space",
	"rcv_ssthresh", "notsent", "minrtt", "rcv_ooopack", "snd_wnd", "rcv_wnd", "rehash",
	"delivered", "delivered_ce", "fackets", "timer", "uid", "ino", "sk", "cgroup", "skmem",
	"bbr", "dctcp", "vegas",
};
static const char *const FLAG[] = { "ts", "sack", "ecn", "ecnseen", "usec_ts", "fastopen",
				    "<->", "-->", "<--" };
static const char *const CLOSED[] = { "SYN-SENT", "SYN-RECV", "LISTEN", "TIME-WAIT", "UNCONN" };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool equal(struct span s, const char *word)
{
	size_t n = (size_t)(s.end - s.p);

	return !strncmp(s.p, word, n) && !word[n];
}

static bool among(struct span s, const char *const *words, size_t n)
{
	while (n--)
		if (words[n][0] == *s.p && equal(s, words[n]))
			return true;
	return false;
}

static bool whole_int(struct span s, int64_t *value)
{
	return take_int(&s, value) && s.p == s.end;
}

static bool ms_to_us(struct span s, int64_t *value)
{
	double ms;

	if (!take_decimal(&s, &ms))
		return false;
	if (STARTS(s, "ms"))
		s.p += 2;
	*value = (int64_t)nearbyint(ms * 1000);
	return s.p == s.end;
}

static bool rate(struct span s, int64_t *value)
{
	static const char unit[] = "KkMGT";
	static const double times[] = { 1e3, 1e3, 1e6, 1e9, 1e12 };
	const char *at;
	double bps;

	if (!take_decimal(&s, &bps) || s.p == s.end)
		return false;
	at = *s.p ? strchr(unit, *s.p) : NULL;
	if (at) {
		bps *= times[at - unit];
		s.p++;
	}
	if (bps > 1e18)
		return false;
	*value = (int64_t)nearbyint(bps);
	return s.end - s.p == 3 && !memcmp(s.p, "bps", 3);
}

struct fields {
	int64_t backoff, lost, sacked, resending, unacked;
	bool window, closed;
};

static bool halves(struct span s, char between, struct span *left, struct span *right)
{
	const char *at = memchr(s.p, between, (size_t)(s.end - s.p));

	if (!at)
		return false;
	*left = (struct span){ s.p, at };
	*right = (struct span){ at + 1, s.end };
	return true;
}

/* One key:value; false if the value has an unusual form or the key is unknown. */
static bool take_field(struct span key, struct span value, struct fields *f,
		       struct ndm_ss_row *row)
{
	struct span left, right;

#define KEY(word) ((size_t)(key.end - key.p) == sizeof(word) - 1 && \
		   !memcmp(key.p, word, sizeof(word) - 1))
	switch (*key.p) {
	case 'b':
		if (KEY("bytes_acked"))
			return whole_int(value, &row->bytes_acked);
		if (KEY("backoff"))
			return whole_int(value, &f->backoff);
		break;
	case 'c':
		if (KEY("cwnd"))
			return f->window = whole_int(value, &row->cwnd);
		break;
	case 'd':
		if (KEY("delivered"))
			return whole_int(value, &row->delivered);
		break;
	case 'l':
		if (KEY("lost"))
			return whole_int(value, &f->lost);
		break;
	case 'm':
		if (KEY("mss"))
			return whole_int(value, &row->mss);
		if (KEY("minrtt"))
			return ms_to_us(value, &row->min_rtt_us);
		break;
	case 'r':
		if (KEY("rtt"))
			return halves(value, '/', &left, &right) && ms_to_us(left, &row->srtt_us) &&
			       ms_to_us(right, &row->rttvar_us);
		if (KEY("retrans"))
			return halves(value, '/', &left, &right) && whole_int(left, &f->resending) &&
			       whole_int(right, &row->retransmitted);
		if (KEY("rwnd_limited"))
			return ms_to_us(halves(value, '(', &left, &right) ? left : value,
					&row->rwnd_limited_us);
		break;
	case 's':
		if (KEY("ssthresh"))
			return whole_int(value, &row->ssthresh);
		if (KEY("sacked"))
			return whole_int(value, &f->sacked);
		break;
	case 'u':
		if (KEY("unacked"))
			return whole_int(value, &f->unacked);
		break;
	case 'w':
		if (KEY("wscale"))
			return halves(value, ',', &left, &right) &&
			       whole_int(left, &row->window_scale);
		break;
	}
	return among(key, KNOWN, COUNT(KNOWN));
}

static bool is_name(struct span s)
{
	const char *p;

	for (p = s.p; p < s.end; p++)
		if (!(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z') && *p != '_' &&
		    !(is_digit(*p) && p > s.p))
			return false;
	return true;
}

/* The words behind the addresses. */
static bool take_fields(struct span s, struct ndm_names *ccs, struct fields *f,
			struct ndm_ss_row *row)
{
	struct span word;
	bool has_mss = false;

	while (take_word(&s, &word)) {
		const char *colon = memchr(word.p, ':', (size_t)(word.end - word.p));

		if (colon) {
			struct span key = { word.p, colon }, value = { colon + 1, word.end };

			if (colon == word.p || !take_field(key, value, f, row))
				return false;
			has_mss |= equal(key, "mss");
		} else if (equal(word, "delivery_rate")) {
			if (!take_word(&s, &word) || !rate(word, &row->delivery_rate_bps))
				return false;
		} else if (equal(word, "send") || equal(word, "pacing_rate") ||
			   equal(word, "max_pacing_rate")) {
			take_word(&s, &word);
		} else if (equal(word, "app_limited")) {
			row->app_limited = 1;
		} else if (!among(word, FLAG, COUNT(FLAG))) {
			if (row->cc >= 0 || has_mss || !is_name(word))
				return false;
			row->cc = ndm_names_number(ccs, word.p, (size_t)(word.end - word.p));
			if (row->cc < 0)
				return false;
		}
	}
	return true;
}

/* False: left to Python. */
static bool parse(struct span s, struct ndm_names *ends, struct ndm_names *ccs,
		  struct fields *f, struct ndm_ss_row *row)
{
	struct span word, local, all = s;
	char text[256];
	size_t a, b;

	if (!is_plain(all) || memmem(s.p, (size_t)(s.end - s.p), "users:((", 8))
		return false;
	for (;;) {
		if (!take_word(&s, &word))
			return false;
		if (memchr(word.p, ':', (size_t)(word.end - word.p)))
			break;
		f->closed |= among(word, CLOSED, COUNT(CLOSED));
	}
	local = word;
	if (!take_word(&s, &word) || !memchr(word.p, ':', (size_t)(word.end - word.p)))
		return false;
	if (f->closed)
		return true;
	a = (size_t)(local.end - local.p);
	b = (size_t)(word.end - word.p);
	if (a + b + 1 > sizeof(text))
		return false;
	memcpy(text, local.p, a);
	text[a] = ' ';
	memcpy(text + a + 1, word.p, b);
	row->srtt_us = row->rttvar_us = row->min_rtt_us = -1;
	row->delivered = row->bytes_acked = row->delivery_rate_bps = -1;
	row->ssthresh = INITIAL_SSTHRESH;
	if (!take_fields(s, ccs, f, row))
		return false;
	if (!f->window)
		return true;
	row->ca_state = f->backoff ? 4 : f->lost || f->resending ? 3 : f->sacked ? 1 : 0;
	row->inflight = f->unacked - f->sacked - f->lost + f->resending;
	if (row->inflight < 0)
		row->inflight = 0;
	row->ends = ndm_names_number(ends, text, a + b + 1);
	return row->ends >= 0;
}

/* digits[.digits] alone on its line, 9 or 10 before the point: seconds. */
static bool bare_stamp(struct span s, int64_t *time_us)
{
	char text[48];
	size_t n;

	while (s.p < s.end && is_blank(*s.p))
		s.p++;
	while (s.end > s.p && (is_blank(s.end[-1]) || s.end[-1] == '\r'))
		s.end--;
	n = (size_t)(s.end - s.p);
	if (n < 9 || n > 40)
		return false;
	memcpy(text, s.p, n);
	text[n] = 0;
	s = (struct span){ text, text + n };
	while (s.p < s.end && is_digit(*s.p))
		s.p++;
	if (s.p - text < 9 || s.p - text > 10)
		return false;
	if (s.p < s.end) {
		if (*s.p++ != '.' || s.p == s.end)
			return false;
		while (s.p < s.end && is_digit(*s.p))
			s.p++;
		if (s.p < s.end)
			return false;
	}
	*time_us = (int64_t)nearbyint(strtod(text, NULL) * 1e6);
	return true;
}

static bool ends_word(struct span s)
{
	return s.p == s.end || (!is_digit(*s.p) && !(*s.p >= 'a' && *s.p <= 'z') &&
				!(*s.p >= 'A' && *s.p <= 'Z') && *s.p != '_');
}

static void skip_blanks(struct span *s)
{
	while (s->p < s->end && is_blank(*s->p))
		s->p++;
}

/* Time: SECONDS, also before a record; the rest of the line stays in `s`. */
static bool seconds_stamp(struct span *s, int64_t *time_us)
{
	struct span t = *s, number;

	skip_blanks(&t);
	if (!STARTS(t, "Time:"))
		return false;
	t.p += 5;
	skip_blanks(&t);
	for (number.p = t.p; t.p < t.end && is_digit(*t.p);)
		t.p++;
	if (t.end - t.p > 1 && t.p[0] == '.' && is_digit(t.p[1]))
		for (t.p++; t.p < t.end && is_digit(*t.p);)
			t.p++;
	number.end = t.p;
	if (!ends_word(t) || !bare_stamp(number, time_us))
		return false;
	skip_blanks(&t);
	s->p = t.p;
	return true;
}

/* time:NANOSECONDS, likewise. */
static bool named_stamp(struct span *s, int64_t *time_us)
{
	struct span t = *s;
	const char *first;
	uint64_t ns = 0;

	skip_blanks(&t);
	if (!STARTS(t, "time:"))
		return false;
	t.p += 5;
	skip_blanks(&t);
	for (first = t.p; t.p < t.end && is_digit(*t.p) && t.p - first < 19; t.p++)
		ns = ns * 10 + (uint64_t)(*t.p - '0');
	if (t.p - first < 16 || !ends_word(t))
		return false;
	skip_blanks(&t);
	*time_us = (int64_t)(ns / 1000);
	s->p = t.p;
	return true;
}

static bool no_record(struct span s)
{
	const char *p;

	for (p = s.p; p < s.end && (is_blank(*p) || *p == '\r'); p++)
		;
	return p == s.end || *s.p == '#' || STARTS(s, "State") || STARTS(s, "Netid") ||
	       STARTS(s, "Recv-Q");
}

struct pending {
	struct span bytes;
	uint64_t line;
	bool torn;	/* by a line that does not belong to it */
};

static void flush(struct pending *pending, const char *text, struct ndm_names *ends,
		  struct ndm_names *ccs, struct ndm_ss_row *row, struct ndm_ss_chunk *done)
{
	struct ndm_ss_row *now = &row[done->rows];
	struct fields f = { 0 };

	if (!pending->bytes.p)
		return;
	memset(now, 0, sizeof(*now));
	now->ends = now->cc = -1;
	if (pending->torn || !parse(pending->bytes, ends, ccs, &f, now)) {
		now->ends = -1;
		now->at = pending->bytes.p - text;
		now->n = pending->bytes.end - pending->bytes.p;
		done->rows++;
	} else if (f.closed) {
		done->not_open++;
	} else if (!f.window) {
		done->no_window++;
	} else {
		done->rows++;
	}
	now->line = (int64_t)pending->line;
	now->time_us = done->time_us;
	pending->bytes.p = NULL;
}

void ndm_ss_lines(const char *text, size_t n, struct ndm_names *ends, struct ndm_names *ccs,
		  struct ndm_ss_row *row, struct ndm_ss_chunk *done)
{
	const char *p = text, *end = text + n;
	struct pending pending = { { NULL, NULL }, 0, false };
	bool skipped = false;
	int64_t time_us;

	done->rows = done->lines = done->not_open = done->no_window = 0;
	for (; p < end; done->lines++) {
		const char *next = memchr(p, '\n', (size_t)(end - p));
		struct span line = { p, next ? next : end };

		p = next ? next + 1 : end;
		if (bare_stamp(line, &time_us)) {
			flush(&pending, text, ends, ccs, row, done);
			done->time_us = time_us;
			continue;
		}
		if (named_stamp(&line, &time_us) || seconds_stamp(&line, &time_us)) {
			flush(&pending, text, ends, ccs, row, done);
			done->time_us = time_us;
		}
		if (no_record(line)) {
			skipped = true;
			continue;
		}
		if (!(is_blank(*line.p) && pending.bytes.p)) {
			flush(&pending, text, ends, ccs, row, done);
			pending.bytes.p = line.p;
			pending.line = done->lines;
			pending.torn = skipped = false;
		}
		pending.torn |= skipped;
		pending.bytes.end = line.end;
	}
	flush(&pending, text, ends, ccs, row, done);
}
