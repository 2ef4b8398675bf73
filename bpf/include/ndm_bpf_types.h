/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's names of types for BPF, whose compiler has no headers. */
#ifndef _NDM_BPF_TYPES_H
#define _NDM_BPF_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

/* What bpf/bpf_helpers.h expects. */
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

typedef _Bool bool;
#define true	1
#define false	0
#define NULL	((void *)0)
#define static_assert	_Static_assert

/* Of linux/bpf.h, which needs a folder that differs between architectures. */
enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
};

#define NDM_RARE	__attribute__((noinline))
#define NDM_COMMON	inline __attribute__((always_inline))

/* Small constant sizes become loads and stores. */
#define memset	__builtin_memset
#define memcpy	__builtin_memcpy

#endif /* _NDM_BPF_TYPES_H */
