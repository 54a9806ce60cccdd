/*
 * A log without transactions: an entry is brought to memory before the number of entries that counts it. Whatever ends the
 * program, and where the pool's memory survives it the machine, each entry that counts is whole.
 *
 *     log append N    appends until there are N, prints each number once it counts, and ends without closing
 *     log check       prints how many there are, and fails if one of them is not whole
 */
#define _GNU_SOURCE
#include <holdfast.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 1000
#define WORDS 20

struct entry { uint64_t words[WORDS]; };
struct log { uint64_t count; struct entry entries[ENTRIES]; };

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, nv_message());
    return 1;
}

static int append(struct log *log, uint64_t until) {
    while (log->count < until && log->count < ENTRIES) {
        struct entry *entry = &log->entries[log->count];
        for (size_t word = 0; word < WORDS; word++) entry->words[word] = log->count * WORDS + word + 1;
        if (nv_persist(entry, sizeof *entry)) return failed("the entry");
        log->count++;
        if (nv_persist(&log->count, sizeof log->count)) return failed("the number of entries");
        printf("%llu\n", (unsigned long long)log->count);
        fflush(stdout);
    }
    return raise(SIGKILL);
}

static int check(const struct log *log) {
    for (uint64_t at = 0; at < log->count; at++) {
        for (size_t word = 0; word < WORDS; word++) {
            if (log->entries[at].words[word] == at * WORDS + word + 1) continue;
            fprintf(stderr, "entry %llu is not whole\n", (unsigned long long)at);
            return 1;
        }
    }
    printf("%llu\n", (unsigned long long)log->count);
    return 0;
}

int main(int argc, char **argv) {
    struct log *log = nvread("log", NULL);
    if (!log) log = nvmalloc("log", sizeof *log);
    if (!log) return failed("the log");
    if (nv_persist(&argc, sizeof argc) != NV_BAD_RANGE) {
        fprintf(stderr, "the stack is no heap\n");
        return 1;
    }
    if (argc > 2 && !strcmp(argv[1], "append")) return append(log, strtoull(argv[2], NULL, 10));
    return check(log);
}
