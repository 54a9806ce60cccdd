/*
 * The choice itself. Nothing here knows of applets: measurements build the same file into an ordinary program.
 */
#include "eviction.h"

/* The hot list is a few dozen pages: looking through it is faster than keeping an index of it. */
static int is_hot(uint32_t page, const uint32_t *hot, size_t hot_count) {
    for (size_t i = 0; i < hot_count; i++) {
        if (hot[i] == page) return 1;
    }
    return 0;
}

size_t eviction_choose(const uint32_t *pages, size_t page_count, const uint32_t *hot, size_t hot_count) {
    for (size_t i = 0; i < page_count; i++) {
        if (!is_hot(pages[i], hot, hot_count)) return i;
    }
    return 0;
}

void eviction_choose_each(const uint32_t *lists, size_t list_count, size_t page_count, const uint32_t *hot, size_t hot_count,
                          uint32_t *chosen) {
    for (size_t list = 0; list < list_count; list++) {
        const uint32_t *pages = lists + list * page_count;
        chosen[list] = pages[eviction_choose(pages, page_count, hot, hot_count)];
    }
}
