/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FH_MEMORY_H
#define FH_MEMORY_H

#include <linux/types.h>

struct fh_memory;

/* Real memory of the kernel: mib is rounded up to blocks of 4 MiB. */
struct fh_memory *fh_memory_take(unsigned long mib);
void fh_memory_give_back(struct fh_memory *memory);

/* The first frame, and how many frames there are up to the last one, holes included. */
u64 fh_memory_first(const struct fh_memory *memory);
u64 fh_memory_span(const struct fh_memory *memory);

/* How much memory there is, without holes. */
unsigned long fh_memory_mib(const struct fh_memory *memory);

/* Where the kernel maps a frame: the Rust side stamps frames there. */
u64 *fh_address(u64 pfn);

/* Calls add for each contiguous range, by rising address, until it fails. */
typedef long (*fh_range_fn)(struct fh_memory *memory, u64 first, u64 frames, void *with);
long fh_memory_each(struct fh_memory *memory, fh_range_fn add, void *with);

#endif
