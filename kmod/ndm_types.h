/* SPDX-License-Identifier: GPL-2.0-only */
/* The few types and helpers that kernel and user space name differently. */
#ifndef _NDM_TYPES_H
#define _NDM_TYPES_H

#if defined(__bpf__)

#include <ndm_bpf_types.h>	/* NDM_RARE and NDM_COMMON, too */

/*
 * From here on the compiler knows nothing of this variable. It may know a sum's range, from
 * weights that are constants, and leave out a comparison that the verifier needs.
 */
#define NDM_HIDE(variable)	({ asm volatile("" : "+r"(variable)); })

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

/* An index that is at most `most`: only the verifier does not know. */
static inline u32 ndm_known(u32 index, u32 most)
{
	if (index > most)
		index = most;
	/* Or the compiler compares a copy of it. */
	NDM_HIDE(index);
	return index;
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
#define NDM_HIDE(variable)	((void)(variable))	/* from a compiler for BPF */

static inline u64 ndm_div(u64 dividend, u64 divisor)
{
	return div64_u64(dividend, divisor);
}

static inline u32 ndm_bit_length(u32 x)
{
	return fls(x);
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
#define NDM_HIDE(variable)	((void)(variable))

static inline u64 ndm_div(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}

static inline u32 ndm_bit_length(u32 x)
{
	return x ? 32 - (u32)__builtin_clz(x) : 0;
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
static inline u64 ndm_so_far(u64 sum)
{
	NDM_HIDE(sum);
	return sum;
}

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
