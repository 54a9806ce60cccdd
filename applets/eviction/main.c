/*
 * Page eviction as an applet: a decision of less than a microsecond, too short for a call into another process to pay. It is here to
 * show that.
 *
 *     hot     input: the application's hot list, at most 1024 pages, in place of the one before. No result
 *     evict   input: the system's pages, least recently used first. Result: the page to be evicted
 *
 * Pages are little-endian 32-bit numbers. Native and WebAssembly.
 */
#include "eviction.h"
#include <holdfast_applet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "pages are read as they come: little-endian"
#endif

/* The code of a failure; 1, that of holdfast_fail, is a bad input. */
enum { NO_REPLY = 2 };

struct hot_list {
    uint32_t pages[EVICTION_HOT_PAGES_MAX];
    size_t count;
};

static int set_hot(holdfast_call *call, void *context) {
    struct hot_list *hot = context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    if (size % sizeof hot->pages[0] || size > sizeof hot->pages) {
        return holdfast_fail(call, "the hot list is at most 1024 numbers of 4 bytes");
    }
    memcpy(hot->pages, input, size);
    hot->count = size / sizeof hot->pages[0];
    return 0;
}

static int evict(holdfast_call *call, void *context) {
    const struct hot_list *hot = context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    if (!size || size % sizeof(uint32_t)) return holdfast_fail(call, "the pages are one number of 4 bytes or more");
    const uint32_t *pages = input;
    size_t chosen = eviction_choose(pages, size / sizeof *pages, hot->pages, hot->count);
    return holdfast_reply(call, &pages[chosen], sizeof pages[chosen]) ? NO_REPLY : 0;
}

int main(void) {
    static struct hot_list hot;
    holdfast_export("hot", set_hot, &hot);
    holdfast_export("evict", evict, &hot);
    if (!holdfast_serve()) return 0;
    fprintf(stderr, "eviction: %s\n", nv_message());
    return 1;
}
