/* SPDX-License-Identifier: GPL-2.0-only */
/* Strings to small numbers, in order of their first appearance. */
#ifndef NDM_NAMES_H
#define NDM_NAMES_H

#include "bytes.h"

struct ndm_names;

struct ndm_names *ndm_names_new(uint64_t seed);
/* -1: out of memory. */
int32_t ndm_names_number(struct ndm_names *s, const char *text, size_t n);
int32_t ndm_names_count(const struct ndm_names *s);
const char *ndm_names_text(const struct ndm_names *s, int32_t number, size_t *n);
void ndm_names_free(struct ndm_names *s);

#endif
