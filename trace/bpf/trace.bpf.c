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
#include "object.h"
#include "records.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* A started program counts from its exec on: what the tracer's child does before is not its. */
static __noinline int ends_silence(struct state *state, __u32 number)
{
	if (!state || number != NR_EXECVE)
		return 0;
	state->silent = 0;
	state->starting = 1;
	state->began_ns = bpf_ktime_get_ns();
	state->total_off_ns = 0;
	state->total_queue_ns = 0;
	return 1;
}

/* By which door a call comes, and its number there. A negative number names no call of any door, whatever its other bits are. */
static __always_inline void set_door(struct state *state, struct task_struct *task, __u32 number)
{
	__u8 abi = ABI_X86_64;

	if (task->thread_info.status & TS_COMPAT)
		abi = ABI_I386;
	else if (number & X32_BIT && (__s32)number >= 0) {
		abi = ABI_X32;
		number &= ~X32_BIT;
	}
	state->number = number;
	state->abi = abi;
}

SEC("tp_btf/sys_enter")
int on_enter(__u64 *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);
	struct pt_regs *regs = (struct pt_regs *)ctx[0];
	__u32 number = ctx[1];
	__u8 abi, facts;

	if (!state || state->done)
		return 0;
	if (state->silent && !ends_silence(state, number))
		return 0;
	set_door(state, task, number);
	number = state->number;
	abi = state->abi;
	facts = facts_of(abi, number);
	state->flags = facts & FACT_MORE_ARGUMENTS ? CALL_HAS_ALL_ARGUMENTS : 0;
	state->object = look_at_object(task, regs, abi, facts, 0);
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
	return BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT || task->pending.signal.sig[0] & (1ul << (SIGKILL - 1));
}

/* A filter of seccomp answers calls before their entry is told of: their time is not known. */
static __always_inline void enter_unseen(struct state *state, struct task_struct *task, struct pt_regs *regs, __u64 now)
{
	set_door(state, task, regs->orig_ax);
	state->flags = CALL_HAS_ALL_ARGUMENTS;
	state->object = OBJECT_NONE;
	state->start_ns = now;
}

/* A filter that kills or traps sends SIGSYS, for which the kernel takes away a block, and has the number of the call for an answer. A
 * SIGSYS that is blocked was sent by somebody, and may be pending for long. */
static __always_inline int is_refused_by_signal(struct task_struct *task, struct pt_regs *regs, __s64 result)
{
	unsigned long signals = task->pending.signal.sig[0] & ~task->blocked.sig[0];

	return result == (__s64)regs->orig_ax && signals & (1ul << (SIGSYS - 1));
}

/* If it kills, no handler takes the signal: the kernel has taken away the one that there was. */
static __always_inline int has_handler_of_sigsys(struct task_struct *task)
{
	return BPF_CORE_READ(task, sighand, action[SIGSYS - 1].sa.sa_handler) != 0;
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
		__u8 seen = !state->returns_unseen && !state->silent;
		state->returns_unseen = 0;
		if (!seen)
			return 0;
		enter_unseen(state, task, regs, now);
		if (is_refused_by_signal(task, regs, result)) {
			if (has_handler_of_sigsys(task))
				result = RESULT_TRAPPED;
			else
				state->flags |= CALL_UNFINISHED;
		}
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
	__u64 off = state->off_ns;
	__u64 woken = state->off_part == PART_QUEUE ? off : state->wake_ns ?: now;
	__u64 blocked, queued;

	if (woken > now)
		woken = now;
	blocked = between(off, woken);
	queued = between(off + blocked, now);
	if (state->start_ns) {
		if (state->off_part < PARTS)
			state->parts_ns[state->off_part & 3] += blocked;
		state->parts_ns[PART_QUEUE] += queued;
		state->flags |= CALL_HAS_PARTS;
	}
	state->total_off_ns += between(off, now);
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

	if (state && !state->done) {
		leave(state, preempted ? PART_QUEUE : part_of(former, why), bpf_ktime_get_ns());
		flush_held(state);
	}
	state = state_of(next);
	if (state && !state->done && state->off_ns)
		account(state, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int woken(struct task_struct *task)
{
	struct state *state = state_of(task);

	if (state && !state->done && state->off_ns && !state->wake_ns)
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
	state->thread = seen_number(task);
	state->process = seen_number(BPF_CORE_READ(task, group_leader));
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

static __always_inline __u32 parent_of(struct task_struct *task)
{
	return seen_number(BPF_CORE_READ(task, real_parent, group_leader));
}

/* The exec of the started program is where it begins. An exec by another thread than the first gives that thread the number of the process. */
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
	record = reserve_thread(state, state->starting ? KIND_BEGAN : KIND_EXEC, bpf_ktime_get_ns());
	if (record) {
		record->other = state->starting ? parent_of(task) : former;
		copy_command(record, task);
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	state->starting = 0;
	return 0;
}

SEC("tp_btf/signal_deliver")
int on_signal(__u64 *ctx)
{
	int signal = ctx[0];
	struct k_sigaction *action = (struct k_sigaction *)ctx[2];
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);
	struct thread *record;

	if (!state || state->done)
		return 0;
	/* With a handler, most calls that would begin again do not: the program sees EINTR. */
	if (state->again_ip && (__u64)BPF_CORE_READ(action, sa.sa_handler) > 1) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
		__s64 result = regs->ax;
		if (result == -ERESTARTNOHAND || result == -ERESTART_RESTARTBLOCK ||
		    (result == -ERESTARTSYS && !(BPF_CORE_READ(action, sa.sa_flags) & SA_RESTART)))
			state->again_ip = 0;
	}
	/* A signal that ends a process is delivered as SIGKILL, also to threads that end with it for another reason. */
	if (signal == SIGKILL && BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)
		signal = BPF_CORE_READ(task, signal, group_exit_code) & 0x7f;
	if (!signal || (signal == SIGKILL && BPF_CORE_READ(task, signal, group_exec_task)))
		return 0;
	record = reserve_thread(state, KIND_SIGNAL, bpf_ktime_get_ns());
	if (record) {
		record->signal = signal;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

struct counted {
	struct state *state;
	struct operations *operations;
	__u64 now;
};

static long send_operation(__u64 opcode, struct counted *counted)
{
	__u64 count = counted->operations->count[opcode & (OPERATIONS - 1)];
	struct thread *record;

	if (!count)
		return 0;
	record = reserve_thread(counted->state, KIND_IO_URING, counted->now);
	if (record) {
		record->opcode = opcode;
		record->cpu_ns = count;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	return 0;
}

static __always_inline void send_operations(struct task_struct *task, struct state *state, __u64 now)
{
	struct counted counted = { state, bpf_task_storage_get(&io_uring, task, 0, 0), now };

	if (counted.operations)
		bpf_loop(OPERATIONS, send_operation, &counted, 0);
}

/* All that is to be said of a thread that ends, or of one that is let go; whether it was not said before. The end of the trace and that
 * of the thread may come together. */
static __always_inline int send_rest(struct task_struct *task, struct state *state, __u64 now, __u8 kind)
{
	struct thread *record;

	if (__sync_lock_test_and_set(&state->done, TOLD) == TOLD)
		return 0;
	/* It may have gone on since it was frozen. */
	now = state->end_ns ?: now;
	close_held(state);
	if (state->off_ns)
		account(state, now);
	if (state->start_ns)
		send_call(state, (struct pt_regs *)bpf_task_pt_regs(task), now, 0, state->flags | CALL_UNFINISHED);
	state->start_ns = 0;
	send_operations(task, state, now);
	record = reserve_thread(state, kind, now);
	if (!record)
		return 1;
	record->cpu_ns = between(state->began_ns + state->total_off_ns, now);
	record->queue_ns = state->total_queue_ns;
	if (kind == KIND_ENDED) {
		record->other = task->exit_code;
		record->how = BPF_CORE_READ(task, signal, group_exec_task) ? END_BY_EXEC : END_KNOWN;
	}
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 1;
}

SEC("tp_btf/sched_process_exit")
int on_end(void *ctx __attribute__((unused)))
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);
	__u64 now;

	if (!state)
		return 0;
	now = bpf_ktime_get_ns();
	/* A filter that kills one thread of several does so before the call is told of, and sends no signal. Before Linux 6.0 the only
	 * thread of a process that a signal kills may look like that, too: its call was told of. */
	if (!state->done && !state->silent && !state->start_ns && task->exit_code == SIGSYS &&
	    !(BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT) && BPF_CORE_READ(task, signal, live.counter) > 0)
		enter_unseen(state, task, (struct pt_regs *)bpf_task_pt_regs(task), now);
	if (send_rest(task, state, now, KIND_ENDED))
		__sync_fetch_and_add(&counters.live, -1);
	return 0;
}

/* Operations of an io_uring are no calls. Threads of the kernel that queue them count for the first thread of the process. */
SEC("tp_btf/io_uring_submit_req")
int on_operation(__u64 *ctx)
{
	struct io_kiocb *request = (struct io_kiocb *)ctx[0];
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct state *state = state_of(task);
	struct operations *operations;
	__u8 opcode = request->opcode;

	if (!state) {
		task = task->group_leader;
		state = state_of(task);
	}
	if (!state || state->done)
		return 0;
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
	struct thread *record;

	if (state->silent)
		return;
	record = reserve_thread(state, KIND_BEGAN, now);
	if (record) {
		record->other = state->thread == state->process ? parent_of(task) : state->process;
		copy_command(record, task);
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	}
	if (task->on_cpu)
		return;
	leave(state, part_of(task, why), now);
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (why & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE) && (__s64)regs->orig_ax >= 0) {
		set_door(state, task, regs->orig_ax);
		state->flags = CALL_HAS_ALL_ARGUMENTS;
		state->object = look_at_object(task, regs, state->abi, facts_of(state->abi, state->number), 1);
		state->returns_unseen = 0;
		state->start_ns = now;
	}
}

static __always_inline int begin_if_new(struct task_struct *task, __u8 how)
{
	struct state *state;
	__u64 now = bpf_ktime_get_ns();

	/* One that ends would never be told of again. */
	if (state_of(task) || task->flags & PF_EXITING)
		return 0;
	state = trace_thread(task, now);
	if (!state)
		return 0;
	/* Nor of one that began to end meanwhile, if its end was told of before it was traced. */
	if (task->flags & PF_EXITING) {
		if (__sync_lock_test_and_set(&state->done, TOLD) != TOLD)
			__sync_fetch_and_add(&counters.live, -1);
		return 0;
	}
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
	key.number = seen_number(BPF_CORE_READ(task, group_leader));
	how = bpf_map_lookup_elem(&wanted, &key);
	if (!how) {
		key.what = WANTED_THREAD;
		key.number = seen_number(task);
		how = bpf_map_lookup_elem(&wanted, &key);
	}
	return how ? begin_if_new(task, *how) : 0;
}

/* Read by the tracer: the trace ends for every traced thread. Once the programs that were running meanwhile are done, nothing but
 * `let_go` and its end touches what is known of it. */
SEC("iter/task")
int freeze(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct state *state;

	if (!task)
		return 0;
	state = state_of(task);
	if (!state || state->done)
		return 0;
	state->end_ns = bpf_ktime_get_ns();
	__sync_val_compare_and_swap(&state->done, 0, FROZEN);
	return 0;
}

/* Read by the tracer, after that: what is known of every traced thread is told, and they are let go. */
SEC("iter/task")
int let_go(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct state *state;

	if (!task)
		return 0;
	state = state_of(task);
	if (state)
		send_rest(task, state, bpf_ktime_get_ns(), KIND_TIME);
	return 0;
}

/* A process that is moved into a traced control group. */
SEC("tp_btf/cgroup_attach_task")
int on_moved(__u64 *ctx)
{
	struct cgroup *group = (struct cgroup *)ctx[0];
	struct task_struct *task = (struct task_struct *)ctx[2];
	__u64 id = BPF_CORE_READ(group, kn, id);

	if (bpf_map_lookup_elem(&groups, &id) && task->tgid != settings.tracer)
		return begin_if_new(task, WANTED_NOW);
	return 0;
}
