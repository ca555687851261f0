// SPDX-License-Identifier: MIT OR Apache-2.0
/* Waits for a debugger, which then steps through one pair of each contestant: by-function. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/sched.h>

#include "contestant.h"
#include "runs.h"

/* The debugger sets it. */
static int attached;

int fh_trace(struct fh_allocator *allocator)
{
	struct ring *ring = fh_ring_create(allocator);
	enum contestant by;

	if (IS_ERR(ring))
		return PTR_ERR(ring);
	/* Warm, so that what is stepped through is the ordinary path. */
	for (by = 0; by < CONTESTANTS; by++)
		contestants[by].race(ring, WORK_ORDER0, 64);
	for (by = 0; by < BY_LINUX_OTHERWISE; by++)
		fh_result("run=trace by=%s at=%px", contestants[by].name, contestants[by].race);
	fh_result("run=trace attached=%px", &attached);
	while (!READ_ONCE(attached))
		cpu_relax();
	for (by = 0; by < BY_LINUX_OTHERWISE; by++) {
		/* Or else the scheduler is called at the end of the first pin. */
		cond_resched();
		contestants[by].race(ring, WORK_ORDER0, 3);
	}
	fh_ring_destroy(ring, allocator);
	return 0;
}
