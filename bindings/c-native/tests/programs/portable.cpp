/* Reads the ledger of applets/portable in C++, prints its entries and their sum, and adds one. */
#include <holdfast.hpp>

#include <cstdio>
#include <cstring>

struct entry {
    holdfast::ref<entry> older, below;
    std::uint64_t number;
    char by[8];
};
HOLDFAST_PORTABLE(entry, 1, older, below, number, by)

struct ledger {
    holdfast::ref<entry> newest;
    std::uint32_t count;
    std::uint64_t sum;
    holdfast::ref<entry> shelves[8];
};
HOLDFAST_PORTABLE(ledger, 1, newest, count, sum, shelves)

struct signed_ledger {
    holdfast::ref<entry> newest;
    std::int32_t count;
    std::uint64_t sum;
    holdfast::ref<entry> shelves[8];
};
HOLDFAST_PORTABLE(signed_ledger, 1, newest, count, sum, shelves)

/* The numbers that holdfast-heap pins, and C and Python compute. */
struct node {
    holdfast::ref<node> next;
    std::uint32_t flags;
    std::uint64_t key;
};
HOLDFAST_PORTABLE(node, 1, next, flags, key)
static_assert(holdfast::layout<node>::value == 0xe85007852806a773);

int main() try {
    holdfast::portable();
    holdfast::open("book");
    try {
        holdfast::typed_root<signed_ledger>("ledger");
        return std::printf("another layout was taken\n"), 1;
    } catch (const holdfast::error &refused) {
        if (refused.code() != NV_LAYOUT) throw;
    }
    auto &kept = holdfast::typed_root<ledger>("ledger");
    void *base = holdfast::base();
    std::uint64_t count = 0, sum = 0;
    for (const entry *at = kept.newest.at(base); at; at = at->older.at(base)) count++, sum += at->number;
    std::printf("%llu %llu\n", static_cast<unsigned long long>(count), static_cast<unsigned long long>(sum));

    holdfast::transaction adding;
    adding.add(kept);
    auto *made = static_cast<entry *>(nvmalloc(nullptr, sizeof(entry)));
    if (!made) throw holdfast::error();
    auto &shelf = kept.shelves[++kept.count % 8];
    kept.sum += kept.count;
    made->number = kept.count;
    made->older = kept.newest;
    made->below = shelf;
    std::memcpy(made->by, "C++", 3);
    kept.newest = shelf = holdfast::ref<entry>::to(base, made);
    adding.commit();
    holdfast::close();
    return 0;
} catch (const holdfast::error &failed) {
    std::printf("%s\n", failed.what());
    return failed.code();
}
