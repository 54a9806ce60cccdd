/*
 * holdfast.h: persistent memory for programs in C and C++, for applets in the sandbox and for native programs.
 *
 * A heap outlives the program that fills it. It is reached with ordinary loads and stores; pointers into it
 * stay valid from run to run. The names nvmalloc, nvread and nvmmap are those of Kannan et al., "NVM Heaps for
 * Accelerating Browser-based Applications"; qnvmalloc, qnvretrieve and qnvfree follow Luo et al., "qNVRAM: quasi
 * Non-Volatile RAM for Low Overhead Persistency Enforcement in Smartphones".
 *
 *     struct state *s = nvread("state", NULL);
 *     if (!s) s = nvmalloc("state", sizeof *s);        // all zero the first time
 *     nv_tx_begin();
 *     nv_tx_add(&s->count, sizeof s->count);           // before the store
 *     s->count++;
 *     nv_tx_commit();                                  // all or nothing, also under kill -9
 *
 * Which heap: an applet gets the one that `holdfast run APPLET --heap NAME` grants. A native program names it
 * with nv_open, or its user does with HOLDFAST_HEAP=NAME (and HOLDFAST_HEAP_SIZE=64MiB, and
 * HOLDFAST_HEAP_BACKING=file for a new heap that is larger than the pool, HOLDFAST_RESERVE=16MiB as nv_reserve) in the
 * environment.
 * Every other function opens the heap at its first use (not after nv_close: then only nv_open does). The two kinds of programs keep pointers of different
 * sizes, so neither opens a heap that the other made, unless it is a portable one (nv_portable).
 *
 * Served heaps (native programs): with HOLDFAST_KEEPER=SOCKET in the environment the heap comes from the keeper that serves
 * there (holdfast keeper run --serve), in a name space of this user's that no other user gets to, with the keeper's quotas;
 * neither a home nor a key is needed. Its limit stays (nv_set_limit is NV_UNSUPPORTED), as is its mode: direct, in
 * memory. What a program stored is there for the next one when it is killed, and it goes on when the keeper is; after
 * both were killed the heap is as of the last nv_commit, of whatever level. While no keeper runs, what would need it
 * (growth, nv_commit, nv_close) waits 5 seconds for one and is NV_NO_KEEPER then, with the heap open still; a program that
 * ends then leaves the last commit. Without HOLDFAST_KEEPER, home, pool and key of the user are used, as HOLDFAST_HOME
 * and HOLDFAST_POOL say or by default.
 *
 * Functions that return a pointer return NULL, those that return int return a nonzero nv_error, when they
 * fail; nv_message says what happened and what to do.
 *
 * Threads (native programs and native applets; an applet in WebAssembly has one): every function may be called from any thread, one lock keeps
 * them apart (nvmalloc and nvfree of anonymous objects of up to 1 KiB do without in a native program: each thread has
 * room of its own, which goes back when it ends). There is one transaction at a time, and it is the process's: what any thread allocates, frees or
 * adds while it is open belongs to it. A program whose threads use transactions needs a lock of its own
 * around each.
 *
 * fork (native programs): the heap stays with the parent. In a child, made by fork, _Fork or clone, every function
 * fails with NV_FORKED (nv_session returns 0), and the heap's memory is not there: touching it is a SIGSEGV. exec is
 * fine. Until the child ends or execs, the heap counts as held. (A child of vfork is the parent's memory: it may exec
 * and nothing else, as ever.)
 *
 * End: exit and a return from main close a native heap (a checkpoint makes it durable), after all handlers of
 * atexit and static destructors of the program. While other threads are left, the heap cannot be closed under them:
 * it stays mapped until the process is gone, and then it is as after a kill, so what was stored is there, and what is
 * durable is what nv_commit made so. (In the mode `atomic` everything counts that was stored until then; a thread that
 * stores afterwards stops.) For more, end your threads or call nv_close first. A program that is killed loses nothing
 * of what it stored; the next one rolls an open transaction back.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. */
enum nv_error {
    NV_OK = 0,
    NV_NOT_GRANTED = 1,     /* no heap: the run was started without --heap, or nv_open was not called */
    NV_LIMIT_REACHED = 2,   /* the heap is as large as it may get */
    NV_NO_ROOM = 3,         /* the pool is full */
    NV_UNSUPPORTED = 4,     /* not offered here (a durability level that there is not; in an applet nv_open with a name, nv_set_limit, nv_rollback) */
    NV_FAILED = 5,          /* the host or the library failed */
    NV_NOT_ALLOCATED = 6,   /* not the start of an allocated object */
    NV_MEMORY_SHAPE = 7,    /* the heap's addresses are not free */
    NV_NOT_A_HEAP = 8,      /* the region's bytes are not a heap for this kind of program */
    NV_NAME_TAKEN = 9,      /* a root of that name exists */
    NV_NO_SUCH_ROOT = 10,   /* no root has that name */
    NV_BAD_NAME = 11,       /* roots' names have 1 to 255 bytes of UTF-8 */
    NV_BAD_RANGE = 12,      /* not inside the heap; no range that nvmmap returned */
    NV_NO_TRANSACTION = 13, /* no transaction is open */
    NV_IN_TRANSACTION = 14, /* not possible while a transaction is open */
    NV_HELD = 15,           /* another process has the heap, or another thread the compartment */
    NV_FORKED = 16,         /* the heap is the parent's */
    NV_TOO_SMALL = 17,      /* the range of that name is smaller than asked for */
    NV_IS_OPEN = 18,        /* a heap is open already, or this thread is in a compartment */
    NV_BAD_FILE = 19,       /* the heap, or a file of it, is damaged, foreign or newer */
    NV_READ_ONLY = 20,      /* the run's key may only read the heap: nvread works, what would change it does not; nor does opening one whose last program was killed in a transaction */
    NV_DENIED = 21,         /* the heap belongs to another key, which granted this one nothing; or to another user */
    NV_ABORTED = 22,        /* a part of the transaction was aborted or failed, so all of it was rolled back */
    NV_LAYOUT = 23,         /* the root has another layout, or none */
    NV_ALIGNMENT = 24,      /* no power of two, or more than 2 MiB */
    NV_IS_ROOT = 25,        /* only nvremove frees a root, by its name */
    NV_NO_HOST = 26,        /* an applet that no host has started: run it with holdfast run */
    NV_BAD_EXPORT = 27,     /* a name that cannot be exported, or is; too many; or too late (holdfast_applet.h) */
    NV_REPLIED = 28,        /* the call has its result already (holdfast_applet.h) */
    NV_NO_MEMORY = 29,      /* an applet's own memory is used up (holdfast_applet.h) */
    NV_TOO_LARGE = 30,      /* more than one message holds, which is 64 MiB (holdfast_applet.h) */
    NV_CANCELLED = 31,      /* the host no longer wants the result (holdfast_applet.h) */
    NV_NO_KEEPER = 32,      /* no keeper answers where HOLDFAST_KEEPER says */
    NV_SUPERSEDED = 33,     /* another program had the heap since the keeper was lost: nv_close it, nv_open it again */
    NV_NOTHING = 34,        /* there is none: no such node, attribute or match (holdfast_document.h) */
    NV_STALE = 35,          /* the document was closed, parsed again, compacted or removed: open it again (holdfast_document.h) */
    NV_DOC_DAMAGED = 36,    /* bytes of the document are wrong (holdfast_document.h) */
    NV_DOC_LIMIT = 37,      /* the page or the selector is more than a limit allows (holdfast_document.h) */
    NV_BAD_SELECTOR = 38,   /* a selector that is none; nv_message says where (holdfast_document.h) */
    NV_BAD_CHANGE = 39,     /* a change that no tree can have (holdfast_document.h) */
    NV_NO_FILE = 40,        /* the page's file cannot be read; nv_message says why (holdfast_document.h) */
    NV_OTHER_HEAP = 41,     /* a transaction is open in another heap: two heaps do not commit together */
    NV_NO_FUNCTION = 42,    /* the host lets this program call no function of this name (holdfast_import) */
    NV_HOST_FUNCTION = 43,  /* a function of the host failed, panicked or took too long (holdfast_call_host) */
    NV_PORTABLE_HEAP = 44,  /* the heap is portable, and this program would store pointers (nv_portable) */
    NV_NOT_PORTABLE = 45    /* the heap holds pointers, and this program would store references (nv_portable) */
};

/* Durability levels, named after the failure that they survive. */
enum nv_level {
    NV_PROCESS = 0, /* crash, hang or kill of the program or its host: always, at no cost */
    NV_SYSTEM = 1,  /* crash or reset of the machine; where the pool's memory does not survive that, as NV_POWER */
    NV_POWER = 2    /* loss of power */
};

/* Opens the heap of this name, or makes it with room for limit_bytes (0: 64 MiB; one that exists keeps its
 * limit). A heap that its owner granted to this user's key for reading is opened for that: any number of readers at once,
 * what would change it is NV_READ_ONLY, a store a SIGSEGV. With a NULL name: the heap that the environment names, in an applet the one that was granted. */
int nv_open(const char *name, uint64_t limit_bytes);

/* The same in the mode `atomic`: stores count only together, at nv_commit (of whatever level), at nv_close and when the
 * program ends by itself. A kill or crash leaves the heap as of the last of these, so that code which knows nothing
 * of transactions is never found half-way. Costs a copy of each page that is stored to. The same heap may be opened
 * in either mode. (The environment's choice: HOLDFAST_HEAP_MODE=atomic. In an applet the host chooses, with
 * `holdfast run --atomic`, and this is NV_UNSUPPORTED.) */
int nv_open_atomic(const char *name, uint64_t limit_bytes);

/* Rolls an open transaction back, makes everything durable (NV_POWER) and lets the heap go: pointers into it are
 * invalid until it is opened again, which takes an nv_open: every other function fails with NV_NOT_GRANTED. In an applet
 * the heap stays, and the host does the rest when it ends. */
int nv_close(void);

/* A number for the time that a heap is open: another one after each opening (in an applet after each nv_close), 0 while
 * none is. What belongs to a heap can tell by it whether that one is still open. Never fails. */
uint64_t nv_session(void);

/* Allocates size bytes of zeroes, aligned to 16. With a name: a root, found again by nvread; object and name
 * appear together or not at all. With a NULL name: an anonymous child, to be linked from something. */
void *nvmalloc(const char *name, size_t size);

/* As nvmalloc(NULL, size), but the bytes are whatever was there, those of freed objects of this heap: for what is filled
 * at once, as with malloc(3). A program that gives its roots pointer maps fills it before it links it. */
void *nvmalloc_uninit(size_t size);

/* The root of this name, or NULL. If size is not NULL, it receives the size that was asked for. */
void *nvread(const char *name, size_t *size);

/* The same with a layout: a number of the program's choice but 0, such as a hash over the fields' names, types and
 * places, which the root carries. nvread_typed returns the root only with the layout that it was made with; else it is
 * NULL with NV_LAYOUT. (nvread reads every root.) The layout 0 stands for none: then they are nvmalloc and nvread. */
void *nvmalloc_typed(const char *name, size_t size, uint64_t layout);
void *nvread_typed(const char *name, uint64_t layout, size_t *size);

/* Allocates an anonymous object of size bytes of zeroes at an alignment: a power of two, at most 2 MiB. */
void *nvaligned_alloc(size_t alignment, size_t size);

/* Gives an anonymous object room for size bytes and returns where it lies then: in place where there is room, else
 * elsewhere, aligned to 16, with its content copied and the old place freed. New bytes are not zeroed. In a
 * transaction all of it belongs to that; the link to the object is the caller's, to be changed in the same one. With
 * NULL it is nvmalloc(NULL, size). A root is refused, as by nvfree. On failure the object is as it was. */
void *nvrealloc(void *object, size_t size);

/* Makes room for size bytes of objects at once, before they are allocated: growing then costs one request to the host instead
 * of many. A hint: nothing is allocated by it, what was reserved and not used stays with the heap, and a heap grows without
 * it as well. In a native program the memory is also laid out in huge pages now, where the kernel has them (about half a
 * millisecond for each MiB), so that filling it takes few page faults. Beyond the limit it is NV_LIMIT_REACHED, and
 * nothing changes. */
int nv_reserve(uint64_t size);

/* Gives an anonymous object a name, in one step: it is a root of size bytes from then on. So a root can be made ready
 * before anybody finds it. The layout is 0, or a number that the root carries. One name per object: NV_NAME_TAKEN. */
int nvname(const char *name, void *object, size_t size, uint64_t layout);

/* Frees an anonymous object; in a transaction, when it commits. NULL is no object, and no error. A root is refused with
 * NV_IS_ROOT, if it is one of the latest few hundred that this run has asked for by name; do not rely on it for others. */
int nvfree(void *object);

/* Removes a root and frees its object (not what the object points to). */
int nvremove(const char *name);

/* A named range of at least size bytes, aligned to 4096, zero when it is made; the same range at every call
 * and in every run. Size 0: the range if there is one. It is the root "nvmap/NAME": nvremove frees it. */
void *nvmmap(const char *name, size_t size);

/* Ends the use of a range; its data stays. It fails if start is not what nvmmap returned. */
int nvunmmap(void *start);

/* Objects that are known by a user's id and a magic number instead of a name: the root "qnv/UID/MAGIC", both in
 * decimal. As nvmalloc, nvread and nvremove with that name. In a native program the uid must be that of the program
 * (geteuid): others are NV_DENIED, as their objects are in heaps of their own, which the keeper (with
 * HOLDFAST_KEEPER) or the modes of their files (without) keep from this user. In an applet it is any number. These three
 * need no heap to be named: in a native program that has opened none, and whose environment names none, they open one of
 * the program's own, `app.` and the name of its file, which is the heap of all functions from then on. */
void *qnvmalloc(uint64_t uid, uint64_t magic, size_t size);
void *qnvretrieve(uint64_t uid, uint64_t magic, size_t *size);
int qnvfree(uint64_t uid, uint64_t magic);

/* Transactions. Announce every range of existing data with nv_tx_add before storing to it; allocations and
 * frees in between belong to the transaction by themselves. Nested ones count as part of the outermost. An abort at
 * any depth aborts it all: everything is rolled back when the outermost level ends, what the levels around the
 * aborted one still do included, and if that is nv_tx_commit, it returns NV_ABORTED. What is open when the program
 * dies is rolled back at the next start. */
int nv_tx_begin(void);
int nv_tx_add(const void *start, size_t size);
int nv_tx_commit(void);
int nv_tx_abort(void);

/* Brings a range of the heap from the processor's caches to memory, and returns when it is there: for programs that order
 * their stores themselves, without transactions. Where the heap's pool is memory that survives a reset of the machine
 * (`holdfast doctor` says so), what was persisted is there after one, and what is stored afterwards is not there without it:
 *
 *     entries[n] = entry;  nv_persist(&entries[n], sizeof entry);
 *     *count = n + 1;      nv_persist(count, sizeof *count);
 *
 * Transactions do this by themselves, and so do allocations, frees and nv_commit(NV_SYSTEM). Elsewhere, and in the mode
 * `atomic`, it does nothing: stores survive the program's death as they are made, and more by nv_commit. No file system
 * and no system call takes part. A range outside of the heap is NV_BAD_RANGE. (PMDK has it as pmem_persist.) */
int nv_persist(const void *start, size_t size);

/* Makes everything stored so far durable at a level (see enum nv_level) and, in the mode `atomic`, count. Outside
 * transactions only, and no other thread may store to the heap meanwhile. */
int nv_commit(int level);

/* Sets how far the open heap may grow: rounded up to 64 KiB, no less than it has; nothing moves. For the heap's owner,
 * and no other thread may store to the heap meanwhile. In an applet NV_UNSUPPORTED: `holdfast heap limit` does it. */
int nv_set_limit(uint64_t limit_bytes);

/* In the mode `atomic`: undoes everything that was stored, allocated and freed since the last nv_commit (or since the
 * heap was opened). Pointers to what was there at that commit stay valid, all others are to be forgotten: read the
 * roots again. Outside transactions only, and no other thread may use the heap meanwhile. In the mode `direct`, and in
 * an applet, it is NV_UNSUPPORTED: nv_tx_abort undoes a transaction. These refusals change nothing. Where the system
 * fails (NV_FAILED and the like), the heap is closed, its pointers are invalid, and nv_open finds the last commit. */
int nv_rollback(void);

/* Portable heaps: for native applets, applets in WebAssembly, native programs and Python alike. Such a heap holds references
 * (NV_REF of holdfast_portable.h: 4 bytes that count from the heap's first byte) where others hold pointers, in types that
 * lie in memory the same way everywhere (NV_PORTABLE). It ends at 32 GiB, where references end.
 *
 * nv_portable(1), before a heap is opened: the program stores no pointers in the heaps that it opens from now on. New ones
 * become portable, portable ones open, and one that holds pointers is NV_NOT_PORTABLE. Without it, or after nv_portable(0), a
 * portable heap is NV_PORTABLE_HEAP. What a heap is never changes. Heaps that are open stay as they are.
 *
 * nv_base: the first byte of the open heap, from which references count. It stays where it is for as long as the heap is
 * open; in another run it is elsewhere. */
void nv_portable(int is_portable);
void *nv_base(void);

/* Several heaps.
 *
 * nv_heap_open: the heap of this name, beside those that are open. In an applet a heap that its host granted under this name
 * (`holdfast run --heap dict:ro --heap notes`, or NAME=HEAP for another name in the applet; NULL: the first one), in a native
 * program any heap of the user's, made with room for 64 MiB if there is none (NULL: the one of nv_open, or of the
 * environment). The same handle while the heap is open. NULL when it fails. */
typedef struct nv_heap nv_heap;
nv_heap *nv_heap_open(const char *name);

/* As nv_close, of one heap: a native program lets it go, and the handle is of no heap from then on, nor is that of the heap
 * of nv_open after nv_close; in an applet an open transaction is rolled back, and the heap stays. */
int nv_heap_close(nv_heap *heap);

/* The functions above in the heap of a handle; those without a handle work in the heap of nv_open, in an applet in the one
 * that was granted first. A handle that is none is NV_NOT_GRANTED. Each heap has its own transactions, and a transaction
 * belongs to one heap: a thread that has one open is refused one in another heap (NV_OTHER_HEAP), because the two would not
 * commit together; a range of another heap is NV_BAD_RANGE for nv_tx_add_in. What is allocated or freed in another heap
 * meanwhile is an operation of its own. In the mode `atomic` each heap counts for itself, too. */
void *nv_malloc_in(nv_heap *heap, const char *name, size_t size);
void *nv_malloc_uninit_in(nv_heap *heap, size_t size);
void *nv_read_in(nv_heap *heap, const char *name, size_t *size);
void *nv_malloc_typed_in(nv_heap *heap, const char *name, size_t size, uint64_t layout);
void *nv_read_typed_in(nv_heap *heap, const char *name, uint64_t layout, size_t *size);
void *nv_aligned_alloc_in(nv_heap *heap, size_t alignment, size_t size);
void *nv_realloc_in(nv_heap *heap, void *object, size_t size);
int nv_name_in(nv_heap *heap, const char *name, void *object, size_t size, uint64_t layout);
int nv_free_in(nv_heap *heap, void *object);
int nv_remove_in(nv_heap *heap, const char *name);
void *nv_mmap_in(nv_heap *heap, const char *name, size_t size);
int nv_unmmap_in(nv_heap *heap, void *start);
void *qnv_malloc_in(nv_heap *heap, uint64_t uid, uint64_t magic, size_t size);
void *qnv_retrieve_in(nv_heap *heap, uint64_t uid, uint64_t magic, size_t *size);
int qnv_free_in(nv_heap *heap, uint64_t uid, uint64_t magic);
int nv_reserve_in(nv_heap *heap, uint64_t size);
void *nv_base_in(nv_heap *heap);
int nv_tx_begin_in(nv_heap *heap);
int nv_tx_add_in(nv_heap *heap, const void *start, size_t size);
int nv_tx_commit_in(nv_heap *heap);
int nv_tx_abort_in(nv_heap *heap);
int nv_persist_in(nv_heap *heap, const void *start, size_t size);
int nv_commit_in(nv_heap *heap, int level);

/* Compartments: a heap for one thread.
 *
 * nv_compartment_enter: the calling thread has the compartment of this name for itself until it leaves, or ends. What it does
 * without a handle meanwhile (allocating, reading roots, transactions, nv_reserve, nv_commit) is done there, without waiting
 * for other threads; handles go on meaning their heaps, so nv_heap_open(NULL) before is the way to what threads share. With
 * a NULL name: the first compartment that no thread has.
 *
 * In an applet its host grants them (`holdfast run APPLET --heap jobs --compartments 4`: thread-1 to thread-4; in Python
 * HeapGrant("jobs", compartments=4); in Rust Grants::compartments), each with its quota. The name is the whole one
 * (jobs+thread-1) or the thread's. An applet in WebAssembly has one thread, and one compartment. In a native program they
 * are compartments of the heap of nv_open, made when they are first entered, with a quota of HOLDFAST_COMPARTMENT_QUOTA
 * (8MiB), which nv_set_limit in the compartment cannot change (`holdfast heap limit HEAP+NAME SIZE` does).
 *
 * Compartments are never merged: an object of one is NV_NOT_ALLOCATED for nvfree and nvname in another, a range of one
 * NV_BAD_RANGE. One that is full is NV_LIMIT_REACHED and leaves the others as they are. What is in one is found by the next
 * thread that enters it, in this run or another.
 *
 * Refused: NV_NOT_GRANTED, there is none of that name; NV_HELD, another thread has it, or another process; NV_IS_OPEN, this
 * thread is in one already; NV_IN_TRANSACTION, it has a transaction open; NV_UNSUPPORTED, the compartment is in the mode
 * `atomic`, or a keeper's. In one, nv_open is NV_IS_OPEN, and nv_close and nv_rollback are NV_UNSUPPORTED; in an applet
 * nv_open and nv_close do in one what they do elsewhere.
 *
 * What it is worth: threads share an address space. Where the processor has protection keys (`holdfast doctor` says so),
 * an applet's compartment beside the heap that was granted first can be neither read nor written by a thread that has not
 * entered it: a stray access is a SIGSEGV, with a sentence on standard error. (A thread that is made inside of a compartment
 * begins with its maker's rights; signal handlers have none. The 15 keys are the process's: what finds none is not closed.)
 * That stops mistakes, not malice: any code may write the processor's register. Without keys, and in a native program
 * without a sandbox, a pointer reaches everywhere, and a compartment is a heap of one's own and nothing more. Applets
 * that must not trust each other are processes of their own. */
int nv_compartment_enter(const char *name);

/* Leaves it; an open transaction is rolled back. NV_NOT_GRANTED where the thread is in none. */
int nv_compartment_leave(void);

/* The error of this thread's last call that failed; what to do about an error; and the whole story of that last
 * call (names, sizes, who holds the heap), valid until the thread's next call that fails. */
int nv_errno(void);
const char *nv_strerror(int error); /* never null */
const char *nv_message(void);

#ifdef __cplusplus
}
#endif

#endif
