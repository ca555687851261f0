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

/* A block of one of the zone's allocators: the one ahead of lists, or in place of them. */
static __always_inline struct page *freehold_take(struct zone *zone, bool front,
						  unsigned int order, u32 flags)
{
	struct page *page;

	do {
		/* Read each time, or a register is saved for it. */
		void *state = front ? zone->freehold_front : zone->freehold;
		long pfn = order ? freehold_alloc_block(state, order, flags) :
				   freehold_alloc_frame(state, flags);

		if (unlikely(pfn < 0))
			return NULL;
		freehold_count(zone, pfn, -(1l << order));
		page = pfn_to_page(pfn);
		VM_BUG_ON_PAGE(bad_range(zone, page), page);
		/* A page that is not as it was freed is lost, as with Linux's lists. */
	} while (check_new_pages(page, order));
	return page;
}

/* In place of per-CPU lists and buddy lists. */
static __always_inline struct page *freehold_rmqueue(struct zone *preferred, struct zone *zone,
						     unsigned int order, gfp_t gfp,
						     int migratetype)
{
	u32 flags = freehold_flags(gfp, migratetype);
	struct page *page = freehold_take(zone, false, order, flags);

	if (unlikely(!page))
		return NULL;
	__count_zid_vm_events(PGALLOC, zone_idx(zone), 1 << order);
	zone_statistics(preferred, zone, 1);
	return page;
}

/*
 * In place of per-CPU lists and the others: from Freehold, which fills itself from the lists; from
 * these; and at last, what other CPUs cache, or what is for other content.
 */
static __always_inline struct page *freehold_front_rmqueue(struct zone *preferred,
							   struct zone *zone, unsigned int order,
							   gfp_t gfp, unsigned int alloc_flags,
							   int migratetype)
{
	u32 flags = freehold_flags(gfp, migratetype);
	bool cached = pcp_allowed_order(order);
	struct page *page = NULL;

	if (likely(cached)) {
		page = freehold_take(zone, true, order, flags | FREEHOLD_AT_HAND);
		if (unlikely(!page) && freehold_refill(zone, order, migratetype))
			page = freehold_take(zone, true, order, flags | FREEHOLD_AT_HAND);
	}
	if (unlikely(!page)) {
		page = rmqueue_buddy(preferred, zone, order, alloc_flags, migratetype);
		if (page || !cached)
			return page;
		page = freehold_take(zone, true, order, flags);
		if (!page)
			return NULL;
	}
	if (migratetype != MIGRATE_MOVABLE &&
	    unlikely(get_pageblock_migratetype(page) == MIGRATE_MOVABLE))
		freehold_claim(zone, page, migratetype);
	__count_zid_vm_events(PGALLOC, zone_idx(zone), 1 << order);
	zone_statistics(preferred, zone, 1);
	return page;
}

/* What watermarks do not count for such content. */
static __always_inline unsigned long freehold_unusable(struct zone *zone, gfp_t gfp)
{
	unsigned long pages = 0;

#ifdef CONFIG_UNACCEPTED_MEMORY
	pages += zone_page_state(zone, NR_UNACCEPTED);
#endif
	if (static_branch_unlikely(&freehold_has_cma) && !(gfp & __GFP_MOVABLE))
		pages += zone_page_state(zone, NR_FREE_CMA_PAGES);
	return pages;
}

/*
 * In place of the walk over zones, where there is nothing to decide: a block of the first zone,
 * which stays above its high watermark. Or none, and then the walk decides.
 */
static __always_inline struct page *freehold_alloc_plenty(gfp_t gfp, unsigned int order, int nid,
							  const nodemask_t *nodes)
{
	struct zoneref *first = node_zonelist(nid, gfp)->_zonerefs;
	enum zone_type highest = gfp_zone(gfp);
	struct zone *zone = zonelist_zone(first);
	struct page *page;
	long spare;

	if (nodes || !zone || !zone->freehold || zonelist_zone_idx(first) > highest)
		return NULL;
	/* Dirty limits; and allocations that are to fail. */
	if (gfp & __GFP_WRITE || IS_ENABLED(CONFIG_FAIL_PAGE_ALLOC))
		return NULL;
	if (cpusets_enabled() &&
	    !(in_task() && node_isset(zonelist_node_idx(first), cpuset_current_mems_allowed)))
		return NULL;
	spare = zone_page_state(zone, NR_FREE_PAGES) - freehold_unusable(zone, gfp) -
		high_wmark_pages(zone) - zone->lowmem_reserve[highest];
	if (spare < 1l << order)
		return NULL;
	might_alloc(gfp);
	page = freehold_rmqueue(zone, zone, order, gfp, gfp_migratetype(gfp));
	if (likely(page))
		prep_new_page(page, order, gfp, 0);
	return page;
}

/* The same for a larger block, apart: for a single page, the order is a constant. */
static noinline struct page *freehold_alloc_plenty_of(gfp_t gfp, unsigned int order, int nid,
						      const nodemask_t *nodes)
{
	return freehold_alloc_plenty(gfp, order, nid, nodes);
}

/*
 * Single pages for a list, or for the empty slots of an array, from slot *nr_populated on, up to
 * nr_pages in all. Counts *nr_populated up, and returns how many there are new.
 */
static noinline int freehold_rmqueue_bulk(struct zone *preferred, struct zone *zone, gfp_t gfp,
					  int migratetype, int nr_pages, int *nr_populated,
					  struct list_head *list, struct page **array)
{
	void *state = freehold_of(zone);
	u32 flags = freehold_flags(gfp, migratetype) | (zone->freehold ? 0 : FREEHOLD_AT_HAND);
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
				got = freehold_alloc_frames(state, pfns, many, flags);
				if (!got && zone->freehold_front &&
				    freehold_refill(zone, 0, migratetype))
					got = freehold_alloc_frames(state, pfns, many, flags);
				if (got <= 0)
					goto out;
				freehold_count_pfns(zone, pfns, got, -1);
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
	if (next < got && zone->freehold)
		freehold_free_pfns(zone, pfns + next, got - next);
	for (; next < got && zone->freehold_front; next++)
		freehold_front_free(zone, pfn_to_page(pfns[next]), pfns[next], 0);
out:
	__count_zid_vm_events(PGALLOC, zone_idx(zone), all);
	zone_statistics(preferred, zone, all);
	return all;
}
