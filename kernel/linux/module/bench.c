// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The race: contestants in turns, work by work. Time is the CPU's counter, which under QEMU with
 * -icount counts instructions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <asm/tsc.h>

#include "contestant.h"
#include "runs.h"

#define BATCHES	41

static const struct {
	const char *name;
	unsigned int n;		/* how often in a batch */
	unsigned int units;	/* what one of them is divided by */
} works[WORKS] = {
	[WORK_NOTHING] = { "nothing", 500, 1 },
	[WORK_ORDER0] = { "order0", 500, 1 },
	[WORK_ORDER3] = { "order3", 500, 1 },
	[WORK_ORDER9] = { "order9", 100, 1 },
	[WORK_BULK] = { "bulk64", 50, FH_BULK },
	[WORK_BURST] = { "burst4096", 2, 4096 },
};

static int by_value(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Prints minimum and median of batches, each divided by its operations, with two decimals. */
static void print(unsigned int cpus, const char *work, const char *by, u64 *batches, u64 units,
		  u64 failed)
{
	u64 min, median;

	sort(batches, BATCHES, sizeof(*batches), by_value, NULL);
	min = batches[0] * 100 / units;
	median = batches[BATCHES / 2] * 100 / units;
	fh_result("run=bench cpus=%u work=%s by=%s min=%llu.%02llu median=%llu.%02llu failed=%llu",
		  cpus, work, by, min / 100, min % 100, median / 100, median % 100, failed);
}

/* Compound pages are the same as others at order 0, and nothing has no contestants. */
static bool takes_part(enum contestant by, enum work work)
{
	if (work == WORK_NOTHING)
		return by == BY_LINUX;
	return by != BY_LINUX_OTHERWISE || (work != WORK_ORDER0 && work != WORK_BURST);
}

static void on_one_cpu(struct ring *ring, u64 *batches)
{
	enum contestant by;
	enum work work;
	int i;

	for (work = 0; work < WORKS; work++) {
		for (by = 0; by < CONTESTANTS; by++) {
			if (!takes_part(by, work))
				continue;
			ring->failed = 0;
			contestants[by].race(ring, work, works[work].n);
			for (i = 0; i < BATCHES; i++) {
				u64 start = rdtsc_ordered();

				contestants[by].race(ring, work, works[work].n);
				batches[i] = rdtsc_ordered() - start;
				cond_resched();
			}
			print(1, works[work].name, contestants[by].name, batches,
			      works[work].n * works[work].units, ring->failed);
		}
	}
}

/* Pages are freed on another CPU than they were allocated on, one CPU after the other. */
struct half {
	void (*half)(struct ring *ring);
	struct ring *ring;
	u64 time;
};

static long run_half(void *of)
{
	struct half *half = of;
	u64 start = rdtsc_ordered();

	half->half(half->ring);
	half->time = rdtsc_ordered() - start;
	return 0;
}

static void remote(struct ring *ring, u64 *batches)
{
	unsigned int giver = cpumask_next(cpumask_first(cpu_online_mask), cpu_online_mask);
	enum contestant by;
	int i;

	for (by = 0; by < BY_LINUX_OTHERWISE; by++) {
		ring->failed = 0;
		for (i = 0; i < BATCHES; i++) {
			struct half first = { contestants[by].take_all, ring };
			struct half then = { contestants[by].give_all, ring };

			work_on_cpu(cpumask_first(cpu_online_mask), run_half, &first);
			work_on_cpu(giver, run_half, &then);
			batches[i] = first.time + then.time;
		}
		print(2, "remote4096", contestants[by].name, batches, ARRAY_SIZE(ring->pages),
		      ring->failed);
	}
}

/* Several CPUs at the same time: all wait for the last one, and the time is until all are done. */
struct together {
	race_fn race;
	enum work work;
	unsigned int cpus;
	atomic_t arrived;
	atomic_t left;
	u64 start;
	u64 end;
	struct completion done;
};

struct runner {
	struct together *together;
	struct ring *ring;
};

static int run_together(void *of)
{
	struct runner *runner = of;
	struct together *all = runner->together;
	unsigned int n = works[all->work].n * 10;

	all->race(runner->ring, all->work, works[all->work].n);
	if (atomic_inc_return(&all->arrived) == all->cpus)
		WRITE_ONCE(all->start, rdtsc_ordered());
	while (!READ_ONCE(all->start))
		cond_resched();
	all->race(runner->ring, all->work, n);
	if (atomic_dec_and_test(&all->left)) {
		all->end = rdtsc_ordered();
		complete(&all->done);
	}
	return 0;
}

static int start_together(struct together *all, struct runner *runners)
{
	unsigned int cpu, i = 0;

	all->start = 0;
	atomic_set(&all->arrived, 0);
	atomic_set(&all->left, all->cpus);
	init_completion(&all->done);
	for_each_online_cpu(cpu) {
		struct task_struct *task;

		if (i == all->cpus)
			break;
		runners[i].together = all;
		task = kthread_create(run_together, &runners[i++], "freehold/%u", cpu);
		/* Those that have started wait for this one, and nothing else can end them. */
		BUG_ON(IS_ERR(task));
		kthread_bind(task, cpu);
		wake_up_process(task);
	}
	wait_for_completion(&all->done);
	return 0;
}

static void on_cpus(struct ring *ring, struct runner *runners, unsigned int cpus)
{
	struct together all = { .cpus = cpus };
	enum contestant by;
	unsigned int i;

	for (all.work = WORK_ORDER0; all.work < WORKS; all.work++) {
		for (by = 0; by < BY_LINUX_OTHERWISE; by++) {
			u64 units = (u64)works[all.work].n * 10 * works[all.work].units * cpus;
			u64 failed = 0, mean;

			all.race = contestants[by].race;
			for (i = 0; i < cpus; i++)
				runners[i].ring->failed = 0;
			start_together(&all, runners);
			for (i = 0; i < cpus; i++)
				failed += runners[i].ring->failed;
			mean = (all.end - all.start) * 100 / units;
			fh_result("run=together cpus=%u work=%s by=%s mean=%llu.%02llu failed=%llu",
				  cpus, works[all.work].name, contestants[by].name, mean / 100,
				  mean % 100, failed);
		}
	}
}

static int with_runners(struct ring *ring)
{
	unsigned int cpus, most = num_online_cpus(), i;
	struct runner *runners = kcalloc(most, sizeof(*runners), GFP_KERNEL);
	int err = -ENOMEM;

	if (!runners)
		return err;
	for (i = 0; i < most; i++) {
		runners[i].ring = vzalloc(sizeof(*ring));
		if (!runners[i].ring)
			goto out;
		memcpy(runners[i].ring->ours, ring->ours, sizeof(ring->ours));
	}
	for (cpus = 2; cpus <= most; cpus *= 2)
		on_cpus(ring, runners, cpus);
	err = 0;
out:
	for (i = 0; i < most; i++)
		vfree(runners[i].ring);
	kfree(runners);
	return err;
}

int fh_bench(struct fh_allocator *allocator)
{
	struct ring *ring = fh_ring_create(allocator);
	u64 *batches;
	int err = 0;

	if (IS_ERR(ring))
		return PTR_ERR(ring);
	batches = kcalloc(BATCHES, sizeof(*batches), GFP_KERNEL);
	if (batches) {
		on_one_cpu(ring, batches);
		if (num_online_cpus() > 1) {
			remote(ring, batches);
			err = with_runners(ring);
		}
	} else {
		err = -ENOMEM;
	}
	kfree(batches);
	fh_ring_destroy(ring, allocator);
	return err;
}
