/*
 * A ledger that programs of every kind keep in one portable heap: its types, and what can be done with it. It takes the
 * heap as a handle, and knows nothing of applets.
 */
#ifndef LEDGER_H
#define LEDGER_H

#include <holdfast_portable.h>

#define LEDGER_SHELVES 8

struct entry;
typedef NV_REF(struct entry) entry_ref;

struct entry {
    entry_ref older;
    entry_ref below; /* on the same shelf */
    uint64_t number;
    char by[8];
};
NV_PORTABLE(entry, 1, (ref, older, entry), (ref, below, entry), (value, number), (values, by));

struct ledger {
    entry_ref newest;
    uint32_t count;
    uint64_t sum;
    entry_ref shelves[LEDGER_SHELVES];
};
NV_PORTABLE(ledger, 1, (ref, newest, entry), (value, count), (value, sum), (refs, shelves, entry));

/* The ledger of a heap, made if there is none; NULL, as ever, with nv_errno. */
struct ledger *ledger_in(nv_heap *heap);

/* Adds an entry by somebody of that name, and drops the oldest one beyond a hundred; without the commit if is_open. 0, or an
 * nv_error. */
int ledger_add(nv_heap *heap, const char *by, int is_open);

/* NULL, or what of the ledger contradicts the rest: every entry is read by both ways that lead to it. */
const char *ledger_fault(nv_heap *heap, const struct ledger *ledger);

/* The error of reading the ledger as a type that differs in one field: of its own for 0, of an entry for 1. */
int ledger_error_as_other(nv_heap *heap, int which);

#endif
