/* The programs in the kernel: one record for each system call of each traced thread, with its time split in five. May be used under the
 * project's licences, or under the GPL, version 2, as the kernel asks of programs that use its tracing functions.
 *
 * A thread is traced when it has an entry in `threads`, which lives and dies with it. Threads get one from their maker, or from
 * `mark`, with which the tracer names the first ones. The time of a call is its wall time; what is not on the CPU is known from
 * the moments at which the thread leaves a CPU, is woken up, and has one again.
 *
 * Invariants: a record that finds no room is counted; nothing is ever waited for, and nothing in the traced program is changed.
 */
#include "kernel.h"
#include "trace.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set before the programs are loaded. */
const volatile struct settings settings;

/* What the tracer looks at. */
struct counters counters;

struct state {
	__u64 start_ns; /* of the call under way; 0 when there is none */
	__u64 parts_ns[PARTS];
	__u64 off_ns; /* when it left its CPU; 0 when it has one */
	__u64 wake_ns;
	__u64 began_ns;
	__u64 total_off_ns, total_queue_ns;
	__u64 again_ip, again_sp; /* where a call that is to begin again was made; 0 when there is none */
	__u32 again_number;
	__u32 process, thread;
	__u32 number;
	__u8 abi, object, flags, off_part;
	__u8 returns_unseen; /* from a call whose entry was not seen */
	__u8 done;
	__u8 silent; /* until its next exec */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct state);
} threads SEC(".maps");

#define OPERATIONS 256

struct operations {
	__u32 count[OPERATIONS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct operations);
} io_uring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} records SEC(".maps");

/* Processes and threads for `mark` (see `struct wanted`), and control groups by number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct wanted);
	__type(value, __u8);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} groups SEC(".maps");

static __always_inline struct state *state_of(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline struct state *current_state(void)
{
	return state_of((struct task_struct *)bpf_get_current_task_btf());
}

/* A number as the tracer's name space of processes has it. */
static __always_inline __u32 seen_number(struct pid *pid)
{
	__u32 level = counters.level;
	int number = 0;

	bpf_core_read(&number, sizeof(number), &pid->numbers[level].nr);
	return number;
}

static __always_inline void copy_arguments(__u64 *to, struct pt_regs *regs, __u8 abi)
{
	if (abi == ABI_I386) {
		to[0] = (__u32)regs->bx;
		to[1] = (__u32)regs->cx;
		to[2] = (__u32)regs->dx;
		to[3] = (__u32)regs->si;
		to[4] = (__u32)regs->di;
		to[5] = (__u32)regs->bp;
	} else {
		to[0] = regs->di;
		to[1] = regs->si;
		to[2] = regs->dx;
		to[3] = regs->r10;
		to[4] = regs->r8;
		to[5] = regs->r9;
	}
}

static __always_inline void copy_parts(__u64 *to, struct state *state)
{
	to[0] = state->parts_ns[0];
	to[1] = state->parts_ns[1];
	to[2] = state->parts_ns[2];
	to[3] = state->parts_ns[3];
}

#define PARTS_BYTES (PARTS * sizeof(__u64))
#define ARGUMENTS_BYTES (6 * sizeof(__u64))

static __always_inline void fill(struct call *call, struct state *state, __u64 now, __s64 result, __u8 flags)
{
	call->kind = KIND_CALL;
	call->flags = flags;
	call->abi = state->abi;
	call->object = state->object;
	call->number = state->number;
	call->process = state->process;
	call->thread = state->thread;
	call->start_ns = state->start_ns;
	call->wall_ns = now - state->start_ns;
	call->result = result;
}

/* The size of a reservation must be known beforehand, so there are four. */
static __always_inline void send_call(struct state *state, struct pt_regs *regs, __u64 now, __s64 result, __u8 flags)
{
	struct call *call;

	if (flags & CALL_HAS_ARGUMENTS) {
		if (flags & CALL_HAS_PARTS) {
			call = bpf_ringbuf_reserve(&records, sizeof(*call) + PARTS_BYTES + ARGUMENTS_BYTES, 0);
			if (!call)
				goto lost;
			copy_parts((__u64 *)(call + 1), state);
			copy_arguments((__u64 *)(call + 1) + PARTS, regs, state->abi);
		} else {
			call = bpf_ringbuf_reserve(&records, sizeof(*call) + ARGUMENTS_BYTES, 0);
			if (!call)
				goto lost;
			copy_arguments((__u64 *)(call + 1), regs, state->abi);
		}
	} else if (flags & CALL_HAS_PARTS) {
		call = bpf_ringbuf_reserve(&records, sizeof(*call) + PARTS_BYTES, 0);
		if (!call)
			goto lost;
		copy_parts((__u64 *)(call + 1), state);
	} else {
		call = bpf_ringbuf_reserve(&records, sizeof(*call), 0);
		if (!call)
			goto lost;
	}
	fill(call, state, now, result, flags);
	bpf_ringbuf_submit(call, BPF_RB_NO_WAKEUP);
	return;
lost:
	__sync_fetch_and_add(&counters.lost_calls, 1);
}

static __always_inline struct thread *reserve_thread(struct state *state, __u8 kind, __u64 now)
{
	struct thread *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&counters.lost_others, 1);
		return 0;
	}
	__builtin_memset(record, 0, sizeof(*record));
	record->kind = kind;
	record->process = state->process;
	record->thread = state->thread;
	record->at_ns = now;
	return record;
}

static __always_inline void copy_command(struct thread *record, struct task_struct *task)
{
	bpf_core_read(record->command, sizeof(record->command), &task->comm);
}

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

static __always_inline __u8 object_of(struct task_struct *task, __u64 descriptor)
{
	struct fdtable *table = task->files->fdt;
	struct file **slot = table->fd;
	struct file *file = 0;
	struct inode *inode = 0;
	__u16 mode = 0;
	__u32 index = descriptor;

	if ((__s32)index < 0)
		return OBJECT_NONE;
	if (index >= table->max_fds)
		return OBJECT_UNKNOWN;
	if (bpf_probe_read_kernel(&file, sizeof(file), slot + index) || !file)
		return OBJECT_UNKNOWN;
	if (bpf_core_read(&inode, sizeof(inode), &file->f_inode) || bpf_core_read(&mode, sizeof(mode), &inode->i_mode))
		return OBJECT_UNKNOWN;
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return OBJECT_PIPE;
	case S_IFSOCK:
		return OBJECT_SOCKET;
	case S_IFDIR:
		return OBJECT_DIRECTORY;
	case S_IFBLK:
		return OBJECT_BLOCK;
	case S_IFCHR: {
		__u32 major = BPF_CORE_READ(inode, i_rdev) >> MINOR_BITS;
		int terminal = major == TTY_MAJOR || major == TTYAUX_MAJOR ||
			       (major >= UNIX98_PTY_FIRST_MAJOR && major <= UNIX98_PTY_LAST_MAJOR);
		return terminal ? OBJECT_TERMINAL : OBJECT_CHARACTER;
	}
	case S_IFREG:
		/* Newer kernels have anonymous inodes, and those of processes, as regular files inside. */
		if (BPF_CORE_READ(inode, i_sb, s_magic) == PID_FS_MAGIC)
			return OBJECT_PIDFD;
		if (!(BPF_CORE_READ(inode, i_flags) & S_ANON_INODE))
			return OBJECT_FILE;
	}
	return object_by_name(file);
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
		return FACT_ARGUMENTS;
	return abi == ABI_I386 ? settings.facts_32[number] : settings.facts_64[number];
}

static __always_inline __u8 look_at_object(struct task_struct *task, struct pt_regs *regs, __u8 abi, __u8 facts)
{
	__u8 index = facts & FACT_DESCRIPTOR;

	if ((facts & FACT_MAPPING) && ((abi == ABI_I386 ? regs->si : regs->r10) & MAP_ANONYMOUS))
		return OBJECT_ANONYMOUS;
	return index ? object_of(task, argument(regs, abi, index)) : OBJECT_NONE;
}

/* A started program counts from its exec on: what the tracer's child does before is not its. */
static __noinline int ends_silence(struct state *state, __u32 number)
{
	if (!state || number != NR_EXECVE)
		return 0;
	state->silent = 0;
	state->began_ns = bpf_ktime_get_ns();
	state->total_off_ns = 0;
	state->total_queue_ns = 0;
	return 1;
}

SEC("tp_btf/sys_enter")
int on_enter(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u32 number = ctx[1];
	__u8 abi = ABI_X86_64, facts;

	if (!state || state->done)
		return 0;
	if (state->silent && !ends_silence(state, number))
		return 0;
	if (task->thread_info.status & TS_COMPAT)
		abi = ABI_I386;
	else if (number & X32_BIT && number != ~0u) {
		abi = ABI_X32;
		number &= ~X32_BIT;
	}
	facts = facts_of(abi, number);
	state->number = number;
	state->abi = abi;
	state->flags = facts & FACT_ARGUMENTS ? CALL_HAS_ARGUMENTS : 0;
	state->object = look_at_object(task, regs, abi, facts);
	state->returns_unseen = 0;
	if (state->again_ip && regs->ip == state->again_ip && regs->sp == state->again_sp) {
		__u32 restart = abi == ABI_I386 ? NR_RESTART_SYSCALL_32 : NR_RESTART_SYSCALL_64;
		if (number == state->again_number || number == restart)
			state->flags |= CALL_RESTARTED;
		state->again_ip = 0;
	}
	state->parts_ns[PART_SLEEP] = 0;
	state->parts_ns[PART_WAIT] = 0;
	state->parts_ns[PART_IO_WAIT] = 0;
	state->parts_ns[PART_QUEUE] = 0;
	state->start_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int is_dying(struct task_struct *task)
{
	return task->signal->flags & SIGNAL_GROUP_EXIT || task->pending.signal.sig[0] & (1ul << (SIGKILL - 1));
}

SEC("tp_btf/sys_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__s64 result = ctx[1];
	__u64 now;
	__u8 flags;

	if (!state || state->done)
		return 0;
	now = bpf_ktime_get_ns();
	if (!state->start_ns) {
		/* A seccomp filter answers calls before their entry is told of: their time is not known. */
		__u8 seen = !state->returns_unseen && !state->silent;
		__u32 number = regs->orig_ax;
		state->returns_unseen = 0;
		if (!seen)
			return 0;
		state->abi = task->thread_info.status & TS_COMPAT ? ABI_I386 : ABI_X86_64;
		state->number = number;
		state->flags = CALL_HAS_ARGUMENTS;
		state->object = OBJECT_NONE;
		state->start_ns = now;
	}
	flags = state->flags;
	if (result <= -ERESTARTSYS && result >= -ERESTART_RESTARTBLOCK) {
		if (is_dying(task))
			flags |= CALL_UNFINISHED;
		state->again_ip = regs->ip;
		state->again_sp = regs->sp;
		state->again_number = state->number;
	}
	send_call(state, regs, now, result, flags);
	state->start_ns = 0;
	return 0;
}

static __always_inline void leave(struct state *state, __u8 part, __u64 now)
{
	state->off_ns = now;
	state->wake_ns = 0;
	state->off_part = part;
}

/* Counts the time off the CPU up to now. */
static __always_inline void account(struct state *state, __u64 now)
{
	__u64 woken = state->off_part == PART_QUEUE ? state->off_ns : state->wake_ns ?: now;
	__u64 blocked = woken - state->off_ns, queued = now - woken;

	if (state->start_ns) {
		if (state->off_part < PARTS)
			state->parts_ns[state->off_part & 3] += blocked;
		state->parts_ns[PART_QUEUE] += queued;
		state->flags |= CALL_HAS_PARTS;
	}
	state->total_off_ns += now - state->off_ns;
	state->total_queue_ns += queued;
	state->off_ns = 0;
}

static __always_inline __u8 part_of(struct task_struct *task, __u32 why)
{
	if (why & (TASK_INTERRUPTIBLE | TASK_STOPPED | TASK_TRACED))
		return PART_SLEEP;
	if (why & TASK_UNINTERRUPTIBLE)
		return BPF_CORE_READ_BITFIELD(task, in_iowait) ? PART_IO_WAIT : PART_WAIT;
	return PART_QUEUE;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	int preempted = ctx[0] & 1;
	struct task_struct *former = (struct task_struct *)ctx[1], *next = (struct task_struct *)ctx[2];
	__u32 why = ctx[3];
	struct state *state = state_of(former);

	if (state)
		leave(state, preempted ? PART_QUEUE : part_of(former, why), bpf_ktime_get_ns());
	state = state_of(next);
	if (state && state->off_ns)
		account(state, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	struct state *state = state_of(task);

	if (state && state->off_ns && !state->wake_ns)
		state->wake_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(__u64 *ctx)
{
	return woken((struct task_struct *)ctx[0]);
}

static __always_inline struct state *trace_thread(struct task_struct *task, __u64 now)
{
	struct state *state = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!state) {
		__sync_fetch_and_add(&counters.missed_threads, 1);
		return 0;
	}
	state->thread = seen_number(task->thread_pid);
	state->process = seen_number(task->group_leader->thread_pid);
	state->began_ns = now;
	state->returns_unseen = 1;
	__sync_fetch_and_add(&counters.live, 1);
	return state;
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *child = (struct task_struct *)ctx[1];
	struct state *parent = current_state(), *state;
	struct thread *record;
	__u64 now;

	if (!parent || parent->done)
		return 0;
	now = bpf_ktime_get_ns();
	state = trace_thread(child, now);
	if (!state)
		return 0;
	/* It waits for its first CPU from now on. */
	leave(state, PART_QUEUE, now);
	record = reserve_thread(state, KIND_BEGAN, now);
	if (record) {
		record->other = parent->process;
		copy_command(record, child);
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

/* An exec by another thread than the first gives that thread the number of the process. */
SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx[0];
	struct state *state = state_of(task);
	struct thread *record;
	__u32 former;

	if (!state || state->done)
		return 0;
	former = state->thread;
	state->thread = state->process;
	record = reserve_thread(state, KIND_EXEC, bpf_ktime_get_ns());
	if (record) {
		record->other = former;
		copy_command(record, task);
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

SEC("tp_btf/signal_deliver")
int on_signal(__u64 *ctx)
{
	int signal = ctx[0];
	struct k_sigaction *action = (struct k_sigaction *)ctx[2];
	struct state *state = current_state();
	struct thread *record;

	if (!state || state->done)
		return 0;
	/* With a handler, most calls that would begin again do not: the program sees EINTR. */
	if (state->again_ip && (__u64)action->sa.sa_handler > 1) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs((struct task_struct *)bpf_get_current_task_btf());
		__s64 result = regs->ax;
		if (result == -ERESTARTNOHAND || result == -ERESTART_RESTARTBLOCK ||
		    (result == -ERESTARTSYS && !(action->sa.sa_flags & SA_RESTART)))
			state->again_ip = 0;
	}
	record = reserve_thread(state, KIND_SIGNAL, bpf_ktime_get_ns());
	if (record) {
		record->signal = signal;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

static __always_inline void send_operations(struct task_struct *task, struct state *state, __u64 now)
{
	struct operations *operations = bpf_task_storage_get(&io_uring, task, 0, 0);
	struct thread *record;
	int opcode;

	if (!operations)
		return;
	for (opcode = 0; opcode < OPERATIONS; opcode++) {
		if (!operations->count[opcode])
			continue;
		record = reserve_thread(state, KIND_IO_URING, now);
		if (!record)
			continue;
		record->opcode = opcode;
		record->other = operations->count[opcode];
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
}

/* All that is to be said of a thread that ends, or of one that is let go. */
static __always_inline void send_rest(struct task_struct *task, struct state *state, __u64 now, __u8 kind)
{
	struct thread *record;

	if (state->off_ns)
		account(state, now);
	if (state->start_ns)
		send_call(state, (struct pt_regs *)bpf_task_pt_regs(task), now, 0, state->flags | CALL_UNFINISHED);
	state->start_ns = 0;
	state->done = 1;
	send_operations(task, state, now);
	record = reserve_thread(state, kind, now);
	if (!record)
		return;
	record->cpu_ns = now - state->began_ns - state->total_off_ns;
	record->queue_ns = state->total_queue_ns;
	if (kind == KIND_ENDED) {
		record->other = task->exit_code;
		record->how = task->signal->group_exec_task ? END_BY_EXEC : END_KNOWN;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_process_exit")
int on_end(void *ctx __attribute__((unused)))
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);

	if (!state)
		return 0;
	if (!state->done)
		send_rest(task, state, bpf_ktime_get_ns(), KIND_ENDED);
	__sync_fetch_and_add(&counters.live, -1);
	return 0;
}

/* Operations of an io_uring are no calls. Threads of the kernel that queue them count for the first thread of the process. */
SEC("tp_btf/io_uring_submit_req")
int on_operation(__u64 *ctx)
{
	struct io_kiocb *request = (struct io_kiocb *)ctx[0];
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct operations *operations;
	__u8 opcode = request->opcode;

	if (!state_of(task)) {
		task = task->group_leader;
		if (!state_of(task))
			return 0;
	}
	operations = bpf_task_storage_get(&io_uring, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (operations)
		__sync_fetch_and_add(&operations->count[opcode], 1);
	else
		__sync_fetch_and_add(&counters.lost_others, 1);
	return 0;
}

/* A thread that is traced from the middle of its life: it may be off its CPU, and in a call. */
static __always_inline void begin_in_the_middle(struct task_struct *task, struct state *state, __u64 now)
{
	__u32 why = task->__state;
	struct pt_regs *regs;
	struct thread *record = reserve_thread(state, KIND_BEGAN, now);

	if (record) {
		record->other = state->thread == state->process ? seen_number(task->real_parent->group_leader->thread_pid)
								  : state->process;
		copy_command(record, task);
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	if (task->on_cpu || state->silent)
		return;
	leave(state, part_of(task, why), now);
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (why & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE) && (__s64)regs->orig_ax >= 0) {
		state->number = regs->orig_ax;
		state->abi = task->thread_info.status & TS_COMPAT ? ABI_I386 : ABI_X86_64;
		state->flags = CALL_HAS_ARGUMENTS;
		state->object = look_at_object(task, regs, state->abi, facts_of(state->abi, state->number));
		state->returns_unseen = 0;
		state->start_ns = now;
	}
}

static __always_inline int begin_if_new(struct task_struct *task, __u8 how)
{
	struct state *state;
	__u64 now = bpf_ktime_get_ns();

	if (state_of(task))
		return 0;
	state = trace_thread(task, now);
	if (!state)
		return 0;
	state->silent = how == WANTED_FROM_EXEC;
	begin_in_the_middle(task, state, now);
	__sync_fetch_and_add(&counters.marked, 1);
	return 0;
}

/* Read by the tracer: every thread that it wants is traced from now on. */
SEC("iter/task")
int mark(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_struct *reader = (struct task_struct *)bpf_get_current_task_btf();
	struct wanted key;
	__u8 *how;

	if (!task)
		return 0;
	counters.level = BPF_CORE_READ(reader, thread_pid, level);
	key.what = WANTED_PROCESS;
	key.number = seen_number(task->group_leader->thread_pid);
	how = bpf_map_lookup_elem(&wanted, &key);
	if (!how) {
		key.what = WANTED_THREAD;
		key.number = seen_number(task->thread_pid);
		how = bpf_map_lookup_elem(&wanted, &key);
	}
	return how ? begin_if_new(task, *how) : 0;
}

/* Read by the tracer: what is known of every traced thread is told, and they are let go. */
SEC("iter/task")
int let_go(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct state *state;

	if (!task)
		return 0;
	state = state_of(task);
	if (state && !state->done)
		send_rest(task, state, bpf_ktime_get_ns(), KIND_TIME);
	return 0;
}

/* A process that is moved into a traced control group. */
SEC("tp_btf/cgroup_attach_task")
int on_moved(__u64 *ctx)
{
	struct cgroup *group = (struct cgroup *)ctx[0];
	struct task_struct *task = (struct task_struct *)ctx[2];
	__u64 id = group->kn->id;

	if (bpf_map_lookup_elem(&groups, &id) && task->tgid != settings.tracer)
		return begin_if_new(task, WANTED_NOW);
	return 0;
}
