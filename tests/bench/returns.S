/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a kernel returns that guards against speculation in returns (SRSO): every function's
 * return jumps here (-mfunction-return=thunk-extern), and a module's functions, too.
 */
	.text
	.balign 64
safe_return:
	lea	8(%rsp), %rsp
	ret
	int3
	.globl	__x86_return_thunk
__x86_return_thunk:
	call	safe_return
	ud2

	.section .note.GNU-stack, "", @progbits
