/*
 * A ledger in portable heaps, as an applet: what native applets, applets in WebAssembly, C programs and Python change in
 * turn. The input of each function names heaps, separated by blanks; results are numbers of 8 bytes, little endian.
 */
#include <holdfast_applet.h>

#include "ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 4

typedef struct {
    char text[512];
    nv_heap *heaps[NAMES_MAX];
    size_t count;
} request;

static int failed(holdfast_call *call) {
    holdfast_fail(call, nv_message());
    int code = nv_errno();
    return code ? code : 1;
}

static void read_request(const holdfast_call *call, int is_portable, request *request) {
    size_t size;
    const void *input = holdfast_input(call, &size);
    memset(request, 0, sizeof *request);
    memcpy(request->text, input, size < sizeof request->text ? size : sizeof request->text - 1);
    nv_portable(is_portable);
    for (char *name = strtok(request->text, " "); name && request->count < NAMES_MAX; name = strtok(NULL, " "))
        request->heaps[request->count++] = nv_heap_open(name);
}

static int reply_number(holdfast_call *call, uint64_t value) {
    return holdfast_reply(call, &value, sizeof value) ? failed(call) : 0;
}

/* An entry in each heap that is named. */
static int add(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 1, &request);
    for (size_t at = 0; at < request.count; at++) {
        if (!request.heaps[at] || ledger_add(request.heaps[at], "applet", 0)) return failed(call);
    }
    return 0;
}

/* How many entries the first heap has got; 0 without a ledger. */
static int look(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 1, &request);
    if (!request.heaps[0]) return failed(call);
    const struct ledger *ledger = nv_read_typed_in(request.heaps[0], "ledger", nv_layout(ledger), NULL);
    if (!ledger) return nv_errno() == NV_NO_SUCH_ROOT ? reply_number(call, 0) : failed(call);
    const char *fault = ledger_fault(request.heaps[0], ledger);
    return fault ? holdfast_fail(call, fault) : reply_number(call, ledger->count);
}

/* An entry that is not committed. */
static int add_and_crash(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 1, &request);
    if (!request.heaps[0] || ledger_add(request.heaps[0], "crash", 1)) return failed(call);
    abort();
}

/* The error of opening the first heap as one with pointers. */
static int error_as_plain(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 0, &request);
    return reply_number(call, request.heaps[0] ? NV_OK : (uint64_t)nv_errno());
}

/* The error of opening it as a portable one. */
static int error_as_portable(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 1, &request);
    return reply_number(call, request.heaps[0] ? NV_OK : (uint64_t)nv_errno());
}

/* Makes the first heap one with pointers. */
static int make_plain(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 0, &request);
    return request.heaps[0] && nv_malloc_in(request.heaps[0], "root", 8) ? 0 : failed(call);
}

/* The errors of reading its ledger as types that differ in one field: 1,000 times the first and the second. */
static int errors_as_other(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 1, &request);
    if (!request.heaps[0]) return failed(call);
    int own = ledger_error_as_other(request.heaps[0], 0), of_entries = ledger_error_as_other(request.heaps[0], 1);
    return reply_number(call, (uint64_t)own * 1000 + (uint64_t)of_entries);
}

/* The first byte of the first heap. */
static int where(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, 1, &request);
    void *base = request.heaps[0] ? nv_base_in(request.heaps[0]) : NULL;
    return base ? reply_number(call, (uintptr_t)base) : failed(call);
}

/* For tests that kill it: adds entries, and says on its output which one counts from now on. */
static int run(const char *name) {
    nv_portable(1);
    nv_heap *heap = nv_heap_open(name);
    for (;;) {
        if (!heap || ledger_add(heap, "run", 0)) {
            fprintf(stderr, "%s\n", nv_message());
            return 1;
        }
        printf("%u\n", (unsigned)ledger_in(heap)->count);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc == 2) return run(argv[1]);
    struct { const char *name; holdfast_function function; } functions[] = {
        {"add", add}, {"look", look}, {"add_and_crash", add_and_crash}, {"error_as_plain", error_as_plain},
        {"error_as_portable", error_as_portable}, {"make_plain", make_plain}, {"errors_as_other", errors_as_other},
        {"where", where},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        if (holdfast_export(functions[at].name, functions[at].function, NULL)) return 1;
    }
    return holdfast_serve();
}
