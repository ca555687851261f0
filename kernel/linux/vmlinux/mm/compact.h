/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Compaction and removal of memory, included by compaction.c ahead of compact_zone(). Freehold
 * chooses which block moves where; here its pages are isolated and moved.
 */

/* A block whose pages are on their way to another, or, with no target, elsewhere. */
struct freehold_move {
	unsigned long from, to;
	unsigned int order;
	bool has_target;
	/* The frames of the target that Linux has. */
	DECLARE_BITMAP(filled, MAX_ORDER_NR_PAGES);
};

/* The part of the target that corresponds to a folio of the source. */
static struct folio *freehold_target(struct folio *src, unsigned long data)
{
	struct freehold_move *move = (struct freehold_move *)data;
	unsigned int order = folio_order(src);
	unsigned long at = folio_pfn(src) - move->from;
	struct page *page = pfn_to_page(move->to + at);
	struct migration_target_control elsewhere = {
		.nid = folio_nid(src),
		.gfp_mask = GFP_HIGHUSER_MOVABLE | __GFP_RETRY_MAYFAIL,
		.reason = MR_CONTIG_RANGE,
	};

	/* A huge page of hugetlb's goes to one of its pool, or to a new one of its own making. */
	if (!move->has_target || folio_test_hugetlb(src))
		return alloc_migration_target(src, (unsigned long)&elsewhere);
	if (at + (1ul << order) > 1ul << move->order)
		return NULL;
	bitmap_set(move->filled, at, 1u << order);
	post_alloc_hook(page, order, __GFP_MOVABLE);
	set_page_refcounted(page);
	if (order)
		prep_compound_page(page, order);
	return page_rmappable_folio(page);
}

/* Takes a target back that was not filled, unless somebody else has it now, who will free it. */
static void freehold_untarget(struct folio *dst, unsigned long data)
{
	struct freehold_move *move = (struct freehold_move *)data;
	unsigned int order = folio_order(dst);
	unsigned long at = folio_pfn(dst) - move->to;

	if (!move->has_target || folio_test_hugetlb(dst)) {
		folio_put(dst);
		return;
	}
	if (folio_put_testzero(dst) && free_pages_prepare(&dst->page, order))
		bitmap_clear(move->filled, at, 1u << order);
}

/* Returns how many folios have moved, or why none can. */
static long freehold_move_pages(struct compact_control *cc, struct freehold_move *move)
{
	isolate_mode_t mode = cc->mode == MIGRATE_SYNC ? 0 : ISOLATE_ASYNC_MIGRATE;
	unsigned int moved = 0;

	/* Of more there is no folio that could be moved. */
	if (move->order > MAX_PAGE_ORDER)
		return -EINVAL;
	if (fatal_signal_pending(current))
		return -EINTR;
	cond_resched();
	if (cc->alloc_contig || sysctl_compact_unevictable_allowed)
		mode |= ISOLATE_UNEVICTABLE;
	INIT_LIST_HEAD(&cc->migratepages);
	cc->nr_migratepages = 0;
	isolate_migratepages_block(cc, move->from, move->from + (1ul << move->order), mode);
	if (!list_empty(&cc->migratepages) &&
	    migrate_pages(&cc->migratepages, freehold_target, freehold_untarget,
			  (unsigned long)move, cc->mode,
			  cc->alloc_contig ? MR_CONTIG_RANGE : MR_COMPACTION, &moved))
		putback_movable_pages(&cc->migratepages);
	cc->nr_migratepages = 0;
	return moved;
}

/*
 * Whether what is in a block looks as if it could be moved, though it was allocated as unmovable: as
 * the cached pages of a block device are. Memory that has a driver to move it says so as well.
 */
bool freehold_can_move(u64 block, u32 order)
{
	struct page *page = pfn_to_page(block);

	return order <= MAX_PAGE_ORDER && (PageLRU(page) || __PageMovable(page));
}

/*
 * Moves the pages of a block, or some of them. What they leave is freed with the last reference to
 * it, by the ordinary path.
 */
long freehold_migrate(u64 from, u64 to, u32 order, void *control)
{
	struct freehold_move move = { .from = from, .to = to, .order = order, .has_target = true };
	struct compact_control *cc = control;
	struct zone *zone = cc->zone;
	unsigned long at, filled;
	long moved;

	/* Where memory is short, Linux makes room for it elsewhere. */
	if (cc->alloc_contig && !zone_watermark_ok(zone, 0, high_wmark_pages(zone), 0, 0))
		return -EINVAL;
	moved = freehold_move_pages(cc, &move);
	if (moved < 0)
		return moved;
	filled = bitmap_weight(move.filled, 1u << order);
	if (!filled)
		return -EBUSY;
	freehold_count(zone, to, -(long)filled);
	for_each_clear_bit(at, move.filled, 1u << order)
		WARN_ON(freehold_free_block(zone->freehold, to + at, 0));
	return 0;
}

/* The same, to wherever there is room, other zones included. */
long freehold_evict(u64 from, u32 order, void *control)
{
	struct freehold_move move = { .from = from, .order = order };
	long moved = freehold_move_pages(control, &move);

	return moved > 0 ? 0 : moved ?: -EBUSY;
}

/* In place of the scanners: makes a block for a request, or compacts the whole zone. */
static enum compact_result freehold_compact_zone(struct compact_control *cc,
						 struct capture_control *capc)
{
	struct zone *zone = cc->zone;
	long pfn;

	/* Freehold chooses the pageblocks; Linux has decided that it is worth another attempt. */
	cc->ignore_skip_hint = true;
	cc->no_set_skip_hint = true;
	lru_add_drain();
	if (is_via_compact_memory(cc->order)) {
		freehold_compact(zone->freehold, cc);
		return COMPACT_COMPLETE;
	}
	pfn = freehold_alloc_compacting(zone->freehold, cc->order, cc->migratetype & 3, cc);
	if (pfn < 0)
		return COMPACT_COMPLETE;
	if (capc) {
		freehold_count(zone, pfn, -(1l << cc->order));
		WRITE_ONCE(capc->page, pfn_to_page(pfn));
	} else {
		freehold_free_block(zone->freehold, pfn, cc->order);
	}
	return COMPACT_SUCCESS;
}

/* Whether a page has gone bad, and is not free: taken out of use, or nobody's that could move. */
static bool freehold_is_bad(struct page *page)
{
	return PageHWPoison(page) && !freehold_is_free(page_zone(page)->freehold, page_to_pfn(page));
}

/*
 * The next part of a range without pages that have gone bad. The kernel never takes the block of one
 * into use again.
 */
static bool freehold_next_good(unsigned long *start, unsigned long *behind, unsigned long end)
{
	for (*start = *behind; *start < end; ++*start)
		if (!freehold_is_bad(pfn_to_page(*start)))
			break;
	for (*behind = *start; *behind < end; ++*behind)
		if (freehold_is_bad(pfn_to_page(*behind)))
			break;
	return *start < end;
}

/* Takes all of a range out of use, or nothing. */
static long freehold_remove_range(struct compact_control *cc, unsigned long start,
				  unsigned long end, unsigned long *pages)
{
	unsigned long from, at, behind = start;
	void *state = cc->zone->freehold;
	long err = 0;

	*pages = 0;
	while (!err && freehold_next_good(&at, &behind, end)) {
		err = freehold_remove_memory(state, at, behind - at, cc);
		if (!err)
			*pages += behind - at;
	}
	if (err) {
		for (end = at, behind = start; freehold_next_good(&from, &behind, end);)
			WARN_ON(freehold_add_free(state, from, behind - from, false));
	}
	return err;
}

/* Takes memory out of use, in place of do_migrate_range() and of free lists that are isolated. */
int freehold_offline_pages(struct zone *zone, unsigned long start, unsigned long end)
{
	struct compact_control cc = {
		.order = -1,
		.zone = zone,
		.mode = MIGRATE_SYNC,
		.gfp_mask = GFP_KERNEL,
		.ignore_skip_hint = true,
		.no_set_skip_hint = true,
		.alloc_contig = true,
	};
	unsigned long pages;
	int tries;
	long err;

	/* What is on its way to a pool of hugetlb's, or in use for a moment, is met again. */
	for (tries = 0; tries < 8; tries++) {
		err = dissolve_free_hugetlb_folios(start, end);
		if (!err)
			err = freehold_remove_range(&cc, start, end, &pages);
		if (err != -EBUSY || signal_pending(current))
			break;
		schedule_timeout_uninterruptible(1);
	}
	if (!err)
		freehold_count(zone, start, -(long)pages);
	return err;
}
