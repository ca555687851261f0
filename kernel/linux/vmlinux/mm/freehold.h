/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Freehold as the page allocator: each zone has one, zone->freehold; or, with freehold=front, one
 * ahead of its lists, zone->freehold_front; or none has with freehold=off. The hooks that
 * kernel/linux/vmlinux/insert puts into the kernel call the functions below, and those of alloc.h,
 * free.h and front.h, which need static functions of page_alloc.c.
 */
#ifndef MM_FREEHOLD_H
#define MM_FREEHOLD_H

#include <linux/jump_label.h>
#include <linux/mmzone.h>
#include <linux/types.h>
#include <linux/vmstat.h>

struct page;
struct page_reporting_dev_info;
struct scatterlist;
struct seq_file;

#define FREEHOLD_NOWAIT		4u	/* beside a migratetype: never waits for another call */
#define FREEHOLD_AT_HAND	8u	/* takes nothing from other CPUs, or other content */
#define FREEHOLD_CPUS_MAX	256u
#define FREEHOLD_TYPES		5	/* migratetypes up to MIGRATE_CMA */

#include "designs.h"

/* Whether the zones are Freehold's. */
extern bool freehold_on;

/* Whether they have one ahead of their lists. */
DECLARE_STATIC_KEY_FALSE(freehold_in_front);

/* Whether there is a CMA area: memory of which Freehold only makes blocks for what can move. */
DECLARE_STATIC_KEY_FALSE(freehold_has_cma);

/* The allocator of a zone, whichever form it has. */
static inline void *freehold_of(struct zone *zone)
{
	return zone->freehold ?: zone->freehold_front;
}

void freehold_init(void);
void freehold_set_span(struct zone *zone, unsigned long start, unsigned long end);
bool freehold_adopts(struct zone *zone, unsigned long pfn, unsigned int order);
void freehold_refused(struct zone *zone, unsigned long pfn, unsigned int order, long err);
int freehold_begin_online(struct zone *zone, unsigned long pfn, unsigned long pages);
void freehold_end_online(void);
int freehold_offline_pages(struct zone *zone, unsigned long start, unsigned long end);
bool freehold_take_off(struct page *page);
bool freehold_put_back(struct page *page);
void freehold_offline(unsigned int cpu);
void freehold_count_contig(struct zone *zone, unsigned int order, unsigned long *pages,
			   unsigned long *blocks, unsigned long *suitable);
bool freehold_show_node(struct seq_file *file, pg_data_t *node);
bool freehold_show_free(struct seq_file *file, pg_data_t *node);
bool freehold_show_pageblocks(struct seq_file *file, pg_data_t *node);
unsigned long freehold_list_free(struct zone *zone, unsigned long blocks[NR_PAGE_ORDERS],
				 unsigned char types[NR_PAGE_ORDERS]);

/* Gives most of what no CPU caches back to Linux's lists. */
void freehold_trim(void);
/* What Freehold calls with a block that it gives back to them. */
void freehold_take_back(u64 pfn, u32 order, void *control);

int freehold_report_zone(struct page_reporting_dev_info *device, struct scatterlist *list,
			 struct zone *zone);
/* What Freehold calls to have whole pageblocks reported. */
bool freehold_report(const u64 *pfns, size_t many, void *control);

/* What Freehold calls to have content moved. */
bool freehold_can_move(u64 block, u32 order);
long freehold_migrate(u64 from, u64 to, u32 order, void *control);
long freehold_evict(u64 from, u32 order, void *control);

/*
 * Counts pages once more if they are of a CMA area, since watermarks do not count those for what
 * cannot move. A block is all of an area, or all of none.
 */
void freehold_count_cma(struct zone *zone, unsigned long pfn, long pages);

/*
 * Counts the pages of a block that comes to a zone or goes, as mod_zone_page_state() does, in the
 * same counters; in line as long as that of this CPU suffices. What CPUs cache counts as free: any
 * allocation may have it, and reclaim, which waits for this counter to rise, mostly frees to
 * pageblocks that CPUs hold.
 */
static __always_inline void freehold_count(struct zone *zone, unsigned long pfn, long pages)
{
	struct per_cpu_zonestat __percpu *stats = zone->per_cpu_zonestats;
	s8 before = this_cpu_read(stats->vm_stat_diff[NR_FREE_PAGES]);
	long after = before + pages;

	if (unlikely(abs(after) > this_cpu_read(stats->stat_threshold)) ||
	    unlikely(!this_cpu_try_cmpxchg(stats->vm_stat_diff[NR_FREE_PAGES], &before, after)))
		mod_zone_page_state(zone, NR_FREE_PAGES, pages);
	if (static_branch_unlikely(&freehold_has_cma))
		freehold_count_cma(zone, pfn, pages);
}

/* The same for single pages, each of which comes, or goes if sign is -1. */
static inline void freehold_count_pfns(struct zone *zone, const u64 *pfns, long many, long sign)
{
	long at;

	mod_zone_page_state(zone, NR_FREE_PAGES, sign * many);
	if (static_branch_unlikely(&freehold_has_cma))
		for (at = 0; at < many; at++)
			freehold_count_cma(zone, pfns[at], sign);
}

#endif
