/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FH_RUNS_H
#define FH_RUNS_H

#include <linux/printk.h>

#include "allocator.h"

/*
 * Each run prints its figures as lines of "key=value" behind this prefix, by which
 * kernel/linux/boot finds them, and returns 0 or a negative errno.
 */
#define fh_result(fmt, ...) pr_info("result: " fmt "\n", ##__VA_ARGS__)

/* Starts or stops what the module does once a second. Runs go without, so that they repeat. */
void fh_upkeep(bool on);

int fh_bench(struct fh_allocator *allocator);
int fh_stack(struct fh_allocator *allocator);
int fh_trace(struct fh_allocator *allocator);
int fh_conformance(struct fh_allocator *allocator);
int fh_torture(struct fh_allocator *allocator);

#endif
