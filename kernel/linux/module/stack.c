// SPDX-License-Identifier: MIT OR Apache-2.0
/* How much stack each call uses: the unused part is filled with a pattern before it. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/sched/task_stack.h>
#include <linux/vmalloc.h>

#include "allocator.h"
#include "memory.h"
#include "runs.h"

#define PATTERN	0x5ac5ac5ac5ac5ac5ul
#define SPARE	64	/* words at the end of the stack, which the kernel checks */

struct subject {
	struct fh_allocator allocator;
	void *spare;	/* where create builds another one */
	long bytes;
	u64 pfns[64];
	long got;
};

typedef void (*call_fn)(struct subject *s);

static void nothing(struct subject *s)
{
	s->got++;
}

static void alloc0(struct subject *s)
{
	s->got = fh_alloc(&s->allocator, 0, 0);
}

static void free0(struct subject *s)
{
	fh_free(&s->allocator, s->got, 0);
}

static void alloc9(struct subject *s)
{
	s->got = fh_alloc(&s->allocator, 9, 0);
}

static void free9(struct subject *s)
{
	fh_free(&s->allocator, s->got, 9);
}

static void alloc_bulk(struct subject *s)
{
	s->got = fh_alloc_bulk(&s->allocator, s->pfns, ARRAY_SIZE(s->pfns), 0);
}

static void free_bulk(struct subject *s)
{
	fh_free_bulk(&s->allocator, s->pfns, s->got);
}

/* Takes all there is, so that the last calls drain and fail: chained through the pages. */
static void exhaust(struct subject *s)
{
	u64 *last = NULL;
	long pfn;

	while ((pfn = fh_alloc(&s->allocator, 0, 0)) >= 0) {
		u64 *page = page_address(pfn_to_page(pfn));

		*page = (u64)last;
		last = page;
	}
	s->pfns[0] = (u64)last;
}

static void free_all(struct subject *s)
{
	u64 *page = (u64 *)s->pfns[0];

	while (page) {
		u64 pfn = page_to_pfn(virt_to_page(page));

		page = (u64 *)*page;
		fh_free(&s->allocator, pfn, 0);
	}
}

static void drain(struct subject *s)
{
	fh_call(&s->allocator, drain);
}

static void tick(struct subject *s)
{
	fh_call(&s->allocator, tick, 0);
}

static void validate(struct subject *s)
{
	fh_call(&s->allocator, validate, NULL);
}

static void stat(struct subject *s)
{
	fh_call(&s->allocator, stat, NULL);
}

static void create(struct subject *s)
{
	u64 first = fh_memory_first(s->allocator.memory);
	u64 frames = fh_memory_span(s->allocator.memory);
	void *state;

	if (s->allocator.design == FH_FREEHOLD)
		freehold_create(s->spare, s->bytes, first, frames, nr_cpu_ids, &state);
	else
		zone_lock_create(s->spare, s->bytes, first, frames, nr_cpu_ids, &state);
}

static const struct {
	const char *name;
	call_fn call;
} calls[] = {
	{ "nothing", nothing }, { "alloc-order0", alloc0 }, { "free-order0", free0 },
	{ "alloc-order9", alloc9 }, { "free-order9", free9 }, { "alloc-bulk", alloc_bulk },
	{ "free-bulk", free_bulk }, { "alloc-until-it-fails", exhaust },
	{ "free-all", free_all }, { "drain", drain }, { "tick", tick },
	{ "validate", validate }, { "stat", stat }, { "create", create },
};

/* In bytes. Interrupts are off, since they would use this stack too. */
static noinline unsigned long used_by(call_fn call, struct subject *s)
{
	unsigned long *end = (unsigned long *)task_stack_page(current) + SPARE;
	unsigned long *top, *at, flags;

	local_irq_save(flags);
	asm volatile("mov %%rsp, %0" : "=r" (top));
	for (at = end; at < top; at++)
		WRITE_ONCE(*at, PATTERN);
	call(s);
	for (at = end; at < top && READ_ONCE(*at) == PATTERN; at++)
		;
	local_irq_restore(flags);
	return (top - at) * sizeof(*at);
}

struct measurement {
	struct subject subject;
	struct completion done;
};

/* On a stack of its own, which is nearly empty. */
static int measure(void *of)
{
	struct measurement *m = of;
	size_t i;

	/* So that the first calls find their CPU's caches as usual. */
	alloc0(&m->subject);
	free0(&m->subject);
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		fh_result("run=stack by=%s call=%s bytes=%lu",
			  fh_design_name(m->subject.allocator.design), calls[i].name,
			  used_by(calls[i].call, &m->subject));
	complete(&m->done);
	return 0;
}

int fh_stack(struct fh_allocator *allocator)
{
	struct measurement *m = vzalloc(sizeof(*m));
	u64 first = fh_memory_first(allocator->memory), span = fh_memory_span(allocator->memory);
	struct task_struct *task;
	int err = -ENOMEM;

	if (!m)
		return err;
	m->subject.allocator = *allocator;
	if (allocator->design == FH_FREEHOLD)
		m->subject.bytes = freehold_bytes(first, span, nr_cpu_ids);
	else
		m->subject.bytes = zone_lock_bytes(first, span, nr_cpu_ids);
	m->subject.spare = vzalloc(m->subject.bytes);
	if (!m->subject.spare)
		goto out;
	init_completion(&m->done);
	task = kthread_run(measure, m, "freehold/stack");
	err = PTR_ERR_OR_ZERO(task);
	if (!err)
		wait_for_completion(&m->done);
	vfree(m->subject.spare);
out:
	vfree(m);
	return err;
}
