/* What is kept of each thread, and the records that are made of it. */
#ifndef HOLDFAST_RECORDS_H
#define HOLDFAST_RECORDS_H

#include "kernel.h"
#include "trace.h"

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
	__u32 done; /* 0 while it is traced, then as `enum done` */
	__u64 end_ns; /* when the trace ended for it; 0 before */
	__u32 process, thread;
	__u32 number;
	__u8 abi, object, flags, off_part;
	__u8 returns_unseen; /* from a call whose entry was not seen */
	__u8 silent; /* until its next exec */
	__u8 starting; /* with that exec */
	__u32 held_calls; /* how many of these count; HELD_CLOSED: none any more */
	struct call held[HELD];
};

/* FROZEN: nothing changes it any more, and what is known is not told yet. TOLD: it is. */
enum done { FROZEN = 1, TOLD };

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct state);
} threads SEC(".maps");

#define OPERATIONS 256

struct operations {
	__u64 count[OPERATIONS];
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

/* Two CPUs read the clock, and one may be behind the other by a little. */
static __always_inline __u64 between(__u64 since_ns, __u64 now_ns)
{
	return now_ns > since_ns ? now_ns - since_ns : 0;
}

static __always_inline struct state *state_of(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline struct state *current_state(void)
{
	return state_of((struct task_struct *)bpf_get_current_task_btf());
}

/* A thread's number as the tracer's name space of processes has it. What is rare is read by copies: a kernel takes long to check
 * programs that follow pointers themselves. */
static __always_inline __u32 seen_number(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
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
	} else {
		to[0] = regs->di;
		to[1] = regs->si;
		to[2] = regs->dx;
	}
}

static __always_inline void copy_more_arguments(__u64 *to, struct pt_regs *regs, __u8 abi)
{
	if (abi == ABI_I386) {
		to[0] = (__u32)regs->si;
		to[1] = (__u32)regs->di;
		to[2] = (__u32)regs->bp;
	} else {
		to[0] = regs->r10;
		to[1] = regs->r8;
		to[2] = regs->r9;
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
#define MORE_BYTES (3 * sizeof(__u64))

static __always_inline void fill(struct call *call, struct state *state, struct pt_regs *regs, __u64 now, __s64 result, __u8 flags)
{
	call->kind = KIND_CALL;
	call->flags = flags;
	call->abi = state->abi;
	call->object = state->object;
	call->number = state->number;
	call->process = state->process;
	call->thread = state->thread;
	call->start_ns = state->start_ns;
	call->wall_ns = between(state->start_ns, now);
	call->result = result;
	copy_arguments(call->arguments, regs, state->abi);
}

static __always_inline void send_held(struct state *state, __u32 calls)
{
	if (calls > 0 && calls <= HELD && bpf_ringbuf_output(&records, state->held, calls * sizeof(struct call), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&counters.lost_calls, calls);
}

/* Sends what a thread holds; called by itself, or while it leaves its CPU. Whoever takes the number to 0 sends them, and no call is
 * put there before the thread runs on. */
static __always_inline void flush_held(struct state *state)
{
	__u32 calls = *(volatile __u32 *)&state->held_calls;

	if (calls > 0 && calls <= HELD && __sync_val_compare_and_swap(&state->held_calls, calls, 0) == calls)
		send_held(state, calls);
}

/* The same for a thread that may be running meanwhile: it holds no call any more, and what it writes is behind those that count. */
static __always_inline void close_held(struct state *state)
{
	send_held(state, __sync_lock_test_and_set(&state->held_calls, HELD_CLOSED));
}

/* A short record waits for others of its thread, since most of what sending one costs is the buffer's lock. Whether it does: not if
 * the thread was off its CPU meanwhile, which sends those that are held. */
static __always_inline int hold_call(struct state *state, struct pt_regs *regs, __u64 now, __s64 result, __u8 flags)
{
	__u32 calls = *(volatile __u32 *)&state->held_calls;

	if (calls >= HELD)
		return 0;
	fill(&state->held[calls], state, regs, now, result, flags);
	return __sync_val_compare_and_swap(&state->held_calls, calls, calls + 1) == calls;
}

/* The size of a reservation must be known beforehand, so there are four. */
static __always_inline void send_call(struct state *state, struct pt_regs *regs, __u64 now, __s64 result, __u8 flags)
{
	struct call *call;

	if (!(flags & (CALL_HAS_ALL_ARGUMENTS | CALL_HAS_PARTS)) && hold_call(state, regs, now, result, flags)) {
		if (state->held_calls == HELD)
			flush_held(state);
		return;
	}
	flush_held(state);
	if (flags & CALL_HAS_ALL_ARGUMENTS) {
		if (flags & CALL_HAS_PARTS) {
			call = bpf_ringbuf_reserve(&records, sizeof(*call) + PARTS_BYTES + MORE_BYTES, 0);
			if (!call)
				goto lost;
			copy_parts((__u64 *)(call + 1), state);
			copy_more_arguments((__u64 *)(call + 1) + PARTS, regs, state->abi);
		} else {
			call = bpf_ringbuf_reserve(&records, sizeof(*call) + MORE_BYTES, 0);
			if (!call)
				goto lost;
			copy_more_arguments((__u64 *)(call + 1), regs, state->abi);
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
	fill(call, state, regs, now, result, flags);
	bpf_ringbuf_submit(call, BPF_RB_NO_WAKEUP);
	return;
lost:
	__sync_fetch_and_add(&counters.lost_calls, 1);
}

/* What a thread did before comes before it. */
static __always_inline struct thread *reserve_thread(struct state *state, __u8 kind, __u64 now)
{
	struct thread *record;

	flush_held(state);
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
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

#endif
