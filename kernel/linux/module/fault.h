/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FH_FAULT_H
#define FH_FAULT_H

#include "allocator.h"

/* /dev/freehold, whose mappings are faulted in. */
int fh_fault_register(struct fh_allocator *allocator);
void fh_fault_unregister(void);

#endif
