// SPDX-License-Identifier: MIT OR Apache-2.0
/* The files of the module: what an allocator says about itself, and switches that start runs. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>

#include "debugfs.h"
#include "runs.h"

static struct dentry *dir;

bool fh_validate(const struct fh_allocator *allocator)
{
	return fh_call(allocator, validate, NULL);
}

static int stat_show(struct seq_file *file, void *unused)
{
	fh_call((struct fh_allocator *)file->private, stat, file);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stat);

/* Reading fails with EIO if an invariant does not hold; the log says which. */
static int validate_show(struct seq_file *file, void *unused)
{
	struct fh_allocator *allocator = file->private;

	if (fh_call(allocator, validate, file))
		return 0;
	return fh_validate(allocator) ? 0 : -EIO;
}
DEFINE_SHOW_ATTRIBUTE(validate);

/* A file that does one thing when it is written to, whatever is written. One run at a time. */
struct run {
	const char *name;
	int (*run)(struct fh_allocator *allocator);
};

static int drain(struct fh_allocator *allocator)
{
	fh_call(allocator, drain);
	return 0;
}

static const struct run runs[] = {
	{ "drain", drain },
	{ "bench", fh_bench },
	{ "stack", fh_stack },
	{ "trace", fh_trace },
	{ "conformance", fh_conformance },
	{ "torture", fh_torture },
};

static struct fh_allocator *subject;
static DEFINE_MUTEX(running);

static ssize_t run_write(struct file *file, const char __user *text, size_t len, loff_t *at)
{
	const struct run *run = file_inode(file)->i_private;
	int err;

	if (mutex_lock_interruptible(&running))
		return -EINTR;
	fh_upkeep(false);
	err = run->run(subject);
	fh_upkeep(true);
	mutex_unlock(&running);
	return err ? err : len;
}

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = run_write,
	.llseek = noop_llseek,
};

void fh_debugfs_create(struct fh_allocator *allocator)
{
	size_t i;

	subject = allocator;
	dir = debugfs_create_dir("freehold", NULL);
	debugfs_create_file("stat", 0444, dir, allocator, &stat_fops);
	debugfs_create_file("validate", 0400, dir, allocator, &validate_fops);
	for (i = 0; i < ARRAY_SIZE(runs); i++)
		debugfs_create_file(runs[i].name, 0200, dir, (void *)&runs[i], &run_fops);
}

void fh_debugfs_remove(void)
{
	debugfs_remove_recursive(dir);
}
