/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Freehold as the page allocator: each zone has one, zone->freehold, or none has with freehold=off.
 * The hooks that kernel/linux/vmlinux/insert puts into the kernel call the functions below, and
 * those of alloc.h and free.h, which need static functions of page_alloc.c.
 */
#ifndef MM_FREEHOLD_H
#define MM_FREEHOLD_H

#include <linux/mmzone.h>
#include <linux/types.h>
#include <linux/vmstat.h>

struct seq_file;

#define FREEHOLD_NOWAIT		4u	/* beside a migratetype: never waits for another call */
#define FREEHOLD_CPUS_MAX	256u
#define FREEHOLD_TYPES		3	/* unmovable, movable, reclaimable */

/* The Rust side: freehold/src/vmlinux.rs documents each. A negative long is an errno. */
long freehold_bytes(u64 first, u64 frames, u32 cpus);
long freehold_create(void *buffer, size_t bytes, u64 first, u64 frames, u32 cpus, void **state);
long freehold_add_memory(void *state, u64 first, u64 frames);
long freehold_alloc_block(void *state, u32 order, u32 flags);
long freehold_alloc_frame(void *state, u32 flags);
long freehold_free_block(void *state, u64 pfn, u32 order);
long freehold_alloc_frames(void *state, u64 *pfns, size_t many, u32 flags);
size_t freehold_free_frames(void *state, const u64 *pfns, size_t many, long *err);
long freehold_offline_cpu(void *state, u32 cpu);
long freehold_tick_cpu(void *state, u32 cpu);
u64 freehold_count_blocks(void *state, u64 blocks[NR_PAGE_ORDERS]);
void freehold_count_types(void *state, u64 blocks[FREEHOLD_TYPES][NR_PAGE_ORDERS],
			  u64 pageblocks[FREEHOLD_TYPES]);
bool freehold_is_free(void *state, u64 pfn);
long freehold_take_frame(void *state, u64 pfn);
void freehold_stat(void *state, void *sink);
bool freehold_validate(void *state, void *sink);

/* Whether the zones are Freehold's. */
extern bool freehold_on;

void freehold_init(void);
int freehold_plug(struct zone *zone, unsigned long first, unsigned long frames);
void freehold_lacks(struct zone *zone, unsigned int order);
bool freehold_has(struct zone *zone, unsigned int order);
void freehold_refused(struct zone *zone, unsigned long pfn, unsigned int order, long err);
void freehold_offline(unsigned int cpu);
bool freehold_show_node(struct seq_file *file, pg_data_t *node);
bool freehold_show_free(struct seq_file *file, pg_data_t *node);
bool freehold_show_pageblocks(struct seq_file *file, pg_data_t *node);
unsigned long freehold_list_free(struct zone *zone, unsigned long blocks[NR_PAGE_ORDERS],
				 unsigned char types[NR_PAGE_ORDERS]);
bool freehold_take_off(struct page *page);
bool freehold_put_back(struct page *page);

/*
 * Counts the pages of a block that comes to a zone or goes, as mod_zone_page_state() does, in the
 * same counters; in line as long as that of this CPU suffices. What CPUs cache counts as free: any
 * allocation may have it, and reclaim, which waits for this counter to rise, mostly frees to
 * pageblocks that CPUs hold.
 */
static __always_inline void freehold_count(struct zone *zone, long pages)
{
	struct per_cpu_zonestat __percpu *stats = zone->per_cpu_zonestats;
	s8 before = this_cpu_read(stats->vm_stat_diff[NR_FREE_PAGES]);
	long after = before + pages;

	if (unlikely(abs(after) > this_cpu_read(stats->stat_threshold)) ||
	    unlikely(!this_cpu_try_cmpxchg(stats->vm_stat_diff[NR_FREE_PAGES], &before, after)))
		mod_zone_page_state(zone, NR_FREE_PAGES, pages);
}

#endif
