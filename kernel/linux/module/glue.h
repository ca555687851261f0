/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FH_GLUE_H
#define FH_GLUE_H

#include <linux/types.h>

/* A panic of the Rust side: prints the place, and BUG(). */
void fh_bug(const char *file, size_t len, u32 line) __noreturn;

/* The last pin has ended, and the scheduler wants the CPU. */
void fh_preempt_schedule(void);

#endif
