/*
 * Work in the heap as an applet, for measurements (`cargo xtask bench applet --only heap_access`):
 *
 *     work    input: how many rounds, a little-endian 64-bit number. Result: a number of the same form that depends on all steps
 *
 * Native and WebAssembly.
 */
#include "table.h"
#include <holdfast_applet.h>
#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are read as they come: little-endian"
#endif

static int work(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    uint64_t rounds, result;
    if (size != sizeof rounds) return holdfast_fail(call, "work takes a number of 8 bytes");
    memcpy(&rounds, input, sizeof rounds);
    if (table_work(rounds, &result)) return holdfast_fail(call, nv_message());
    return holdfast_reply(call, &result, sizeof result) ? holdfast_fail(call, nv_message()) : 0;
}

int main(void) {
    holdfast_export("work", work, NULL);
    if (!holdfast_serve()) return 0;
    fprintf(stderr, "table: %s\n", nv_message());
    return 1;
}
