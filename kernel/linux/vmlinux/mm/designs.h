/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The functions of the Rust side, of which each design has its own: freehold_alloc_frame() calls
 * that of the design that the command line named. It is a static call, which is a direct one in
 * machine code; so the design costs no instruction, and no pointer to these functions is ever used,
 * which would need an endbr64 at each.
 */
#ifndef MM_FREEHOLD_DESIGNS_H
#define MM_FREEHOLD_DESIGNS_H

#include <linux/mmzone.h>
#include <linux/static_call.h>
#include <linux/types.h>

/* freehold/src/vmlinux.rs documents each. A negative long is an errno. */
#define FREEHOLD_CALLS(CALL, design)							\
	CALL(design, long, bytes, (u64 first, u64 frames, u32 cpus, bool cma),		\
	     (first, frames, cpus, cma))						\
	CALL(design, long, create,							\
	     (void *buffer, size_t bytes, u64 first, u64 frames, u32 cpus, bool cma,	\
	      void **state), (buffer, bytes, first, frames, cpus, cma, state))		\
	CALL(design, long, add_memory, (void *state, u64 first, u64 frames, bool cma),	\
	     (state, first, frames, cma))						\
	CALL(design, long, add_free, (void *state, u64 first, u64 frames, bool cma),	\
	     (state, first, frames, cma))						\
	CALL(design, bool, is_free, (void *state, u64 pfn), (state, pfn))		\
	CALL(design, long, alloc_block, (void *state, u32 order, u32 flags),		\
	     (state, order, flags))							\
	CALL(design, long, alloc_frame, (void *state, u32 flags), (state, flags))	\
	CALL(design, long, free_block, (void *state, u64 pfn, u32 order), (state, pfn, order)) \
	CALL(design, long, alloc_frames, (void *state, u64 *pfns, size_t many, u32 flags), \
	     (state, pfns, many, flags))						\
	CALL(design, size_t, free_frames,						\
	     (void *state, const u64 *pfns, size_t many, long *err), (state, pfns, many, err)) \
	CALL(design, long, offline_cpu, (void *state, u32 cpu), (state, cpu))		\
	CALL(design, long, tick_cpu, (void *state, u32 cpu), (state, cpu))		\
	CALL(design, u64, count_blocks, (void *state, u64 blocks[NR_PAGE_ORDERS]),	\
	     (state, blocks))								\
	CALL(design, void, count_types,							\
	     (void *state, u64 blocks[FREEHOLD_TYPES][NR_PAGE_ORDERS],			\
	      u64 pageblocks[FREEHOLD_TYPES]), (state, blocks, pageblocks))		\
	CALL(design, bool, has_block, (void *state, u32 order), (state, order))		\
	CALL(design, void, stat, (void *state, void *sink), (state, sink))		\
	CALL(design, bool, validate, (void *state, void *sink), (state, sink))		\
	CALL(design, void, locks, (void *sink), (sink))					\
	/* freehold/src/moves.rs; control is a struct compact_control. */		\
	CALL(design, long, alloc_compacting,						\
	     (void *state, u32 order, u32 flags, void *control),			\
	     (state, order, flags, control))						\
	CALL(design, void, compact, (void *state, void *control), (state, control))	\
	CALL(design, long, alloc_range, (void *state, u64 first, u64 frames, void *control), \
	     (state, first, frames, control))						\
	CALL(design, long, remove_memory, (void *state, u64 first, u64 frames, void *control), \
	     (state, first, frames, control))

#define FREEHOLD_DECLARE(design, type, name, params, args) type design##_##name params;
FREEHOLD_CALLS(FREEHOLD_DECLARE, own)

/* freehold/src/own.rs: of the project's own design only. */
long own_free_range(void *state, u64 first, u64 frames);
void own_drain_all(void *state);
void own_take_surplus(void *state, u64 keep, void *control);
size_t own_report_free(void *state, void *control);

#define FREEHOLD_CALL(design, type, name, params, args)					\
	DECLARE_STATIC_CALL(freehold_##name, own_##name);				\
	static __always_inline type freehold_##name params				\
	{										\
		return static_call(freehold_##name) args;				\
	}
FREEHOLD_CALLS(FREEHOLD_CALL, own)

/* Has the design of this name called from now on; says which there are, if there is none. */
void freehold_choose(const char *name);
/* Whether it is the project's own. */
bool freehold_is_own(void);
/* The name of the design that is called. */
const char *freehold_name(void);

#endif
