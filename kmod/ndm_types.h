/* SPDX-License-Identifier: GPL-2.0-only */
/* The few types and helpers that kernel and user space name differently. */
#ifndef _NDM_TYPES_H
#define _NDM_TYPES_H

#if defined(__bpf__)

#include <ndm_bpf_types.h>	/* NDM_RARE and NDM_COMMON, too */

static inline u64 ndm_div(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}

/* BPF has no instruction for it. */
static inline u32 ndm_bit_length(u32 x)
{
	u32 n = 0, step;

	for (step = 16; step; step >>= 1) {
		if (!(x >> step))
			continue;
		x >>= step;
		n += step;
	}
	return n + x;
}

/* Of weights that it has as constants the compiler knows a sum's range; the verifier does not. */
static inline u32 ndm_unknown(u32 value)
{
	asm volatile("" : "+r"(value));
	return value;
}

/* An index that is at most `most`: only the verifier does not know. */
static inline u32 ndm_known(u32 index, u32 most)
{
	index = ndm_unknown(index);
	/* And again, or the compiler compares a copy of it. */
	return ndm_unknown(index > most ? most : index);
}

#elif defined(__KERNEL__)

#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/types.h>

#define NDM_RARE	noinline	/* not worth the registers where it is called */
#define NDM_COMMON	__always_inline	/* every ACK's, and the layers */

static inline u64 ndm_div(u64 dividend, u64 divisor)
{
	return div64_u64(dividend, divisor);
}

static inline u32 ndm_bit_length(u32 x)
{
	return fls(x);
}

static inline u32 ndm_unknown(u32 value)
{
	return value;
}

/* An index that is at most `most`; BPF must prove it. */
static inline u32 ndm_known(u32 index, u32 most)
{
	return index;
}

#else

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#define NDM_RARE	__attribute__((noinline))
#ifndef NDM_COMMON
#define NDM_COMMON	inline
#endif

static inline u64 ndm_div(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}

static inline u32 ndm_bit_length(u32 x)
{
	return x ? 32 - (u32)__builtin_clz(x) : 0;
}

static inline u32 ndm_unknown(u32 value)
{
	return value;
}

/* An index that is at most `most`; BPF must prove it. */
static inline u32 ndm_known(u32 index, u32 most)
{
	(void)most;
	return index;
}

#endif

/* Written before it is read: a kernel that clears its stack frames need not clear this. */
#if __has_attribute(uninitialized)
#define NDM_SCRATCH	__attribute__((uninitialized))
#else
#define NDM_SCRATCH
#endif

/*
 * A partial sum, in its order: clang for BPF would compute all products of a row first, and
 * spill them.
 */
#if defined(__bpf__)
static inline u64 ndm_so_far(u64 sum)
{
	asm volatile("" : "+r"(sum));
	return sum;
}
#else
static inline u64 ndm_so_far(u64 sum)
{
	return sum;
}
#endif

static inline u32 ndm_min(u32 a, u32 b)
{
	return a < b ? a : b;
}

static inline u32 ndm_max(u32 a, u32 b)
{
	return a > b ? a : b;
}

/* True if sequence number or packet count a precedes b, modulo 2^32. */
static inline bool ndm_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

#endif /* _NDM_TYPES_H */
