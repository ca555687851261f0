// SPDX-License-Identifier: MIT OR Apache-2.0
/* The allocators of zones: set up from memblock, looked after, and what Linux asks of them. */
#define pr_fmt(fmt) "freehold: " fmt

#include <asm/cpufeature.h>
#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/init.h>
#include <linux/kconfig.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/printk.h>
#include <linux/sched/clock.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "freehold.h"

static_assert(MIGRATE_UNMOVABLE == 0 && MIGRATE_MOVABLE == 1 && MIGRATE_RECLAIMABLE == 2);
static_assert(NR_PAGE_ORDERS == 11);

/* Locks that free pages with interrupts off would sleep. */
static_assert(!IS_ENABLED(CONFIG_PREEMPT_RT));

bool freehold_on __ro_after_init = true;

static int __init parse(char *text)
{
	if (text && !strcmp(text, "off"))
		freehold_on = false;
	else if (!text || strcmp(text, "on"))
		pr_warn("freehold=%s: there are on and off\n", text ?: "");
	return 0;
}
early_param("freehold", parse);

/* How many frames of a zone's memory there may ever be, the memory that may be plugged included. */
static unsigned long span_of(struct zone *zone, unsigned long first, unsigned long end)
{
	if (IS_ENABLED(CONFIG_MEMORY_HOTPLUG) && zone_idx(zone) >= ZONE_NORMAL)
		end = max_t(unsigned long, end, max_possible_pfn);
	return end - first;
}

static void __init init_zone(struct zone *zone)
{
	unsigned long start, end, memory = 0;
	unsigned long span = span_of(zone, zone->zone_start_pfn, zone_end_pfn(zone));
	u64 begin = sched_clock();
	void *buffer, *state = NULL;
	long bytes, err;
	int i;

	bytes = freehold_bytes(zone->zone_start_pfn, span, nr_cpu_ids);
	if (bytes < 0)
		panic("freehold: zone %s: error %ld\n", zone->name, bytes);
	buffer = memblock_alloc_node(bytes, PAGE_SIZE, zone_to_nid(zone));
	if (!buffer)
		panic("freehold: no %ld bytes for zone %s\n", bytes, zone->name);
	err = freehold_create(buffer, bytes, zone->zone_start_pfn, span, nr_cpu_ids, &state);
	/* Ranges of whole frames, of which no two overlap. Zones may: then both know the frame. */
	for_each_mem_pfn_range(i, zone_to_nid(zone), &start, &end, NULL) {
		start = max(start, zone->zone_start_pfn);
		end = min(end, zone_end_pfn(zone));
		if (err || start >= end)
			continue;
		err = freehold_add_memory(state, start, end - start);
		memory += end - start;
	}
	if (err)
		panic("freehold: zone %s: error %ld\n", zone->name, err);
	zone->freehold = state;
	pr_info("node %d, zone %s: %lu of %lu frames, %ld bytes of metadata, set up in %llu us\n",
		zone_to_nid(zone), zone->name, memory, span, bytes,
		(sched_clock() - begin) / 1000);
}

/*
 * Ahead of memblock_free_all(): all memory is in use, and the kernel's own frees bring to its zone
 * what it does not use, at once or later.
 */
void __init freehold_init(void)
{
	struct zone *zone;

	/* The Rust side disables interrupts by the CPU's flag, which a guest of this kind cannot. */
	if (cpu_feature_enabled(X86_FEATURE_XENPV))
		freehold_on = false;
	if (!freehold_on)
		return;
	if (nr_cpu_ids > FREEHOLD_CPUS_MAX)
		panic("freehold: more than %u CPUs\n", FREEHOLD_CPUS_MAX);
	for_each_zone(zone)
		if (zone->spanned_pages)
			init_zone(zone);
}

#ifdef CONFIG_MEMORY_HOTPLUG
/*
 * Memory that comes to a zone, under the lock of memory hotplug: in use, until Linux frees it. A
 * zone that has had none gets an allocator.
 */
int freehold_plug(struct zone *zone, unsigned long first, unsigned long frames)
{
	unsigned long start = ALIGN_DOWN(first, MAX_ORDER_NR_PAGES);
	unsigned long span = span_of(zone, start, first + frames);
	void *buffer, *state = NULL;
	long bytes, err;

	if (!freehold_on)
		return 0;
	if (zone->freehold)
		return freehold_add_memory(zone->freehold, first, frames);
	bytes = freehold_bytes(start, span, nr_cpu_ids);
	if (bytes < 0)
		return bytes;
	buffer = vzalloc_node(bytes, zone_to_nid(zone));
	if (!buffer)
		return -ENOMEM;
	err = freehold_create(buffer, bytes, start, span, nr_cpu_ids, &state) ?:
	      freehold_add_memory(state, first, frames);
	if (err) {
		vfree(buffer);
		return err;
	}
	zone->freehold = state;
	return 0;
}
#endif

/*
 * Watermarks ask whether there is a block of an order. It is taken for granted until an allocation
 * of this order, or of a lower one, has failed; from then on it is tried, until it succeeds.
 */
void freehold_lacks(struct zone *zone, unsigned int order)
{
	unsigned int before = READ_ONCE(zone->freehold_short);

	if (!before || order < before)
		WRITE_ONCE(zone->freehold_short, order);
}

bool freehold_has(struct zone *zone, unsigned int order)
{
	unsigned int lacking = READ_ONCE(zone->freehold_short);
	long pfn;

	if (!lacking || order < lacking)
		return true;
	pfn = freehold_alloc_block(zone->freehold, order, MIGRATE_MOVABLE | FREEHOLD_NOWAIT);
	if (pfn < 0)
		return false;
	freehold_free_block(zone->freehold, pfn, order);
	WRITE_ONCE(zone->freehold_short, 0);
	return true;
}

/* A free of what is free already, or of what is no memory. The frames stay as they are. */
void freehold_refused(struct zone *zone, unsigned long pfn, unsigned int order, long err)
{
	WARN(1, "freehold: error %ld: free of order %u at frame %#lx of zone %s\n", err, order, pfn,
	     zone->name);
}

/* A CPU is dead. No other call would look for frames that are freed to its pageblocks. */
void freehold_offline(unsigned int cpu)
{
	struct zone *zone;

	for_each_populated_zone(zone)
		if (zone->freehold)
			freehold_offline_cpu(zone->freehold, cpu);
}

static void upkeep(struct work_struct *work)
{
	struct zone *zone;
	unsigned int cpu;

	for_each_populated_zone(zone)
		for_each_online_cpu(cpu)
			freehold_tick_cpu(zone->freehold, cpu);
	schedule_delayed_work(to_delayed_work(work), HZ);
}
static DECLARE_DELAYED_WORK(upkeep_work, upkeep);

static int __init begin_upkeep(void)
{
	if (freehold_on)
		schedule_delayed_work(&upkeep_work, HZ);
	return 0;
}
late_initcall(begin_upkeep);
