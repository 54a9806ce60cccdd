/* See table.h. Nothing here knows of applets. */
#include "table.h"
#include <holdfast.h>
#include <string.h>

enum { ACCESSES = 64, TRANSACTION_NUMBERS = 8 };

static uint64_t next(uint64_t *random) {
    uint64_t x = *random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *random = x;
}

int table_work(uint64_t rounds, uint64_t *result) {
    size_t size;
    uint64_t *table = nvread("table", &size);
    if (!table) table = nvmalloc("table", TABLE_NUMBERS * sizeof *table);
    if (!table) return nv_errno();
    memset(table, 0, TABLE_NUMBERS * sizeof *table);
    uint64_t random = 88172645463325252u, sum = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t at = next(&random) % (TABLE_NUMBERS - ACCESSES);
        for (int i = 0; i < ACCESSES / 2; i++) {
            sum += table[at + i];
            table[at + i] = sum ^ round;
        }
        for (int i = 0; i < ACCESSES / 2; i++) {
            uint64_t *place = &table[next(&random) % TABLE_NUMBERS];
            sum += *place;
            *place = sum + i;
        }
        uint64_t *changed = &table[at];
        if (nv_tx_begin() || nv_tx_add(changed, TRANSACTION_NUMBERS * sizeof *changed)) return nv_errno();
        for (int i = 0; i < TRANSACTION_NUMBERS; i++) changed[i] += round;
        if (nv_tx_commit()) return nv_errno();
    }
    *result = sum;
    return 0;
}
