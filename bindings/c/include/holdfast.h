/*
 * holdfast.h: persistent memory for applets in C and C++.
 *
 * An applet that runs under `holdfast run APPLET --heap NAME` has a heap that outlives it. It is reached with
 * ordinary loads and stores; pointers into it stay valid from run to run. The names nvmalloc and nvread are
 * those of Kannan et al., "NVM Heaps for Accelerating Browser-based Applications".
 *
 *     struct state *s = nvread("state", NULL);
 *     if (!s) s = nvmalloc("state", sizeof *s);        // all zero the first time
 *     nv_tx_begin();
 *     nv_tx_add(&s->count, sizeof s->count);           // before the store
 *     s->count++;
 *     nv_tx_commit();                                  // all or nothing, also under kill -9
 *
 * Every function attaches to the heap at its first use. Functions that return a pointer return NULL, those
 * that return int return a nonzero nv_error, when they fail; nv_strerror says what to do. Not thread-safe.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. */
enum nv_error {
    NV_OK = 0,
    NV_NOT_GRANTED = 1,    /* the run was started without --heap */
    NV_LIMIT_REACHED = 2,  /* the heap is as large as it may get */
    NV_NO_ROOM = 3,        /* the pool is full */
    NV_UNSUPPORTED = 4,    /* the host does not offer this durability level */
    NV_FAILED = 5,         /* the host failed */
    NV_NOT_ALLOCATED = 6,  /* not the start of an allocated object */
    NV_MEMORY_SHAPE = 7,   /* no room at 2 GiB of linear memory for the heap */
    NV_NOT_A_HEAP = 8,     /* the region's bytes are not a heap for this program */
    NV_NAME_TAKEN = 9,     /* a root of that name exists */
    NV_NO_SUCH_ROOT = 10,  /* no root has that name */
    NV_BAD_NAME = 11,      /* names have 1 to 255 bytes of UTF-8 */
    NV_BAD_RANGE = 12,     /* not inside the heap */
    NV_NO_TRANSACTION = 13, /* no transaction is open */
    NV_IN_TRANSACTION = 14 /* not possible while a transaction is open */
};

/* Durability levels, named after the failure that they survive. */
enum nv_level {
    NV_PROCESS = 0, /* crash, hang or kill of the applet or its host: always, at no cost */
    NV_SYSTEM = 1,  /* crash or reset of the machine */
    NV_POWER = 2    /* loss of power */
};

/* Allocates size bytes of zeroes, aligned to 16. With a name: a root, found again by nvread; object and name
 * appear together or not at all. With a NULL name: an anonymous child, to be linked from something. */
void *nvmalloc(const char *name, size_t size);

/* The root of this name, or NULL. If size is not NULL, it receives the size that was asked for. */
void *nvread(const char *name, size_t *size);

/* Frees an anonymous object; in a transaction, when it commits. */
int nvfree(void *object);

/* Removes a root and frees its object (not what the object points to). */
int nvremove(const char *name);

/* Transactions. Announce every range of existing data with nv_tx_add before storing to it; allocations and
 * frees in between belong to the transaction by themselves. Nested ones count as part of the outermost; an
 * abort at any depth aborts it all. What is open when the program dies is rolled back at the next start. */
int nv_tx_begin(void);
int nv_tx_add(const void *start, size_t size);
int nv_tx_commit(void);
int nv_tx_abort(void);

/* Makes everything stored so far durable at a level (see enum nv_level). Outside transactions only. */
int nv_commit(int level);

/* The error of the last call that failed, and what to do about an error. */
int nv_errno(void);
const char *nv_strerror(int error);

#ifdef __cplusplus
}
#endif

#endif
