/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Freehold in front of Linux's lists, in place of per-CPU lists; included by page_alloc.c ahead of
 * rmqueue_bulk(). All that reads free lists works as it does: compaction, isolation, hotplug.
 *
 * What Linux's lists have is in use, as Freehold sees it. It gets blocks from there by their free,
 * fragments first, and gives back pageblocks by an allocation, all of a pageblock under one hold of
 * the zone's lock. What it has is in NR_FREE_PAGES, unlike what per-CPU lists have: CPUs cache what
 * they like, and an allocation that finds nothing on Linux's lists has that, too.
 */

/* After so many frees, a CPU looks whether Freehold has too much. */
#define FREEHOLD_LOOK_PAGES	256
static DEFINE_PER_CPU(int, freehold_until_look);

/* At most so many blocks change hands under one hold of the zone's lock. */
#define FREEHOLD_BLOCKS		32

/* Blocks on their way to the lists of a zone, or from there. */
struct freehold_batch {
	struct zone *zone;
	unsigned int many;
	unsigned long pfns[FREEHOLD_BLOCKS];
	unsigned char orders[FREEHOLD_BLOCKS];
};

static bool freehold_zone_is_short(struct zone *zone)
{
	return zone_page_state(zone, NR_FREE_PAGES) < high_wmark_pages(zone);
}

static noinline void freehold_put_on_lists(struct freehold_batch *batch)
{
	struct zone *zone = batch->zone;
	unsigned long flags;
	unsigned int at;

	spin_lock_irqsave(&zone->lock, flags);
	for (at = 0; at < batch->many; at++) {
		unsigned long pfn = batch->pfns[at];
		struct page *page = pfn_to_page(pfn);
		int migratetype = get_pfnblock_migratetype(page, pfn);

		/* The lists count it, but for pageblocks that are being isolated. */
		freehold_count(zone, pfn, -(1l << batch->orders[at]));
		__free_one_page(page, pfn, zone, batch->orders[at], migratetype, FPI_NONE);
		trace_mm_page_pcpu_drain(page, batch->orders[at], migratetype);
	}
	spin_unlock_irqrestore(&zone->lock, flags);
	batch->many = 0;
}

/* Called by Freehold for each block that it gives back. */
void freehold_take_back(u64 pfn, u32 order, void *control)
{
	struct freehold_batch *batch = control;

	batch->pfns[batch->many] = pfn;
	batch->orders[batch->many++] = order;
	if (batch->many == FREEHOLD_BLOCKS)
		freehold_put_on_lists(batch);
}

/* Leaves so many pages beside what CPUs cache. */
static noinline void freehold_give_back(struct zone *zone, unsigned long keep)
{
	struct freehold_batch batch;

	batch.zone = zone;
	batch.many = 0;
	own_take_surplus(zone->freehold_front, keep, &batch);
	if (batch.many)
		freehold_put_on_lists(&batch);
}

/* As much as Linux's per-CPU lists may hold at most; nothing, where reclaim is near. */
static noinline void freehold_look(struct zone *zone)
{
	this_cpu_write(freehold_until_look, FREEHOLD_LOOK_PAGES);
	freehold_give_back(zone, freehold_zone_is_short(zone) ? 0 : zone_managed_pages(zone) / 8);
}

/* What nobody has wanted lately. */
void freehold_trim(void)
{
	struct zone *zone;

	for_each_populated_zone(zone)
		if (zone->freehold_front)
			freehold_give_back(zone, zone_managed_pages(zone) / 64);
}

static __always_inline void freehold_note_frees(struct zone *zone, int pages)
{
	__count_vm_events(PGFREE, pages);
	if (unlikely(this_cpu_sub_return(freehold_until_look, pages) < 0))
		freehold_look(zone);
}

/* All that Freehold has of a zone, or of all zones. */
static void freehold_drain(struct zone *only)
{
	struct zone *zone;

	for_each_populated_zone(zone) {
		if (!zone->freehold_front || (only && zone != only))
			continue;
		own_drain_all(zone->freehold_front);
		freehold_give_back(zone, 0);
	}
}

/* From here on, until freehold_resume(), pages are freed to Linux's lists. */
static void freehold_pause(struct zone *zone)
{
	if (!zone->freehold_front)
		return;
	WRITE_ONCE(zone->freehold_paused, true);
	/* Whoever has not seen that is done. */
	synchronize_rcu();
}

static void freehold_resume(struct zone *zone)
{
	WRITE_ONCE(zone->freehold_paused, false);
}

/* Whether Freehold takes a block that has passed free_pages_prepare(). */
static __always_inline bool freehold_takes(struct zone *zone, unsigned long pfn, unsigned int order)
{
	long err = -ENXIO;

	preempt_disable();
	if (likely(!READ_ONCE(zone->freehold_paused))) {
		err = freehold_free_block(zone->freehold_front, pfn, order);
		/* Linux's lists have merged or split what it was. */
		if (unlikely(err && order))
			err = own_free_range(zone->freehold_front, pfn, 1ul << order);
	}
	preempt_enable();
	/* Memory that it does not know: CMA areas. */
	if (unlikely(err == -ENXIO))
		return false;
	if (unlikely(err)) {
		freehold_refused(zone, pfn, order, err);
		return true;
	}
	freehold_count(zone, pfn, 1l << order);
	freehold_note_frees(zone, 1 << order);
	return true;
}

static void freehold_front_free(struct zone *zone, struct page *page, unsigned long pfn,
				unsigned int order)
{
	if (!freehold_takes(zone, pfn, order))
		free_one_page(zone, page, pfn, order, FPI_NONE);
}

/* In place of free_unref_folios(): single pages of the same zone, one after the other, at once. */
static noinline void freehold_front_free_folios(struct folio_batch *folios)
{
	unsigned long pageblock = ~0ul;
	u64 pfns[PAGEVEC_SIZE];
	struct zone *zone = NULL;
	unsigned int at, many = 0;
	bool isolated = false;

	for (at = 0; at <= folios->nr; at++) {
		struct folio *folio = at < folios->nr ? folios->folios[at] : NULL;
		size_t freed = 0;
		long err;

		if (many && (!folio || folio_zone(folio) != zone)) {
			preempt_disable();
			if (likely(!READ_ONCE(zone->freehold_paused)))
				freed = freehold_free_frames(zone->freehold_front, pfns, many, &err);
			preempt_enable();
			freehold_count_pfns(zone, pfns, freed, 1);
			freehold_note_frees(zone, freed);
			/* One by one, from the first that was refused on. */
			for (; unlikely(freed < many); freed++)
				freehold_front_free(zone, pfn_to_page(pfns[freed]), pfns[freed], 0);
			many = 0;
		}
		if (folio) {
			unsigned int order = folio_order(folio);
			unsigned long pfn = folio_pfn(folio);
			struct page *page = &folio->page;

			if (!free_pages_prepare(page, order))
				continue;
			zone = folio_zone(folio);
			if (pfn >> pageblock_order != pageblock) {
				pageblock = pfn >> pageblock_order;
				isolated = is_migrate_isolate(get_pfnblock_migratetype(page, pfn));
			}
			if (isolated || !zone->freehold_front || !pcp_allowed_order(order)) {
				free_one_page(zone, page, pfn, order, FPI_NONE);
				continue;
			}
			trace_mm_page_free_batched(page);
			if (order)
				freehold_front_free(zone, page, pfn, order);
			else
				pfns[many++] = pfn;
		}
	}
	folio_batch_reinit(folios);
}

/*
 * Gets blocks for content of a type from Linux's lists: for what can move, fragments first, of which
 * any will do; for other content a pageblock that becomes its. Returns whether it got any.
 */
static noinline bool freehold_refill(struct zone *zone, unsigned int order, int migratetype)
{
	unsigned int at = order, largest = freehold_zone_is_short(zone) ? 6 : pageblock_order;
	enum rmqueue_mode mode = RMQUEUE_NORMAL;
	struct freehold_batch batch;
	unsigned long flags, got = 0;
	unsigned int nth;
	bool any = false;

	if (order >= pageblock_order || READ_ONCE(zone->freehold_paused))
		return false;
	batch.many = 0;
	if (migratetype != MIGRATE_MOVABLE)
		at = largest = pageblock_order;
	spin_lock_irqsave(&zone->lock, flags);
	while (batch.many < FREEHOLD_BLOCKS && got < 1ul << largest) {
		struct page *page;

		if (at < largest && free_area_empty(&zone->free_area[at], MIGRATE_MOVABLE)) {
			at++;
			continue;
		}
		if (migratetype == MIGRATE_MOVABLE)
			page = __rmqueue_smallest(zone, at, migratetype);
		else
			page = __rmqueue(zone, at, migratetype, 0, &mode);
		if (!page)
			break;
		batch.pfns[batch.many] = page_to_pfn(page);
		batch.orders[batch.many++] = at;
		got += 1ul << at;
	}
	spin_unlock_irqrestore(&zone->lock, flags);
	for (nth = 0; nth < batch.many; nth++) {
		unsigned long pfn = batch.pfns[nth];

		if (own_free_range(zone->freehold_front, pfn, 1ul << batch.orders[nth])) {
			free_one_page(zone, pfn_to_page(pfn), pfn, batch.orders[nth], FPI_NONE);
			continue;
		}
		freehold_count(zone, pfn, 1l << batch.orders[nth]);
		any = true;
	}
	return any;
}

/* A pageblock of movable content that Freehold has chosen for other content is of that type. */
static noinline void freehold_claim(struct zone *zone, struct page *page, int migratetype)
{
	unsigned long flags;

	spin_lock_irqsave(&zone->lock, flags);
	if (get_pageblock_migratetype(page) == MIGRATE_MOVABLE)
		move_freepages_block(zone, page, MIGRATE_MOVABLE, migratetype);
	spin_unlock_irqrestore(&zone->lock, flags);
}
