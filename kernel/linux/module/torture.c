// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The checks of freehold-conformance where they are hardest: threads that are preempted and
 * migrate at any time, timers that allocate and free in hard interrupts on every CPU, CPUs that
 * come and go, and drains, upkeep and validation between all that. Frames carry stamps of their
 * owners.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "debugfs.h"
#include "runs.h"

static unsigned int seconds = 10;
module_param(seconds, uint, 0644);
MODULE_PARM_DESC(seconds, "how long a torture test takes");

static unsigned int threads = 2;
module_param(threads, uint, 0644);
MODULE_PARM_DESC(threads, "threads of a torture test for each CPU");

static unsigned int slots = 512;
module_param(slots, uint, 0644);
MODULE_PARM_DESC(slots, "blocks that a torture test holds at most, of 8 frames on average");

static unsigned int timer_us = 200;
module_param(timer_us, uint, 0644);
MODULE_PARM_DESC(timer_us, "microseconds between hard interrupts on each CPU; 0: none");

static bool hotplug = true;
module_param(hotplug, bool, 0644);
MODULE_PARM_DESC(hotplug, "whether CPUs go offline and come back");

static unsigned long seed = 1;
module_param(seed, ulong, 0644);
MODULE_PARM_DESC(seed, "on which the choices of threads and handlers depend");

struct torture {
	struct fh_allocator *allocator;
	struct fh_slots slots;
	void *workers;		/* one for each timer, by CPU, and then one for each thread */
	size_t many;
	atomic_t next;
	atomic64_t steps;
	unsigned long validations;
	unsigned long offlined;
};

/* One CPU's timer. It moves if the CPU goes offline, but never runs twice at a time. */
struct fh_timer {
	struct hrtimer timer;
	struct torture *torture;
	unsigned long interrupts;
};

static DEFINE_PER_CPU(struct fh_timer, timers);

/* The torture test that is under way, for the timers of CPUs that come online. */
static struct torture *current_test;

static void *worker(struct torture *t, size_t nth)
{
	return t->workers + nth * fh_worker_bytes();
}

static enum hrtimer_restart interrupt(struct hrtimer *timer)
{
	struct fh_timer *mine = container_of(timer, struct fh_timer, timer);
	struct torture *t = mine->torture;
	unsigned int cpu;

	/* Whose timer this is, wherever it runs. */
	for_each_possible_cpu(cpu)
		if (mine == per_cpu_ptr(&timers, cpu))
			break;
	fh_call(t->allocator, torture_interrupt, &t->slots, worker(t, cpu));
	mine->interrupts++;
	/* After the step, so that slow ones leave time for the rest. */
	hrtimer_forward_now(timer, ns_to_ktime(timer_us * NSEC_PER_USEC));
	return HRTIMER_RESTART;
}

/* Both run on the CPU that comes or goes. */
static int start_timer(unsigned int cpu)
{
	struct fh_timer *mine = this_cpu_ptr(&timers);

	mine->torture = current_test;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&mine->timer, interrupt, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(&mine->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	mine->timer.function = interrupt;
#endif
	hrtimer_start(&mine->timer, ns_to_ktime(timer_us * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED_HARD);
	return 0;
}

static int stop_timer(unsigned int cpu)
{
	hrtimer_cancel(this_cpu_ptr(&timers.timer));
	return 0;
}

static int torture_thread(void *of)
{
	struct torture *t = of;
	void *mine = worker(t, nr_cpu_ids + atomic_inc_return(&t->next) - 1);
	u64 steps = 0;

	while (!kthread_should_stop()) {
		fh_call(t->allocator, torture_step, &t->slots, mine);
		if (++steps % 64 == 0)
			cond_resched();
	}
	atomic64_add(steps, &t->steps);
	return 0;
}

/* Some CPU goes offline, everything is drained and checked, and it comes back. */
static int disturb(struct torture *t, unsigned int round)
{
	unsigned int cpu = round % nr_cpu_ids;
	bool away = hotplug && cpu_possible(cpu) && !remove_cpu(cpu);
	int err = 0;

	t->offlined += away;
	fh_call(t->allocator, drain);
	fh_call(t->allocator, tick, cpu);
	if (!fh_validate(t->allocator))
		err = -EIO;
	t->validations++;
	msleep(20);
	if (away && add_cpu(cpu))
		err = -EIO;
	return err;
}

static int run_threads(struct torture *t)
{
	unsigned int many = t->many - nr_cpu_ids, started, round = 0;
	unsigned long end = jiffies + seconds * HZ;
	struct task_struct **tasks = kcalloc(many, sizeof(*tasks), GFP_KERNEL);
	int err = 0;

	if (!tasks)
		return -ENOMEM;
	for (started = 0; started < many && !err; started++) {
		tasks[started] = kthread_run(torture_thread, t, "freehold/%u", started);
		if (IS_ERR(tasks[started])) {
			err = PTR_ERR(tasks[started]);
			break;
		}
	}
	while (!err && time_before(jiffies, end))
		err = disturb(t, ++round);
	while (started--)
		kthread_stop(tasks[started]);
	kfree(tasks);
	return err;
}

static unsigned long interrupts(void)
{
	unsigned long sum = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		sum += per_cpu(timers, cpu).interrupts;
		per_cpu(timers, cpu).interrupts = 0;
	}
	return sum;
}

static int run_all(struct torture *t)
{
	int state = 0, err;

	current_test = t;
	if (timer_us) {
		state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "freehold:torture", start_timer,
					  stop_timer);
		if (state < 0)
			return state;
	}
	err = run_threads(t);
	if (timer_us)
		cpuhp_remove_state(state);
	return err;
}

static int finish(struct torture *t, u64 free)
{
	struct fh_tally tally = {};
	long err = fh_call(t->allocator, torture_finish, &t->slots, t->workers, t->many, free,
			   &tally, NULL);
	unsigned long handled = interrupts();

	if (err)
		return err;
	fh_result("run=torture by=%s cpus=%u steps=%lld interrupts=%lu offlined=%lu "
		  "validations=%lu allocated=%llu freed=%llu out_of_memory=%llu "
		  "below_watermark=%llu would_wait=%llu errors=%llu",
		  fh_design_name(t->allocator->design), nr_cpu_ids, atomic64_read(&t->steps),
		  handled, t->offlined, t->validations, tally.allocated, tally.freed,
		  tally.out_of_memory, tally.below_watermark, tally.would_wait, tally.errors);
	/* A test that did nothing has not passed. */
	if (!tally.allocated || (timer_us && !handled) ||
	    (hotplug && nr_cpu_ids > 1 && !t->offlined)) {
		pr_err("torture: nothing was allocated, interrupted or offlined\n");
		return -ENODATA;
	}
	return tally.errors ? -EIO : 0;
}

int fh_torture(struct fh_allocator *allocator)
{
	struct torture t = {
		.allocator = allocator,
		.many = nr_cpu_ids + nr_cpu_ids * threads,
		.slots.many = slots,
	};
	long free;
	size_t i;
	int err = -ENOMEM;

	if (!threads || !slots)
		return -EINVAL;
	t.workers = vzalloc(t.many * fh_worker_bytes());
	t.slots.slots = vzalloc(slots * sizeof(*t.slots.slots));
	if (!t.workers || !t.slots.slots)
		goto out;
	for (i = 0; i < t.many; i++)
		fh_worker_init(worker(&t, i), seed * 1000 + i);
	free = fh_call(allocator, torture_prepare, NULL);
	err = free;
	if (free < 0)
		goto out;
	err = run_all(&t);
	if (!err)
		err = finish(&t, free);
out:
	vfree(t.slots.slots);
	vfree(t.workers);
	return err;
}

/* Every kind of call, on an allocator that is idle. */
int fh_conformance(struct fh_allocator *allocator)
{
	u64 *pfns = kcalloc(256, sizeof(*pfns), GFP_KERNEL);
	bool conforms;

	if (!pfns)
		return -ENOMEM;
	conforms = fh_call(allocator, conforms, pfns, 256, NULL);
	kfree(pfns);
	if (conforms)
		fh_result("run=conformance by=%s", fh_design_name(allocator->design));
	return conforms ? 0 : -EIO;
}
