// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * /sys/kernel/debug/freehold/timers, for tests: a write of a number of seconds has a timer interrupt
 * each CPU 2,000 times a second that long, whatever it does. The handler allocates and frees under
 * a lock that the writer also takes, and under which it allocates and frees as well.
 */
#define pr_fmt(fmt) "freehold: " fmt

#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#define PERIOD_NS	500000
#define HELD		16

/* Blocks that their holder frees in turn: most on another CPU than allocated them. */
struct held {
	struct page *pages[HELD];
	unsigned int orders[HELD];
	unsigned int next;
};

static DEFINE_PER_CPU(struct hrtimer, timers);
static DEFINE_SPINLOCK(held_lock);
static struct held held;
static unsigned long allocated, failed;

/* Frees the oldest block and allocates another one. The lock is held, as a driver's may be. */
static void turn(gfp_t gfp)
{
	unsigned int at = held.next++ % HELD, order = held.next % 4;

	if (held.pages[at])
		__free_pages(held.pages[at], held.orders[at]);
	held.pages[at] = alloc_pages(gfp | __GFP_NOWARN, order);
	held.orders[at] = order;
	if (held.pages[at])
		allocated++;
	else
		failed++;
}

static enum hrtimer_restart interrupt(struct hrtimer *timer)
{
	unsigned long flags;

	spin_lock_irqsave(&held_lock, flags);
	turn(GFP_ATOMIC);
	spin_unlock_irqrestore(&held_lock, flags);
	hrtimer_forward_now(timer, ns_to_ktime(PERIOD_NS));
	return HRTIMER_RESTART;
}

static void begin(void *unused)
{
	struct hrtimer *timer = this_cpu_ptr(&timers);

	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
	timer->function = interrupt;
	hrtimer_start(timer, ns_to_ktime(PERIOD_NS), HRTIMER_MODE_REL_PINNED);
}

static int interrupt_for(void *unused, u64 seconds)
{
	unsigned long end = jiffies + seconds * HZ;
	unsigned int cpu, at;

	allocated = failed = 0;
	cpus_read_lock();
	on_each_cpu(begin, NULL, 1);
	while (time_before(jiffies, end) && !signal_pending(current)) {
		spin_lock_irq(&held_lock);
		turn(GFP_NOWAIT);
		spin_unlock_irq(&held_lock);
		cond_resched();
	}
	for_each_online_cpu(cpu)
		hrtimer_cancel(per_cpu_ptr(&timers, cpu));
	cpus_read_unlock();
	for (at = 0; at < HELD; at++) {
		if (held.pages[at])
			__free_pages(held.pages[at], held.orders[at]);
		held.pages[at] = NULL;
	}
	pr_info("result: run=timers allocated=%lu refused=%lu\n", allocated, failed);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(fops, NULL, interrupt_for, "%llu\n");

static int __init create_file(void)
{
	debugfs_create_file_unsafe("timers", 0200, debugfs_lookup("freehold", NULL), NULL, &fops);
	return 0;
}
/* Behind the other files. */
late_initcall_sync(create_file);
