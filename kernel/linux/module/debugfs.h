/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FH_DEBUGFS_H
#define FH_DEBUGFS_H

#include <linux/types.h>

#include "allocator.h"

/* /sys/kernel/debug/freehold: stat, validate, drain, and the files that start a run. */
void fh_debugfs_create(struct fh_allocator *allocator);
void fh_debugfs_remove(void);

/* Checks every invariant; what is wrong is printed to the log. */
bool fh_validate(const struct fh_allocator *allocator);

#endif
