/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FH_GLUE_H
#define FH_GLUE_H

#include <linux/types.h>

/* A panic of the Rust side: prints the place, and BUG(). */
void fh_bug(const char *file, size_t len, u32 line) __noreturn;

/* The last pin has ended, and the scheduler wants the CPU. */
void fh_preempt_schedule(void);

/* Figures and text go to a struct seq_file, or text to the log if there is none. */
void fh_emit(void *sink, const char *name, size_t len, u64 value);
void fh_say(void *sink, const char *text, size_t len);

#endif
