// SPDX-License-Identifier: MIT OR Apache-2.0
/* The allocators of zones: set up from memblock, looked after, and what Linux asks of them. */
#define pr_fmt(fmt) "freehold: " fmt

#include <asm/cpufeature.h>
#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/cma.h>
#include <linux/init.h>
#include <linux/kconfig.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/printk.h>
#include <linux/sched/clock.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#ifdef CONFIG_CMA
#include "../cma.h"
#endif
#include "../page_reporting.h"
#include "freehold.h"

static_assert(MIGRATE_UNMOVABLE == 0 && MIGRATE_MOVABLE == 1 && MIGRATE_RECLAIMABLE == 2);
static_assert(NR_PAGE_ORDERS == 11);
#ifdef CONFIG_CMA
static_assert(MIGRATE_CMA == 4);
#endif

/* Locks that free pages with interrupts off would sleep. */
static_assert(!IS_ENABLED(CONFIG_PREEMPT_RT));

bool freehold_on __ro_after_init = true;
DEFINE_STATIC_KEY_FALSE(freehold_in_front);
DEFINE_STATIC_KEY_FALSE(freehold_has_cma);

/* On the command line: freehold=front. */
static bool wants_front __initdata;

static int __init parse(char *text)
{
	wants_front = text && !strcmp(text, "front");
	freehold_on = !wants_front && (!text || strcmp(text, "off"));
	if (freehold_on && text && strcmp(text, "on"))
		freehold_choose(text);
	return 0;
}
early_param("freehold", parse);

/*
 * The frames that a zone with some memory may come to have: to whole GiB, which costs no more, and
 * where memory may be added, as far as the firmware says.
 */
void freehold_set_span(struct zone *zone, unsigned long start, unsigned long end)
{
	if (IS_ENABLED(CONFIG_MEMORY_HOTPLUG)) {
		start = round_down(start, SZ_1G >> PAGE_SHIFT);
		end = round_up(end, SZ_1G >> PAGE_SHIFT);
		if (end > PFN_DOWN(SZ_4G))
			end = max(end, (unsigned long)max_possible_pfn);
	}
	zone->freehold_first = start;
	zone->freehold_frames = end - start;
}

/* Where the part of a range ends that is all of a CMA area, or all of none; and which of both. */
static unsigned long __init end_of_part(unsigned long start, unsigned long end, bool *cma)
{
	*cma = false;
#ifdef CONFIG_CMA
	for (struct cma *area = cma_areas; area < cma_areas + cma_area_count; area++) {
		unsigned long behind = area->base_pfn + area->count;

		if (start < area->base_pfn)
			end = min(end, area->base_pfn);
		else if (start < behind) {
			*cma = true;
			end = min(end, behind);
		}
	}
#endif
	return end;
}

/* Adds memory to an allocator, all of it in use. */
static long __init add_parts(void *state, unsigned long start, unsigned long end)
{
	long err = 0;

	while (!err && start < end) {
		bool cma;
		unsigned long behind = end_of_part(start, end, &cma);

		/* Of such areas, what is ahead of lists knows nothing. */
		if (!cma || !wants_front)
			err = freehold_add_memory(state, start, behind - start, cma);
		start = behind;
	}
	return err;
}

static bool __init any_cma(unsigned long start, unsigned long end)
{
	bool cma;
	unsigned long behind = end_of_part(start, end, &cma);

	return cma || behind < end;
}

static void __init init_zone(struct zone *zone)
{
	bool cma = !wants_front && any_cma(zone->zone_start_pfn, zone_end_pfn(zone));
	unsigned long start, end, memory = 0;
	u64 begin = sched_clock();
	void *buffer, *state = NULL;
	long bytes, err;
	int i;

	freehold_set_span(zone, zone->zone_start_pfn, zone_end_pfn(zone));
	bytes = freehold_bytes(zone->freehold_first, zone->freehold_frames, nr_cpu_ids, cma);
	if (bytes < 0)
		panic("freehold: zone %s: error %ld\n", zone->name, bytes);
	buffer = memblock_alloc_node(bytes, PAGE_SIZE, zone_to_nid(zone));
	if (!buffer)
		panic("freehold: no %ld bytes for zone %s\n", bytes, zone->name);
	err = freehold_create(buffer, bytes, zone->freehold_first, zone->freehold_frames,
			      nr_cpu_ids, cma, &state);
	/* Ranges of whole frames, of which no two overlap. Zones may: then both know the frame. */
	for_each_mem_pfn_range(i, zone_to_nid(zone), &start, &end, NULL) {
		start = max(start, zone->zone_start_pfn);
		end = min(end, zone_end_pfn(zone));
		if (err || start >= end)
			continue;
		err = add_parts(state, start, end);
		memory += end - start;
	}
	if (err)
		panic("freehold: zone %s: error %ld\n", zone->name, err);
	*(wants_front ? &zone->freehold_front : &zone->freehold) = state;
	if (cma)
		static_branch_enable(&freehold_has_cma);
	pr_info("%s: node %d, zone %s: %lu of %lu frames, %ld bytes of metadata, set up in %llu us\n",
		freehold_name(), zone_to_nid(zone), zone->name, memory, zone->freehold_frames, bytes,
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
		freehold_on = wants_front = false;
	if (!freehold_on && !wants_front)
		return;
	if (nr_cpu_ids > FREEHOLD_CPUS_MAX)
		panic("freehold: more than %u CPUs\n", FREEHOLD_CPUS_MAX);
	for_each_zone(zone)
		if (zone->spanned_pages)
			init_zone(zone);
	if (wants_front)
		static_branch_enable(&freehold_in_front);
}

/* A free of what is free already, or of what is no memory. The frames stay as they are. */
void freehold_refused(struct zone *zone, unsigned long pfn, unsigned int order, long err)
{
	WARN(1, "freehold: error %ld: free of order %u at frame %#lx of zone %s\n", err, order, pfn,
	     zone->name);
}

void freehold_count_cma(struct zone *zone, unsigned long pfn, long pages)
{
	if (is_migrate_cma_page(pfn_to_page(pfn)))
		mod_zone_page_state(zone, NR_FREE_CMA_PAGES, pages);
}

/* A CPU is dead. No other call would look for frames that are freed to its pageblocks. */
void freehold_offline(unsigned int cpu)
{
	struct zone *zone;

	for_each_populated_zone(zone)
		if (freehold_of(zone))
			freehold_offline_cpu(freehold_of(zone), cpu);
}

/*
 * Adds free pages and blocks, and how many of an order the larger ones are: for compaction. What
 * CPUs cache, which compaction takes from them, counts as single pages.
 */
void freehold_count_contig(struct zone *zone, unsigned int order, unsigned long *pages,
			   unsigned long *blocks, unsigned long *suitable)
{
	u64 free[NR_PAGE_ORDERS] = {};
	unsigned long cached = freehold_count_blocks(freehold_of(zone), free);
	unsigned int at;

	*pages += cached;
	*blocks += cached;
	for (at = 0; at < NR_PAGE_ORDERS; at++) {
		*pages += free[at] << at;
		*blocks += free[at];
		if (at >= order)
			*suitable += free[at] << (at - order);
	}
}

static void upkeep(struct work_struct *work)
{
	struct zone *zone;
	unsigned int cpu;

	for_each_populated_zone(zone)
		for_each_online_cpu(cpu)
			if (freehold_of(zone))
				freehold_tick_cpu(freehold_of(zone), cpu);
	if (static_key_enabled(&freehold_in_front))
		freehold_trim();
	if (freehold_on)
		page_reporting_notify_free(pageblock_order);
	schedule_delayed_work(to_delayed_work(work), HZ);
}
static DECLARE_DELAYED_WORK(upkeep_work, upkeep);

static int __init begin_upkeep(void)
{
	if (freehold_on || static_key_enabled(&freehold_in_front))
		schedule_delayed_work(&upkeep_work, HZ);
	return 0;
}
late_initcall(begin_upkeep);
