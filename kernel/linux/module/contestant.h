/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Who takes part in a race: the kernel's allocator in two ways, and ours. All hand out struct page,
 * so that each is asked for the same. Inlined into one loop for each contestant.
 */
#ifndef FH_CONTESTANT_H
#define FH_CONTESTANT_H

#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/string.h>
#include <linux/version.h>

#include "allocator.h"

#define FH_BULK		64

enum contestant {
	BY_FREEHOLD = FH_FREEHOLD,
	BY_ZONE_LOCK = FH_ZONE_LOCK,
	BY_LINUX,
	BY_LINUX_OTHERWISE,	/* compound pages; bulk frees by release_pages */
	CONTESTANTS,
};

/* What a contestant's loop works on. */
struct ring {
	struct fh_allocator *ours[FH_DESIGNS];
	u64 failed;
	struct page *pages[4096];
	u64 pfns[FH_BULK];
};

#define RACE_GFP	(GFP_KERNEL | __GFP_NOWARN)

static __always_inline struct fh_allocator ours(const struct ring *ring, enum contestant by)
{
	return (struct fh_allocator) {
		.design = (enum fh_design)by,
		.state = ring->ours[by]->state,
	};
}

static __always_inline struct page *take(struct ring *ring, enum contestant by, u32 order)
{
	struct page *page = NULL;

	if (by == BY_LINUX) {
		page = alloc_pages(RACE_GFP, order);
	} else if (by == BY_LINUX_OTHERWISE) {
		page = alloc_pages(RACE_GFP | __GFP_COMP, order);
	} else {
		struct fh_allocator allocator = ours(ring, by);
		long pfn = fh_alloc(&allocator, order, 0);

		if (pfn >= 0)
			page = pfn_to_page(pfn);
	}
	if (unlikely(!page))
		ring->failed++;
	return page;
}

static __always_inline void give(struct ring *ring, enum contestant by, struct page *page,
				 u32 order)
{
	if (unlikely(!page))
		return;
	if (by == BY_LINUX || by == BY_LINUX_OTHERWISE) {
		__free_pages(page, order);
	} else {
		struct fh_allocator allocator = ours(ring, by);

		if (unlikely(fh_free(&allocator, page_to_pfn(page), order)))
			ring->failed++;
	}
}

static __always_inline unsigned long linux_bulk(struct page **pages)
{
	memset(pages, 0, FH_BULK * sizeof(*pages));
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
	return alloc_pages_bulk(RACE_GFP, FH_BULK, pages);
#else
	return alloc_pages_bulk_array(RACE_GFP, FH_BULK, pages);
#endif
}

/* Allocates and frees FH_BULK pages by the contestant's calls for many pages. */
static __always_inline void bulk(struct ring *ring, enum contestant by)
{
	long i, got;

	if (by == BY_LINUX || by == BY_LINUX_OTHERWISE) {
		got = linux_bulk(ring->pages);
		if (by == BY_LINUX_OTHERWISE)
			release_pages(ring->pages, got);
		for (i = 0; by == BY_LINUX && i < got; i++)
			__free_page(ring->pages[i]);
	} else {
		struct fh_allocator allocator = ours(ring, by);

		got = fh_alloc_bulk(&allocator, ring->pfns, FH_BULK, 0);
		if (got > 0 && fh_free_bulk(&allocator, ring->pfns, got))
			ring->failed++;
	}
	if (got != FH_BULK)
		ring->failed++;
}

/* What a loop does n times: pairs of one order, bulks, or bursts of many pages. */
enum work {
	WORK_NOTHING,
	WORK_ORDER0,
	WORK_ORDER3,
	WORK_ORDER9,
	WORK_BULK,
	WORK_BURST,
	WORKS,
};

typedef void (*race_fn)(struct ring *ring, enum work work, unsigned int n);

static __always_inline void pairs(struct ring *ring, enum contestant by, u32 order,
				  unsigned int n)
{
	while (n--)
		give(ring, by, take(ring, by, order), order);
}

static __always_inline void burst(struct ring *ring, enum contestant by)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ring->pages); i++)
		ring->pages[i] = take(ring, by, 0);
	for (i = 0; i < ARRAY_SIZE(ring->pages); i++)
		give(ring, by, ring->pages[i], 0);
}

static __always_inline void race(struct ring *ring, enum contestant by, enum work work,
				 unsigned int n)
{
	switch (work) {
	case WORK_NOTHING:
		while (n--)
			barrier();
		break;
	case WORK_ORDER0:
		pairs(ring, by, 0, n);
		break;
	case WORK_ORDER3:
		pairs(ring, by, 3, n);
		break;
	case WORK_ORDER9:
		pairs(ring, by, 9, n);
		break;
	case WORK_BULK:
		while (n--)
			bulk(ring, by);
		break;
	case WORK_BURST:
		while (n--)
			burst(ring, by);
		break;
	case WORKS:
		break;
	}
}

/* By enum contestant: its loops, each compiled for it alone. */
struct contestant_ops {
	const char *name;
	race_fn race;
	void (*take_all)(struct ring *ring);	/* fills ring->pages */
	void (*give_all)(struct ring *ring);	/* frees them */
};

extern const struct contestant_ops contestants[CONTESTANTS];

struct ring *fh_ring_create(struct fh_allocator *allocator);
void fh_ring_destroy(struct ring *ring, struct fh_allocator *allocator);

#endif
