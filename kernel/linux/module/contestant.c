// SPDX-License-Identifier: MIT OR Apache-2.0
/* The loops of each contestant, and the allocators that they race with. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/vmalloc.h>

#include "contestant.h"
#include "memory.h"

/* Out of line, so that by-function finds them by their names. */
#define DEFINE_CONTESTANT(name, by)							\
	static noinline void race_##name(struct ring *ring, enum work work, unsigned int n) \
	{										\
		race(ring, by, work, n);						\
	}										\
	static void take_all_##name(struct ring *ring)					\
	{										\
		unsigned int i;								\
											\
		for (i = 0; i < ARRAY_SIZE(ring->pages); i++)				\
			ring->pages[i] = take(ring, by, 0);				\
	}										\
	static void give_all_##name(struct ring *ring)					\
	{										\
		unsigned int i;								\
											\
		for (i = 0; i < ARRAY_SIZE(ring->pages); i++)				\
			give(ring, by, ring->pages[i], 0);				\
	}

DEFINE_CONTESTANT(freehold, BY_FREEHOLD)
DEFINE_CONTESTANT(zone_lock, BY_ZONE_LOCK)
DEFINE_CONTESTANT(linux, BY_LINUX)
DEFINE_CONTESTANT(linux_otherwise, BY_LINUX_OTHERWISE)

#define CONTESTANT(label, fn) { label, race_##fn, take_all_##fn, give_all_##fn }

const struct contestant_ops contestants[CONTESTANTS] = {
	[BY_FREEHOLD] = CONTESTANT("freehold", freehold),
	[BY_ZONE_LOCK] = CONTESTANT("zone-lock", zone_lock),
	[BY_LINUX] = CONTESTANT("linux", linux),
	[BY_LINUX_OTHERWISE] = CONTESTANT("linux-otherwise", linux_otherwise),
};

/* The allocator of the module, and one of the other design with as much memory. */
struct ring *fh_ring_create(struct fh_allocator *allocator)
{
	enum fh_design other = allocator->design == FH_FREEHOLD ? FH_ZONE_LOCK : FH_FREEHOLD;
	struct ring *ring = vzalloc(sizeof(*ring));

	if (!ring)
		return ERR_PTR(-ENOMEM);
	ring->ours[allocator->design] = allocator;
	ring->ours[other] = fh_create(other, fh_memory_mib(allocator->memory));
	if (IS_ERR(ring->ours[other])) {
		long err = PTR_ERR(ring->ours[other]);

		vfree(ring);
		return ERR_PTR(err);
	}
	return ring;
}

void fh_ring_destroy(struct ring *ring, struct fh_allocator *allocator)
{
	int design;

	for (design = 0; design < FH_DESIGNS; design++)
		if (ring->ours[design] != allocator)
			fh_destroy(ring->ours[design]);
	vfree(ring);
}
