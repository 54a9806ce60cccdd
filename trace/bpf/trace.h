/* What the programs and the reader of their records agree on. `src/bpf/record.rs` is the other side. */
#ifndef HOLDFAST_TRACE_H
#define HOLDFAST_TRACE_H

/* The first byte of a record. */
enum kind { KIND_CALL = 1, KIND_BEGAN, KIND_EXEC, KIND_ENDED, KIND_TIME, KIND_SIGNAL, KIND_IO_URING };

enum { CALL_HAS_PARTS = 1, CALL_HAS_ALL_ARGUMENTS = 2, CALL_RESTARTED = 4, CALL_UNFINISHED = 8 };
enum { ABI_X86_64 = 0, ABI_I386 = 1, ABI_X32 = 2 };
/* Of a call in whose place a filter had SIGSYS sent to a handler: `Call::TRAPPED`. */
#define RESULT_TRAPPED (-0x7fffffffffffffffll - 1)

enum object { OBJECT_NONE, OBJECT_UNKNOWN, OBJECT_FILE, OBJECT_DIRECTORY, OBJECT_BLOCK, OBJECT_CHARACTER, OBJECT_TERMINAL,
	      OBJECT_PIPE, OBJECT_SOCKET, OBJECT_EVENTFD, OBJECT_TIMERFD, OBJECT_SIGNALFD, OBJECT_EPOLL, OBJECT_NOTIFY,
	      OBJECT_PIDFD, OBJECT_IO_URING, OBJECT_ANONYMOUS, OBJECT_OTHER };

/* What is to be known of a call, by its number: which argument is its descriptor (0 none, 1 the first), and flags. */
enum { FACT_DESCRIPTOR = 7, FACT_MAPPING = 8, FACT_MORE_ARGUMENTS = 16 };
#define FACTS 1024
/* Of character devices; greater numbers are those of no terminal. */
#define MAJORS 256

struct settings {
	__u8 facts_64[FACTS], facts_32[FACTS];
	__u64 terminals[MAJORS / 64]; /* a bit for each major number */
	__u32 tracer;
	__u32 only_copies; /* reads of other memory are made as on kernels before 6.2 */
};

struct counters {
	__u64 lost_calls, lost_others, missed_threads;
	__s64 live;
	__u32 marked;
	__u32 level; /* of the tracer's name space of processes */
};

/* Whom the tracer wants, and from when on. */
enum { WANTED_PROCESS, WANTED_THREAD };
enum { WANTED_NOW, WANTED_FROM_EXEC };

struct wanted {
	__u32 what, number;
};

enum end { END_KNOWN, END_BY_EXEC };

/* Where the time off the CPU went. */
enum part { PART_SLEEP, PART_WAIT, PART_IO_WAIT, PART_QUEUE, PARTS };

struct call {
	__u8 kind, flags, abi, object;
	__u32 number;
	__u32 process, thread;
	__u64 start_ns, wall_ns;
	__s64 result;
	__u64 arguments[3];
	/* then, as the flags say: __u64 parts_ns[PARTS]; __u64 more_arguments[3]; then perhaps the next call of the thread */
};

/* Calls that a thread holds before they are sent, and what says that it holds none any more. */
enum { HELD = 16, HELD_CLOSED = HELD + 1 };

struct thread {
	__u8 kind, how, signal, opcode;
	__u32 other;
	__u32 process, thread;
	__u64 at_ns;
	__u64 cpu_ns; /* of KIND_IO_URING: how many operations */
	__u64 queue_ns;
	char command[16];
};

#endif
