// Code that knows nothing of transactions, in a heap of the mode `atomic`: `unaware COMMAND`.
//   churn   changes a std::map and a hash table in C for ever, commits now and then, prints each commit's number
//   rollback  changes them as much, and goes back to the last commit, again and again
//   check   compares the two and prints the number of the last commit
#include <holdfast.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#define MUST(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::printf("line %d: not so: %s\n", __LINE__, #condition);        \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

// A hash table as one writes it in C: chains, and a table that doubles and moves everything.
struct node {
    node *next;
    unsigned key, value;
};

struct table {
    node **chains;
    unsigned size, count;
};

static node **find(table *t, unsigned key) {
    node **at = &t->chains[key * 2654435761u % t->size];
    while (*at && (*at)->key != key) at = &(*at)->next;
    return at;
}

static void resize(table *t, unsigned size) {
    table larger = {static_cast<node **>(nvmalloc(nullptr, size * sizeof(node *))), size, t->count};
    MUST(larger.chains);
    for (unsigned chain = 0; chain < t->size; chain++) {
        while (node *moved = t->chains[chain]) {
            t->chains[chain] = moved->next;
            moved->next = nullptr;
            *find(&larger, moved->key) = moved;
        }
    }
    if (t->chains) nvfree(t->chains);
    *t = larger;
}

static void put(table *t, unsigned key, unsigned value) {
    if (t->count >= t->size) resize(t, t->size ? 2 * t->size : 8);
    node **at = find(t, key);
    if (!*at) {
        *at = static_cast<node *>(nvmalloc(nullptr, sizeof(node)));
        MUST(*at);
        (*at)->key = key;
        t->count++;
    }
    (*at)->value = value;
}

static void take(table *t, unsigned key) {
    if (!t->size) return;
    node **at = find(t, key);
    if (node *gone = *at) {
        *at = gone->next;
        nvfree(gone);
        t->count--;
    }
}

struct all {
    std::map<unsigned, unsigned, std::less<>, holdfast::allocator<std::pair<const unsigned, unsigned>>> tree;
    table hashed = {nullptr, 0, 0};
    unsigned long commits = 0;
    unsigned random = 1;
};

static void check(all &a) {
    MUST(a.tree.size() == a.hashed.count);
    const unsigned *before = nullptr;
    for (auto &entry : a.tree) {
        MUST(!before || *before < entry.first);
        before = &entry.first;
        node *same = *find(&a.hashed, entry.first);
        MUST(same && same->value == entry.second);
    }
    unsigned count = 0;
    for (unsigned chain = 0; chain < a.hashed.size; chain++)
        for (node *it = a.hashed.chains[chain]; it; it = it->next) count++;
    MUST(count == a.hashed.count);
}

static void step(all &a) {
    a.random = a.random * 1664525 + 1013904223;
    unsigned key = a.random >> 20;
    if (a.random & 0x10000) {
        a.tree[key] = a.random;
        put(&a.hashed, key, a.random);
    } else {
        take(&a.hashed, key);
        a.tree.erase(key);
    }
}

static void roll_back(all &a) {
    for (int round = 0; round < 100; round++) {
        for (int steps = 0; steps < 50; steps++) step(a);
        a.commits++;
        holdfast::commit();
        const std::map<unsigned, unsigned> before(a.tree.begin(), a.tree.end());
        const unsigned long commits = a.commits;
        for (int steps = 0; steps < 20 * round; steps++) step(a);
        if (round % 3 == 0) a.tree.clear();
        a.commits = 0;
        holdfast::rollback();
        MUST(&holdfast::root<all>("all") == &a && a.commits == commits);
        MUST((before == std::map<unsigned, unsigned>(a.tree.begin(), a.tree.end())));
        check(a);
    }
}

int main(int, char **arguments) {
    holdfast::open_atomic("unaware");
    all &a = holdfast::root<all>("all");
    check(a);
    if (!std::strcmp(arguments[1], "churn")) {
        for (unsigned long steps = 0; steps < 100000000; steps++) {
            step(a);
            if ((a.random >> 8 & 31) == 0) {
                a.commits++;
                MUST(nv_commit(NV_PROCESS) == NV_OK);
                std::printf("%lu\n", a.commits);
                std::fflush(stdout);
            }
        }
    }
    if (!std::strcmp(arguments[1], "rollback")) roll_back(a);
    std::printf("%lu\n", a.commits);
}
