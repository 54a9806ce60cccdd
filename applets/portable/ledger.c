#include "ledger.h"

#define KEPT 100

struct ledger *ledger_in(nv_heap *heap) {
    struct ledger *found = nv_read_typed_in(heap, "ledger", nv_layout(ledger), NULL);
    if (found || nv_errno() != NV_NO_SUCH_ROOT) return found;
    return nv_malloc_typed_in(heap, "ledger", sizeof *found, nv_layout(ledger));
}

/* Takes the last entry of the chain out of both chains, and frees it. */
static int drop_oldest(nv_heap *heap, void *base, struct ledger *ledger) {
    struct entry *before = nv_at(base, ledger->newest), *oldest = nv_at(base, before->older);
    while (oldest->older.units) {
        before = oldest;
        oldest = nv_at(base, oldest->older);
    }
    entry_ref *link = &ledger->shelves[oldest->number % LEDGER_SHELVES];
    while (nv_at(base, *link) != oldest) link = &nv_at(base, *link)->below;
    if (nv_tx_add_in(heap, link, sizeof *link) || nv_tx_add_in(heap, &before->older, sizeof before->older)) return 1;
    *link = oldest->below;
    before->older.units = 0;
    return nv_free_in(heap, oldest);
}

int ledger_add(nv_heap *heap, const char *by, int is_open) {
    struct ledger *ledger = ledger_in(heap);
    void *base = nv_base_in(heap);
    if (!ledger || !base || nv_tx_begin_in(heap)) return nv_errno();
    struct entry *entry = nv_malloc_in(heap, NULL, sizeof *entry);
    if (!entry || nv_tx_add_in(heap, ledger, sizeof *ledger)) goto failed;
    entry_ref *shelf = &ledger->shelves[(ledger->count + 1) % LEDGER_SHELVES];
    entry->older = ledger->newest;
    entry->below = *shelf;
    entry->number = ledger->count + 1;
    for (size_t at = 0; at < sizeof entry->by && by[at]; at++) entry->by[at] = by[at];
    nv_refer(base, ledger->newest, entry);
    *shelf = ledger->newest;
    ledger->count++;
    ledger->sum += ledger->count;
    if (ledger->count > KEPT && drop_oldest(heap, base, ledger)) goto failed;
    return is_open ? 0 : nv_tx_commit_in(heap);

failed:;
    int code = nv_errno();
    nv_tx_abort_in(heap);
    return code;
}

const char *ledger_fault(nv_heap *heap, const struct ledger *ledger) {
    void *base = nv_base_in(heap);
    if (!base) return "the heap has no base";
    if (ledger->sum != (uint64_t)ledger->count * (ledger->count + 1) / 2) return "the sum is not that of the entries";
    uint64_t kept = ledger->count < KEPT ? ledger->count : KEPT, number = ledger->count;
    for (const struct entry *entry = nv_at(base, ledger->newest); entry; entry = nv_at(base, entry->older), number--) {
        if (number + kept == ledger->count) return "there are too many entries";
        if (entry->number != number) return "an entry is not in its place";
    }
    if (number + kept != ledger->count) return "entries are missing";
    uint64_t on_shelves = 0;
    for (unsigned shelf = 0; shelf < LEDGER_SHELVES; shelf++) {
        for (const struct entry *entry = nv_at(base, ledger->shelves[shelf]); entry; entry = nv_at(base, entry->below)) {
            if (entry->number % LEDGER_SHELVES != shelf) return "an entry is on another's shelf";
            if (++on_shelves > kept) return "a shelf is a circle";
        }
    }
    return on_shelves == kept ? NULL : "entries are on no shelf";
}

/* As the ledger, but for one field. */
struct signed_ledger {
    entry_ref newest;
    int32_t count;
    uint64_t sum;
    entry_ref shelves[LEDGER_SHELVES];
};
NV_PORTABLE(signed_ledger, 1, (ref, newest, entry), (value, count), (value, sum), (refs, shelves, entry));

/* As the ledger, but for one field of its entries. */
struct unsigned_entry;
typedef NV_REF(struct unsigned_entry) unsigned_entry_ref;
struct unsigned_entry {
    unsigned_entry_ref older;
    unsigned_entry_ref below;
    uint64_t number;
    uint64_t by;
};
NV_PORTABLE(unsigned_entry, 1, (ref, older, unsigned_entry), (ref, below, unsigned_entry), (value, number), (value, by));
struct other_ledger {
    unsigned_entry_ref newest;
    uint32_t count;
    uint64_t sum;
    unsigned_entry_ref shelves[LEDGER_SHELVES];
};
NV_PORTABLE(other_ledger, 1, (ref, newest, unsigned_entry), (value, count), (value, sum), (refs, shelves, unsigned_entry));

int ledger_error_as_other(nv_heap *heap, int which) {
    uint64_t layout = which == 0 ? nv_layout(signed_ledger) : nv_layout(other_ledger);
    return nv_read_typed_in(heap, "ledger", layout, NULL) ? NV_OK : nv_errno();
}
