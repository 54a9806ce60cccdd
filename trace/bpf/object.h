/* What the descriptor is that a call works on. */
#ifndef HOLDFAST_OBJECT_H
#define HOLDFAST_OBJECT_H

#include "kernel.h"
#include "trace.h"

/* Set before the programs are loaded. */
const volatile struct settings settings;

/* Anonymous inodes have no type; their one name tells what they are. */
static __noinline __u8 object_by_name(struct file *file)
{
	char name[8] = {};
	const unsigned char *text = BPF_CORE_READ(file, f_path.dentry, d_name.name);

	bpf_probe_read_kernel(name, sizeof(name), text);
	if (!__builtin_memcmp(name, "[eventfd", 8))
		return OBJECT_EVENTFD;
	if (!__builtin_memcmp(name, "[eventpo", 8))
		return OBJECT_EPOLL;
	if (!__builtin_memcmp(name, "[timerfd", 8))
		return OBJECT_TIMERFD;
	if (!__builtin_memcmp(name, "[signalf", 8))
		return OBJECT_SIGNALFD;
	if (!__builtin_memcmp(name, "[io_urin", 8))
		return OBJECT_IO_URING;
	if (!__builtin_memcmp(name, "[pidfd]", 8))
		return OBJECT_PIDFD;
	if (!__builtin_memcmp(name, "inotify", 8) || !__builtin_memcmp(name, "[fanotif", 8))
		return OBJECT_NOTIFY;
	return OBJECT_OTHER;
}

static __always_inline __u8 character_device(__u32 device)
{
	__u32 major = device >> MINOR_BITS;

	if (major >= MAJORS)
		return OBJECT_CHARACTER;
	return settings.terminals[major / 64] >> (major % 64) & 1 ? OBJECT_TERMINAL : OBJECT_CHARACTER;
}

/* Of what most files are; OBJECT_NONE if the mode is not enough to tell. */
static __always_inline __u8 object_by_mode(__u16 mode)
{
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return OBJECT_PIPE;
	case S_IFSOCK:
		return OBJECT_SOCKET;
	case S_IFDIR:
		return OBJECT_DIRECTORY;
	case S_IFBLK:
		return OBJECT_BLOCK;
	}
	return OBJECT_NONE;
}

/* Newer kernels have anonymous inodes, and those of processes, as regular files inside. */
static __always_inline __u8 object_by_file_system(__u64 magic, __u32 flags)
{
	if (magic == PID_FS_MAGIC)
		return OBJECT_PIDFD;
	return flags & S_ANON_INODE ? OBJECT_NONE : OBJECT_FILE;
}

/* Kernels that have this (6.2) let a program read as fast as from memory of its own. */
extern void *bpf_rdonly_cast(const void *from, __u32 type) __ksym __weak;

static __always_inline __u8 object_by_casts(struct file **slot)
{
	/* Any structure that begins with a pointer reads one. */
	struct list_head *pointer = bpf_rdonly_cast(slot, bpf_core_type_id_kernel(struct list_head));
	struct file *file = bpf_rdonly_cast(pointer->next, bpf_core_type_id_kernel(struct file));
	struct inode *inode = file->f_inode;
	__u16 mode = inode->i_mode;
	__u8 object = object_by_mode(mode);

	if (!pointer->next)
		return OBJECT_UNKNOWN;
	if ((mode & S_IFMT) == S_IFCHR)
		return character_device(inode->i_rdev);
	if ((mode & S_IFMT) == S_IFREG)
		object = object_by_file_system(inode->i_sb->s_magic, inode->i_flags);
	return object ?: object_by_name(file);
}

static __noinline __u8 object_by_copies(struct file **slot)
{
	struct file *file = 0;
	struct inode *inode;
	__u16 mode;
	__u8 object;

	if (bpf_probe_read_kernel(&file, sizeof(file), slot) || !file)
		return OBJECT_UNKNOWN;
	inode = BPF_CORE_READ(file, f_inode);
	mode = BPF_CORE_READ(inode, i_mode);
	object = object_by_mode(mode);
	if ((mode & S_IFMT) == S_IFCHR)
		return character_device(BPF_CORE_READ(inode, i_rdev));
	if ((mode & S_IFMT) == S_IFREG)
		object = object_by_file_system(BPF_CORE_READ(inode, i_sb, s_magic), BPF_CORE_READ(inode, i_flags));
	return object ?: object_by_name(file);
}

static __always_inline __u8 object_of(struct task_struct *task, __u32 index, int is_rare)
{
	struct fdtable *table;

	if ((__s32)index < 0)
		return OBJECT_NONE;
	if (bpf_ksym_exists(bpf_rdonly_cast) && !settings.only_copies && !is_rare) {
		task = bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));
		table = task->files->fdt;
		return index < table->max_fds ? object_by_casts(table->fd + index) : OBJECT_UNKNOWN;
	}
	table = BPF_CORE_READ(task, files, fdt);
	return index < BPF_CORE_READ(table, max_fds) ? object_by_copies(BPF_CORE_READ(table, fd) + index) : OBJECT_UNKNOWN;
}

static __always_inline __u64 argument(struct pt_regs *regs, __u8 abi, __u8 index)
{
	if (index == 1)
		return abi == ABI_I386 ? regs->bx : regs->di;
	if (index == 2)
		return abi == ABI_I386 ? regs->cx : regs->si;
	return abi == ABI_I386 ? regs->di : regs->r8;
}

static __always_inline __u8 facts_of(__u8 abi, __u32 number)
{
	number &= ~X32_BIT;
	if (number >= FACTS)
		return FACT_MORE_ARGUMENTS;
	return abi == ABI_I386 ? settings.facts_32[number] : settings.facts_64[number];
}

static __always_inline __u8 look_at_object(struct task_struct *task, struct pt_regs *regs, __u8 abi, __u8 facts, int is_rare)
{
	__u8 index = facts & FACT_DESCRIPTOR;

	if ((facts & FACT_MAPPING) && ((abi == ABI_I386 ? regs->si : regs->r10) & MAP_ANONYMOUS))
		return OBJECT_ANONYMOUS;
	return index ? object_of(task, argument(regs, abi, index), is_rare) : OBJECT_NONE;
}

#endif
