/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The Rust side, as C calls it: freehold/src/ffi.rs documents each function. Functions that return
 * long return a negative errno on failure.
 */
#ifndef FH_ALLOCATOR_H
#define FH_ALLOCATOR_H

#include <linux/compiler.h>
#include <linux/types.h>

#define FH_NOWAIT	1u	/* never waits for another call: for interrupt handlers */
#define FH_CPUS_MAX	256u

/* Where the workers of a torture test hand blocks to each other: zero at first. */
struct fh_slots {
	u64 *slots;
	size_t many;
};

/* What they have done, in blocks; errors are the allocator's. */
struct fh_tally {
	u64 allocated;
	u64 freed;
	u64 out_of_memory;
	u64 below_watermark;
	u64 would_wait;
	u64 errors;
};

size_t fh_worker_bytes(void);
void fh_worker_init(void *worker, u64 seed);

#define FH_DECLARE(design)								\
	long design##_bytes(u64 first, u64 frames, u32 cpus);				\
	long design##_create(void *buffer, size_t bytes, u64 first, u64 frames, u32 cpus, \
			     void **state);						\
	long design##_add(void *state, u64 first, u64 frames);				\
	long design##_alloc(void *state, u32 order, u32 flags);				\
	long design##_free(void *state, u64 pfn, u32 order);				\
	long design##_alloc_bulk(void *state, u64 *pfns, size_t many, u32 flags);	\
	long design##_free_bulk(void *state, const u64 *pfns, size_t many);		\
	void design##_drain(void *state);						\
	long design##_tick(void *state, u32 cpu);					\
	long design##_offline(void *state, u32 cpu);					\
	bool design##_conforms(void *state, u64 *pfns, size_t many, void *sink);	\
	long design##_torture_prepare(void *state, void *sink);				\
	void design##_torture_step(void *state, const struct fh_slots *slots, void *worker); \
	void design##_torture_interrupt(void *state, const struct fh_slots *slots,	\
					void *worker);					\
	long design##_torture_finish(void *state, const struct fh_slots *slots,		\
				     void *workers, size_t many, u64 free,		\
				     struct fh_tally *tally, void *sink);		\
	void design##_stat(void *state, void *sink);					\
	bool design##_validate(void *state, void *sink)

FH_DECLARE(freehold);
FH_DECLARE(zone_lock);

enum fh_design {
	FH_FREEHOLD,
	FH_ZONE_LOCK,
	FH_DESIGNS,
};

/* An allocator and the memory that it was given. */
struct fh_allocator {
	enum fh_design design;
	void *buffer;
	void *state;	/* within the buffer */
	struct fh_memory *memory;
};

/* Where the design is a constant, this is a direct call. */
#define fh_call(allocator, call, ...)							\
	((allocator)->design == FH_FREEHOLD ?						\
		freehold_##call((allocator)->state, ##__VA_ARGS__) :			\
		zone_lock_##call((allocator)->state, ##__VA_ARGS__))

/* The first frame of a block of 2^order frames. */
static __always_inline long fh_alloc(const struct fh_allocator *a, u32 order, u32 flags)
{
	return fh_call(a, alloc, order, flags);
}

static __always_inline long fh_free(const struct fh_allocator *a, u64 pfn, u32 order)
{
	return fh_call(a, free, pfn, order);
}

/* How many frames were allocated. */
static __always_inline long fh_alloc_bulk(const struct fh_allocator *a, u64 *pfns, size_t many,
					  u32 flags)
{
	return fh_call(a, alloc_bulk, pfns, many, flags);
}

static __always_inline long fh_free_bulk(const struct fh_allocator *a, const u64 *pfns,
					 size_t many)
{
	return fh_call(a, free_bulk, pfns, many);
}

const char *fh_design_name(enum fh_design design);
struct fh_allocator *fh_create(enum fh_design design, unsigned long mib);
void fh_destroy(struct fh_allocator *allocator);

#endif
