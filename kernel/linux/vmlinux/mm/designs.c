// SPDX-License-Identifier: MIT OR Apache-2.0
/* The designs of this image; the command line picks one, before any of them is called. */
#define pr_fmt(fmt) "freehold: " fmt

#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/printk.h>
#include <linux/string.h>

#include "freehold.h"

#define DESIGNS(DESIGN)				\
	DESIGN(own, "freehold")			\
	DESIGN(zone_lock, "zone-lock")		\
	DESIGN(lazy_merge, "lazy-merge")	\
	DESIGN(cluster, "cluster")		\
	DESIGN(merge_ahead, "merge-ahead")	\
	DESIGN(block_owner, "block-owner")

/* All calls are direct ones. The annotation only says so to objtool. */
#ifdef CONFIG_X86_KERNEL_IBT
#define DIRECT(design, type, name, params, args)			\
	asm(".pushsection .discard.noendbr\n\t"				\
	    ".long " #design "_" #name "\n\t"				\
	    ".popsection");
#else
#define DIRECT(design, type, name, params, args)
#endif
#define DECLARE(design, name)						\
	FREEHOLD_CALLS(FREEHOLD_DECLARE, design)			\
	FREEHOLD_CALLS(DIRECT, design)
DESIGNS(DECLARE)

#define DEFINE(design, type, name, params, args) DEFINE_STATIC_CALL(freehold_##name, own_##name);
FREEHOLD_CALLS(DEFINE, own)

struct freehold_design {
	const char *name;
#define MEMBER(design, type, name, params, args) type (*name) params;
	FREEHOLD_CALLS(MEMBER, own)
};

#define FUNCTION(design, type, name, params, args) .name = design##_##name,
#define DESIGN(design, text) { text, FREEHOLD_CALLS(FUNCTION, design) },
static const struct freehold_design designs[] = { DESIGNS(DESIGN) };

static const struct freehold_design *chosen __ro_after_init = designs;

const char *freehold_name(void)
{
	return chosen->name;
}

bool freehold_is_own(void)
{
	return chosen == designs;
}

void __init freehold_choose(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(designs); i++) {
		if (strcmp(name, designs[i].name))
			continue;
		chosen = &designs[i];
#define UPDATE(design, type, name, params, args) static_call_update(freehold_##name, chosen->name);
		FREEHOLD_CALLS(UPDATE, own)
		return;
	}
	pr_warn("freehold=%s: there are on, off", name);
	for (i = 0; i < ARRAY_SIZE(designs); i++)
		pr_cont(", %s", designs[i].name);
	pr_cont("\n");
}
