// SPDX-License-Identifier: MIT OR Apache-2.0
/* What the Rust side calls, and what it takes for granted of this kernel. */
#define pr_fmt(fmt) "freehold: " fmt

#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/export.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/seq_file.h>
#include <linux/smp.h>

#include "glue.h"

#ifdef FH_PCPU_HOT
static_assert(offsetof(struct pcpu_hot, preempt_count) == 8);
static_assert(offsetof(struct pcpu_hot, cpu_number) == 12);
#endif

/* A pin is preempt_disable, which must be more than a barrier. */
static_assert(IS_ENABLED(CONFIG_PREEMPT_COUNT) || !IS_ENABLED(CONFIG_PREEMPTION));

void fh_bug(const char *file, size_t len, u32 line)
{
	pr_emerg("panic at %.*s:%u\n", (int)len, file, line);
	BUG();
}

void fh_preempt_schedule(void)
{
#ifdef CONFIG_PREEMPTION
	__preempt_schedule();
#endif
}

void fh_emit(void *sink, const char *name, size_t len, u64 value)
{
	if (sink)
		seq_printf(sink, "%.*s %llu\n", (int)len, name, value);
}

void fh_say(void *sink, const char *text, size_t len)
{
	if (sink)
		seq_printf(sink, "%.*s\n", (int)len, text);
	else
		pr_err("%.*s\n", (int)len, text);
}
