/* What the programs use of the kernel: types, constants, and the few fields of its structures that are read. The loader finds the
 * fields in the running kernel by their names (BTF), so neither offsets nor the kernel's own headers are needed. */
#ifndef HOLDFAST_KERNEL_H
#define HOLDFAST_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* linux/bpf.h */
enum { BPF_MAP_TYPE_RINGBUF = 27, BPF_MAP_TYPE_TASK_STORAGE = 29, BPF_MAP_TYPE_HASH = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1, BPF_RB_NO_WAKEUP = 1 };

/* linux/sched.h: the state of a thread that leaves its CPU. */
enum { TASK_INTERRUPTIBLE = 1, TASK_UNINTERRUPTIBLE = 2, TASK_STOPPED = 4, TASK_TRACED = 8 };

/* In task_struct.flags: it is about to end, or has. */
enum { PF_EXITING = 4 };

/* asm/thread_info.h: in thread_info.status while a 32-bit call is served. The other door is told by a bit of the number. */
enum { TS_COMPAT = 2 };
#define X32_BIT 0x40000000u

/* linux/stat.h, linux/fs.h, linux/pidfs.h */
enum { S_IFMT = 0170000, S_IFIFO = 010000, S_IFCHR = 020000, S_IFDIR = 040000, S_IFBLK = 060000, S_IFREG = 0100000,
       S_IFSOCK = 0140000 };
enum { S_ANON_INODE = 1 << 19 };
#define MINOR_BITS 20
#define PID_FS_MAGIC 0x50494446ul

/* linux/errno.h: results of calls that begin again, and what a signal's handler makes of them. */
enum { ERESTARTSYS = 512, ERESTARTNOINTR = 513, ERESTARTNOHAND = 514, ERESTART_RESTARTBLOCK = 516 };
#define SA_RESTART 0x10000000ul
enum { NR_EXECVE = 59, NR_RESTART_SYSCALL_64 = 219, NR_RESTART_SYSCALL_32 = 0 };
enum { SIGNAL_GROUP_EXIT = 4, SIGKILL = 9, SIGSYS = 31 };

/* asm/mman.h */
enum { MAP_ANONYMOUS = 0x20 };

#define FROM_KERNEL __attribute__((preserve_access_index))

struct pt_regs {
	unsigned long bp, bx, r10, r9, r8, cx, dx, si, di, ax, orig_ax, ip, sp;
} FROM_KERNEL;

struct thread_info {
	unsigned int status;
} FROM_KERNEL;

struct list_head {
	struct list_head *next;
} FROM_KERNEL;

struct super_block {
	unsigned long s_magic;
} FROM_KERNEL;

struct inode {
	__u16 i_mode;
	unsigned int i_flags;
	__u32 i_rdev;
	struct super_block *i_sb;
} FROM_KERNEL;

struct qstr {
	const unsigned char *name;
} FROM_KERNEL;

struct dentry {
	struct qstr d_name;
} FROM_KERNEL;

struct path {
	struct dentry *dentry;
} FROM_KERNEL;

struct file {
	struct path f_path;
	struct inode *f_inode;
} FROM_KERNEL;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} FROM_KERNEL;

struct files_struct {
	struct fdtable *fdt;
} FROM_KERNEL;

struct upid {
	int nr;
} FROM_KERNEL;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} FROM_KERNEL;

typedef struct {
	unsigned long sig[1];
} FROM_KERNEL sigset_t;

struct sigpending {
	sigset_t signal;
} FROM_KERNEL;

struct task_struct;

typedef struct {
	int counter;
} FROM_KERNEL atomic_t;

struct signal_struct {
	atomic_t live;
	unsigned int flags;
	int group_exit_code;
	struct task_struct *group_exec_task;
} FROM_KERNEL;

struct sigaction {
	void *sa_handler;
	unsigned long sa_flags;
} FROM_KERNEL;

struct k_sigaction {
	struct sigaction sa;
} FROM_KERNEL;

struct sighand_struct {
	struct k_sigaction action[64];
} FROM_KERNEL;

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state, flags;
	__u32 tgid;
	int on_cpu, exit_code;
	unsigned int in_iowait : 1;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	struct sighand_struct *sighand;
	struct sigpending pending;
	sigset_t blocked;
	struct pid *thread_pid;
	struct task_struct *group_leader, *real_parent;
} FROM_KERNEL;

struct kernfs_node {
	__u64 id;
} FROM_KERNEL;

struct cgroup {
	struct kernfs_node *kn;
} FROM_KERNEL;

struct io_kiocb {
	__u8 opcode;
} FROM_KERNEL;

struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} FROM_KERNEL;

#endif
