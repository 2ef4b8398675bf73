/* SPDX-License-Identifier: GPL-2.0-only */
#include "order.h"

static bool before(const struct ndm_waiting *a, const struct ndm_waiting *b)
{
	if (a->segment.time_ns != b->segment.time_ns)
		return a->segment.time_ns < b->segment.time_ns;
	return a->number < b->number;
}

bool ndm_window_put(struct ndm_window *w, const struct ndm_segment *s)
{
	struct ndm_waiting new = { *s, w->number++, { 0 } };
	size_t i, up;

	/* One more than the window: the record got last keeps its place until the next put. */
	if (!w->at)
		w->at = malloc((NDM_WINDOW + 1) * sizeof(*w->at));
	if (!w->at)
		return false;
	memcpy(new.options, s->options, s->option_bytes);
	for (i = w->n++; i; i = up) {
		up = (i - 1) / 2;
		if (!before(&new, &w->at[up]))
			break;
		w->at[i] = w->at[up];
	}
	w->at[i] = new;
	return true;
}

void ndm_window_get(struct ndm_window *w, struct ndm_segment *s)
{
	struct ndm_waiting oldest = w->at[0], last = w->at[--w->n];
	size_t i = 0, down;

	for (down = 1; down < w->n; down = 2 * i + 1) {
		if (down + 1 < w->n && before(&w->at[down + 1], &w->at[down]))
			down++;
		if (!before(&w->at[down], &last))
			break;
		w->at[i] = w->at[down];
		i = down;
	}
	if (w->n)
		w->at[i] = last;
	w->at[w->n] = oldest;
	*s = oldest.segment;
	s->options = w->at[w->n].options;
}

void ndm_window_free(struct ndm_window *w)
{
	free(w->at);
	memset(w, 0, sizeof(*w));
}
