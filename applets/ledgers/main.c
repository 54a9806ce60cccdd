/*
 * Ledgers in several heaps: functions that add entries to one heap or to two, fail, crash and misuse them, each named after
 * what it does. Input: names of heaps, separated by blanks. Results are texts or numbers of 8 bytes, little endian.
 */
#include <holdfast_applet.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 4

typedef struct {
    uint64_t count;
    uint64_t sum;
    /* The object of the last entry. */
    void *last;
} ledger;

typedef struct {
    char text[512];
    const char *names[NAMES_MAX];
    nv_heap *heaps[NAMES_MAX];
    size_t count;
} request;

static int failed(holdfast_call *call) {
    holdfast_fail(call, nv_message());
    int code = nv_errno();
    return code ? code : 1;
}

/* The heaps that the input names; those that cannot be opened are NULL. */
static void read_request(const holdfast_call *call, request *request) {
    size_t size;
    const void *input = holdfast_input(call, &size);
    memset(request, 0, sizeof *request);
    memcpy(request->text, input, size < sizeof request->text ? size : sizeof request->text - 1);
    for (char *name = strtok(request->text, " "); name && request->count < NAMES_MAX; name = strtok(NULL, " ")) {
        request->names[request->count] = name;
        request->heaps[request->count++] = nv_heap_open(name);
    }
}

static ledger *ledger_in(nv_heap *heap) {
    ledger *found = nv_read_in(heap, "ledger", NULL);
    return found ? found : nv_malloc_in(heap, "ledger", sizeof *found);
}

/* Adds an entry: an object of its own in place of the last one, and its number in the sum. Without the commit if
 * `is_open`. */
static int add_to(nv_heap *heap, int is_open) {
    ledger *kept = ledger_in(heap);
    if (!kept || nv_tx_begin_in(heap)) return 1;
    void *entry = nv_malloc_in(heap, NULL, 48);
    if (!entry || nv_tx_add_in(heap, kept, sizeof *kept) || nv_free_in(heap, kept->last)) {
        int code = nv_errno();
        nv_tx_abort_in(heap);
        return code;
    }
    kept->last = entry;
    kept->count++;
    kept->sum += kept->count;
    return is_open ? 0 : nv_tx_commit_in(heap);
}

static int is_sound(const ledger *kept) { return kept->sum == kept->count * (kept->count + 1) / 2; }

static int reply_number(holdfast_call *call, uint64_t value) {
    return holdfast_reply(call, &value, sizeof value) ? failed(call) : 0;
}

/* An entry in each heap that is named. */
static int add(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    for (size_t at = 0; at < request.count; at++) {
        if (!request.heaps[at] || add_to(request.heaps[at], 0)) return failed(call);
    }
    return 0;
}

/* The count of the first heap that is named; 0 without a ledger. */
static int look(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    if (!request.heaps[0]) return failed(call);
    const ledger *kept = nv_read_in(request.heaps[0], "ledger", NULL);
    if (!kept) return nv_errno() == NV_NO_SUCH_ROOT ? reply_number(call, 0) : failed(call);
    return is_sound(kept) ? reply_number(call, kept->count) : holdfast_fail(call, "the ledger is torn");
}

/* What the functions without a handle see: the count of the heap that was granted first. */
static int look_without_name(holdfast_call *call, void *context) {
    (void)context;
    const ledger *kept = nvread("ledger", NULL);
    return kept ? reply_number(call, kept->count) : failed(call);
}

/* The address of the ledger, which no run changes. */
static int where(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    ledger *kept = request.heaps[0] ? ledger_in(request.heaps[0]) : NULL;
    return kept ? reply_number(call, (uintptr_t)kept) : failed(call);
}

/* The error of the opening of a heap. */
static int open_error(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    return reply_number(call, request.heaps[0] ? NV_OK : (uint64_t)nv_errno());
}

/* The error of a transaction in the second heap while one is open in the first; all is rolled back. */
static int begin_in_both(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    if (nv_tx_begin_in(request.heaps[0])) return failed(call);
    int code = nv_tx_begin_in(request.heaps[1]);
    nv_tx_abort_in(request.heaps[0]);
    /* Once the first one is over, nothing keeps the second heap from one. */
    if (nv_tx_begin_in(request.heaps[1]) || nv_tx_abort_in(request.heaps[1])) return failed(call);
    return reply_number(call, (uint64_t)code);
}

/* The error of a transaction in the first heap that is to change bytes of the second. */
static int add_range_of_other(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    ledger *other = ledger_in(request.heaps[1]);
    if (!other || nv_tx_begin_in(request.heaps[0])) return failed(call);
    int code = nv_tx_add_in(request.heaps[0], other, sizeof *other);
    nv_tx_abort_in(request.heaps[0]);
    return reply_number(call, (uint64_t)code);
}

/* The error of freeing an object of the second heap in the first. */
static int free_of_other(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    void *object = nv_malloc_in(request.heaps[1], NULL, 64);
    if (!object) return failed(call);
    int code = nv_free_in(request.heaps[0], object);
    return nv_free_in(request.heaps[1], object) ? failed(call) : reply_number(call, (uint64_t)code);
}

/* A whole entry in the second heap, and one in the first that is not committed. */
static int add_and_crash(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    if (add_to(request.heaps[1], 0) || add_to(request.heaps[0], 1)) return failed(call);
    abort();
}

/* The same, and a failure instead. */
static int add_and_fail(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    if (add_to(request.heaps[1], 0) || add_to(request.heaps[0], 1)) return failed(call);
    return holdfast_fail(call, "as it was asked to");
}

/* Takes all of the first heap, whose error is the result; the second one is as good as before. */
static int fill(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    while (nv_malloc_in(request.heaps[0], NULL, 60 << 10)) {}
    int code = nv_errno();
    return add_to(request.heaps[1], 0) ? failed(call) : reply_number(call, (uint64_t)code);
}

/* The error of changing a heap. */
static int change_error(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    return reply_number(call, nv_malloc_in(request.heaps[0], NULL, 8) ? NV_OK : (uint64_t)nv_errno());
}

/* A store to a heap that may only be read. */
static int store_to(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    ledger *kept = nv_read_in(request.heaps[0], "ledger", NULL);
    if (!kept) return failed(call);
    ((volatile ledger *)kept)->count++;
    return 0;
}

/* The error of a handle that nobody gave. */
static int bad_handle(holdfast_call *call, void *context) {
    (void)context;
    return reply_number(call, nv_tx_begin_in((nv_heap *)(uintptr_t)77) ? (uint64_t)nv_errno() : NV_OK);
}

/* Makes the heap durable. */
static int commit(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    return nv_commit_in(request.heaps[0], NV_POWER) ? failed(call) : 0;
}

/* The sum of every page of the first 8 MiB of objects: what reading a whole dictionary touches. */
static int read_all(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    size_t size;
    const unsigned char *bytes = nv_read_in(request.heaps[0], "bulk", &size);
    if (!bytes) return failed(call);
    uint64_t sum = 0;
    for (size_t at = 0; at < size; at += 4096) sum += bytes[at];
    return reply_number(call, sum);
}

/* Makes the bulk that read_all reads, of so many MiB as the second word says. */
static int make_bulk(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *input = holdfast_input(call, &size);
    char text[64] = {0}, name[64];
    unsigned long mib;
    memcpy(text, input, size < sizeof text ? size : sizeof text - 1);
    if (sscanf(text, "%63s %lu", name, &mib) != 2) return holdfast_fail(call, "name a heap and its MiB");
    nv_heap *heap = nv_heap_open(name);
    unsigned char *bytes = heap ? nv_malloc_in(heap, "bulk", mib << 20) : NULL;
    if (!bytes) return failed(call);
    for (size_t at = 0; at < mib << 20; at += 4096) bytes[at] = 1;
    return 0;
}

static uint64_t number(const holdfast_call *call) {
    size_t size;
    const void *input = holdfast_input(call, &size);
    uint64_t value = 0;
    memcpy(&value, input, size < sizeof value ? size : sizeof value);
    return value;
}

/* Takes so many MiB of the first heap, in small objects. */
static int take(holdfast_call *call, void *context) {
    (void)context;
    for (uint64_t left = number(call) << 20; left >= 32 << 10; left -= 32 << 10) {
        if (!nvmalloc(NULL, 32 << 10)) return failed(call);
    }
    return 0;
}

/* The same, and says so beforehand. */
static int reserve_and_take(holdfast_call *call, void *context) {
    return nv_reserve((number(call) << 20) / 16 * 17) ? failed(call) : take(call, context);
}

/* For tests that kill it: adds to both heaps in turn, and says on its output which entry counts from now on. */
static int run(const char *first, const char *second) {
    nv_heap *heaps[] = {nv_heap_open(first), nv_heap_open(second)};
    if (!heaps[0] || !heaps[1]) {
        fprintf(stderr, "%s\n", nv_message());
        return 1;
    }
    for (unsigned turn = 0;; turn++) {
        nv_heap *heap = heaps[turn % 2];
        if (add_to(heap, 0)) return 2;
        const ledger *kept = nv_read_in(heap, "ledger", NULL);
        printf("%s %llu\n", turn % 2 ? second : first, (unsigned long long)kept->count);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc == 3) return run(argv[1], argv[2]);
    struct { const char *name; holdfast_function function; } functions[] = {
        {"add", add}, {"look", look}, {"look_without_name", look_without_name}, {"where", where}, {"open_error", open_error},
        {"begin_in_both", begin_in_both}, {"add_range_of_other", add_range_of_other}, {"free_of_other", free_of_other},
        {"add_and_crash", add_and_crash}, {"add_and_fail", add_and_fail}, {"fill", fill}, {"change_error", change_error},
        {"store_to", store_to}, {"bad_handle", bad_handle}, {"commit", commit}, {"read_all", read_all},
        {"make_bulk", make_bulk}, {"take", take}, {"reserve_and_take", reserve_and_take},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        if (holdfast_export(functions[at].name, functions[at].function, NULL)) return 1;
    }
    return holdfast_serve();
}
