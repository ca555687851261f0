/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Allocation, included by page_alloc.c ahead of the functions whose hooks call it. */

/*
 * Who may not sleep may not wait for another call either: it may hold a spinlock that a handler
 * wants, and that handler may have interrupted the other call on another CPU, since a call only
 * disables preemption. Who may sleep holds no spinlock. So the test is not in_interrupt().
 */
static __always_inline u32 freehold_flags(gfp_t gfp, int migratetype)
{
	return (migratetype & 3) | (gfp & __GFP_DIRECT_RECLAIM ? 0 : FREEHOLD_NOWAIT);
}

/* In place of per-CPU lists and buddy lists. */
static __always_inline struct page *freehold_rmqueue(struct zone *preferred, struct zone *zone,
						     unsigned int order, gfp_t gfp,
						     int migratetype)
{
	u32 flags = freehold_flags(gfp, migratetype);
	struct page *page;

	do {
		long pfn = order ? freehold_alloc_block(zone->freehold, order, flags) :
				   freehold_alloc_frame(zone->freehold, flags);

		if (unlikely(pfn < 0)) {
			freehold_lacks(zone, order);
			return NULL;
		}
		freehold_count(zone, -(1l << order));
		page = pfn_to_page(pfn);
		VM_BUG_ON_PAGE(bad_range(zone, page), page);
		/* A page that is not as it was freed is lost, as with Linux's lists. */
	} while (check_new_pages(page, order));
	__count_zid_vm_events(PGALLOC, zone_idx(zone), 1 << order);
	zone_statistics(preferred, zone, 1);
	return page;
}

/*
 * Single pages for a list, or for the empty slots of an array, from slot *nr_populated on, up to
 * nr_pages in all. Counts *nr_populated up, and returns how many there are new.
 */
static noinline int freehold_rmqueue_bulk(struct zone *preferred, struct zone *zone, gfp_t gfp,
					  int migratetype, int nr_pages, int *nr_populated,
					  struct list_head *list, struct page **array)
{
	u32 flags = freehold_flags(gfp, migratetype);
	long got = 0, next = 0;
	u64 pfns[32];
	int all = 0;

	for (; *nr_populated < nr_pages; ++*nr_populated) {
		struct page *page;

		if (array && array[*nr_populated])
			continue;
		do {
			if (next == got) {
				size_t many = min_t(int, nr_pages - *nr_populated,
						    ARRAY_SIZE(pfns));

				next = 0;
				got = freehold_alloc_frames(zone->freehold, pfns, many, flags);
				if (got <= 0)
					goto out;
				mod_zone_page_state(zone, NR_FREE_PAGES, -got);
			}
			page = pfn_to_page(pfns[next++]);
		} while (check_new_pages(page, 0));
		prep_new_page(page, 0, gfp, 0);
		if (list)
			list_add(&page->lru, list);
		else
			array[*nr_populated] = page;
		all++;
	}
	/* Slots further on were full. */
	if (next < got)
		freehold_free_pfns(zone, pfns + next, got - next);
out:
	__count_zid_vm_events(PGALLOC, zone_idx(zone), all);
	zone_statistics(preferred, zone, all);
	return all;
}
