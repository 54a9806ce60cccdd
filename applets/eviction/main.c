/*
 * Page eviction as an applet: a decision of less than a microsecond, too short for a call into another process to pay. It is here to
 * show that.
 *
 *     hot     input: the application's hot list, at most 1024 pages, in place of the one before. No result
 *     evict   input: the system's pages, least recently used first. Result: the page to be evicted
 *     evict_each
 *             input: how many pages a list has, and one list or more, as for evict. Result: the page of each
 *
 * Pages are little-endian 32-bit numbers. Native and WebAssembly.
 */
#include "eviction.h"
#include <holdfast_applet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The batch: as many decisions as one call can bring. */
static int evict_each(holdfast_call *call, void *context) {
    const struct hot_list *hot = context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    const uint32_t *numbers = input;
    size_t count = size / sizeof *numbers;
    if (size % sizeof *numbers || count < 2 || !numbers[0] || (count - 1) % numbers[0]) {
        return holdfast_fail(call, "evict_each takes the number of pages in a list, and whole lists of 4 bytes a page");
    }
    size_t list_count = (count - 1) / numbers[0];
    uint32_t *chosen = malloc(list_count * sizeof *chosen);
    if (!chosen) return holdfast_fail(call, "not enough memory for the result; bring fewer lists at once");
    eviction_choose_each(numbers + 1, list_count, numbers[0], hot->pages, hot->count, chosen);
    int status = holdfast_reply(call, chosen, list_count * sizeof *chosen);
    free(chosen);
    return status ? NO_REPLY : 0;
}

int main(void) {
    static struct hot_list hot;
    holdfast_export("hot", set_hot, &hot);
    holdfast_export("evict", evict, &hot);
    holdfast_export("evict_each", evict_each, &hot);
    if (!holdfast_serve()) return 0;
    fprintf(stderr, "eviction: %s\n", nv_message());
    return 1;
}
