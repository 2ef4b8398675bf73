/* SPDX-License-Identifier: GPL-2.0-only */
/* Numbers and words in a line. An unusual form is refused. */
#ifndef NDM_TEXT_SCAN_H
#define NDM_TEXT_SCAN_H

#include "text.h"

struct span {
	const char *p;
	const char *end;
};

static inline bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static inline bool starts(struct span s, const char *word, size_t n)
{
	return (size_t)(s.end - s.p) >= n && !memcmp(s.p, word, n);
}

#define STARTS(s, word) starts(s, word, sizeof(word) - 1)

static inline bool take_text(struct span *s, const char *word, size_t n)
{
	if (!starts(*s, word, n))
		return false;
	s->p += n;
	return true;
}

#define TAKE(s, word) take_text(s, word, sizeof(word) - 1)

/* At most 15 digits, so that the value is exact in a double. */
static inline bool take_digits(struct span *s, int64_t *value, int *digits)
{
	const char *first = s->p;

	while (s->p < s->end && is_digit(*s->p)) {
		if (*digits == 15)
			return false;
		*value = *value * 10 + (*s->p++ - '0');
		++*digits;
	}
	return s->p > first;
}

static inline bool take_int(struct span *s, int64_t *value)
{
	int digits = 0;

	*value = 0;
	return take_digits(s, value, &digits);
}

/* digits[.digits], rounded as strtod does: one division of exact numbers. */
static inline bool take_decimal(struct span *s, double *value)
{
	static const double power[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7,
					1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
	int64_t n = 0;
	int digits = 0, whole;

	if (!take_digits(s, &n, &digits))
		return false;
	whole = digits;
	if (s->p < s->end && *s->p == '.') {
		s->p++;
		if (!take_digits(s, &n, &digits))
			return false;
	}
	*value = (double)n / power[digits - whole];
	return true;
}

/* The next word between blanks; false at the end. */
static inline bool take_word(struct span *s, struct span *word)
{
	while (s->p < s->end && (is_blank(*s->p) || *s->p == '\n'))
		s->p++;
	word->p = s->p;
	while (s->p < s->end && !is_blank(*s->p) && *s->p != '\n')
		s->p++;
	word->end = s->p;
	return word->end > word->p;
}

/* Printable ASCII, blanks and line ends only. */
static inline bool is_plain(struct span s)
{
	for (; s.p < s.end; s.p++)
		if ((unsigned char)*s.p - 32u >= 95u && *s.p != '\t' && *s.p != '\n')
			return false;
	return true;
}

typedef bool (*line_parser)(struct span line, struct ndm_names *names, void *row);

/* Every line of a chunk to a row of `size` bytes, or to the others. */
static inline void scan_lines(const char *text, size_t n, line_parser parse,
			      struct ndm_names *names, void *rows, size_t size,
			      struct ndm_line *other, struct ndm_chunk *done)
{
	const char *p = text, *end = text + n;

	memset(done, 0, sizeof(*done));
	while (p < end) {
		const char *next = memchr(p, '\n', (size_t)(end - p));
		struct span line = { p, next ? next : end };

		if (parse(line, names, (char *)rows + done->rows * size))
			done->rows++;
		else if (line.end > line.p)
			other[done->others++] = (struct ndm_line){
				(uint64_t)(p - text), (uint64_t)(line.end - p), done->lines,
				done->rows };
		done->lines++;
		p = next ? next + 1 : end;
	}
}

#endif
