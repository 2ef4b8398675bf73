/* SPDX-License-Identifier: GPL-2.0-only */
#include "text_scan.h"

static bool two(struct span *s, int64_t *value)
{
	if (s->end - s->p < 2 || !is_digit(s->p[0]) || !is_digit(s->p[1]))
		return false;
	*value = (s->p[0] - '0') * 10 + s->p[1] - '0';
	s->p += 2;
	return true;
}

/* Days from 1970-01-01 in the Gregorian calendar. */
static int64_t days(int64_t year, int64_t month, int64_t day)
{
	int64_t y = year - (month <= 2), era = y / 400, of_era = y % 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* 2019-07-01T00:00:12.092Z, up to nine digits behind the point. */
static bool take_time(struct span *s, int64_t *time_us)
{
	static const int64_t last[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int64_t century, year, month, day, hour, minute, second, us = 0;
	int digits = 0;

	if (!two(s, &century) || !two(s, &year) || !TAKE(s, "-") || !two(s, &month) ||
	    !TAKE(s, "-") || !two(s, &day) || !TAKE(s, "T") || !two(s, &hour) || !TAKE(s, ":") ||
	    !two(s, &minute) || !TAKE(s, ":") || !two(s, &second))
		return false;
	year += century * 100;
	if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || hour > 23 ||
	    minute > 59 || second > 59 ||
	    day > last[month - 1] + (month == 2 && year % 4 == 0 && (year % 100 || year % 400 == 0)))
		return false;
	if (TAKE(s, ".")) {
		for (; s->p < s->end && is_digit(*s->p); s->p++, digits++)
			if (digits < 6)
				us = us * 10 + *s->p - '0';
		if (!digits || digits > 9)
			return false;
		for (; digits < 6; digits++)
			us *= 10;
	}
	*time_us = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60000000LL +
		   second * 1000000 + us;
	return TAKE(s, "Z");
}

/* Value + 1 of each base64 digit; 0: none. */
static const uint8_t DIGIT[256] = {
	['A'] = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
	24, 25, 26,
	['a'] = 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
	48, 49, 50, 51, 52,
	['0'] = 53, 54, 55, 56, 57, 58, 59, 60, 61, 62,
	['+'] = 63, ['/'] = 64,
};

/* A quoted base64 text; at most `room` of its bytes are kept. False: not quite base64. */
static bool take_base64(struct span *s, uint8_t *out, int32_t room, int32_t *size)
{
	const uint8_t *p = (const uint8_t *)s->p + 1, *end = (const uint8_t *)s->end;
	int32_t n = 0;
	int k, pad = 0;

	if (!TAKE(s, "\""))
		return false;
	for (; end - p >= 4 && *p != '"'; p += 4) {
		uint32_t a = DIGIT[p[0]], b = DIGIT[p[1]], c = DIGIT[p[2]], d = DIGIT[p[3]], word;

		if (pad || !a || !b)
			return false;
		if (!d && p[3] == '=') {
			d = pad = 1;
			if (!c && p[2] == '=')
				c = 1, pad = 2;
		}
		if (!c || !d)
			return false;
		word = (a - 1) << 18 | (b - 1) << 12 | (c - 1) << 6 | (d - 1);
		if (n + 3 <= room) {
			out[n] = (uint8_t)(word >> 16);
			out[n + 1] = (uint8_t)(word >> 8);
			out[n + 2] = (uint8_t)word;
		} else {
			for (k = 0; k < 3 - pad && n + k < room; k++)
				out[n + k] = (uint8_t)(word >> (16 - 8 * k));
		}
		n += 3 - pad;
	}
	*size = n;
	s->p = (const char *)p;
	return TAKE(s, "\"");
}

static bool take_attribute(struct span *s, uint8_t *out, int32_t room, int32_t *size)
{
	*size = 0;
	return TAKE(s, "null") || take_base64(s, out, room, size);
}

static bool parse(struct span s, struct ndm_names *ccs, void *to)
{
	struct ndm_tcp_info_row *row = to;
	int32_t size, number;
	uint8_t name[32];

	memset(row, 0, sizeof(*row));
	row->cc = -1;
	if (!TAKE(&s, "{\"Timestamp\":\"") || !take_time(&s, &row->time_us) ||
	    !TAKE(&s, "\",\"RawIDM\":") || !take_base64(&s, NULL, 0, &size) ||
	    !TAKE(&s, ",\"Attributes\":["))
		return false;
	for (number = 0;; number++) {
		bool good;

		if (number == 2)
			good = take_base64(&s, row->info, NDM_TCP_INFO_BYTES, &row->size);
		else if (number == 4)
			good = take_attribute(&s, name, sizeof(name), &size);
		else
			good = take_attribute(&s, NULL, 0, &size);
		if (!good)
			return false;
		if (number == 4 && size) {
			if (size > (int32_t)sizeof(name))
				return false;
			while (size && !name[size - 1])
				size--;
			if (!is_plain((struct span){ (char *)name, (char *)name + size }))
				return false;
			row->cc = size ? ndm_names_number(ccs, (char *)name, (size_t)size) : -1;
		}
		if (TAKE(&s, "]"))
			break;
		if (!TAKE(&s, ","))
			return false;
	}
	return number >= 2 && row->size >= 104 && TAKE(&s, "}") && s.p == s.end;
}

void ndm_tcp_info_lines(const char *text, size_t n, struct ndm_names *ccs,
			struct ndm_tcp_info_row *row, struct ndm_line *other,
			struct ndm_chunk *done)
{
	scan_lines(text, n, parse, ccs, row, sizeof(*row), other, done);
}
