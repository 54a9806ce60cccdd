/*
 * Ledgers in compartments: functions that have threads enter compartments and work there, each named after what it does.
 * Input: names of compartments, separated by blanks. Results are texts or numbers of 8 bytes, little endian.
 *
 * In WebAssembly there is one thread, which does in turn what several do natively.
 */
#define _POSIX_C_SOURCE 200809L

#include <holdfast_applet.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __wasm__
#include <pthread.h>
#include <time.h>
#endif

#define NAMES_MAX 16

typedef struct {
    uint64_t count;
    uint64_t sum;
    /* The object of the last entry. */
    void *last;
} ledger;

typedef struct {
    char text[512];
    const char *names[NAMES_MAX];
    size_t count;
} request;

static int failed(holdfast_call *call) {
    holdfast_fail(call, nv_message());
    int code = nv_errno();
    return code ? code : 1;
}

static int reply_number(holdfast_call *call, uint64_t value) {
    return holdfast_reply(call, &value, sizeof value) ? failed(call) : 0;
}

/* The word `-` is the empty name. */
static void read_request(const holdfast_call *call, request *request) {
    size_t size;
    const void *input = holdfast_input(call, &size);
    memset(request, 0, sizeof *request);
    memcpy(request->text, input, size < sizeof request->text ? size : sizeof request->text - 1);
    for (char *name = strtok(request->text, " "); name && request->count < NAMES_MAX; name = strtok(NULL, " ")) {
        request->names[request->count++] = strcmp(name, "-") ? name : "";
    }
}

/* Runs a function on a thread of its own, where there are some, and to its end. */
static void on_a_thread(void *(*work)(void *), void *argument) {
#ifdef __wasm__
    work(argument);
#else
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument) || pthread_join(thread, NULL)) abort();
#endif
}

static int is_sound(const ledger *kept) { return kept->sum == kept->count * (kept->count + 1) / 2; }

/* Adds an entry to the ledger of wherever this thread is, without naming a heap. */
static int add_entry(int is_open) {
    ledger *kept = nvread("ledger", NULL);
    if (!kept) kept = nvmalloc("ledger", sizeof *kept);
    if (!kept || nv_tx_begin()) return nv_errno();
    void *entry = nvmalloc(NULL, 48);
    if (!entry || nv_tx_add(kept, sizeof *kept) || nvfree(kept->last)) {
        int code = nv_errno();
        nv_tx_abort();
        return code;
    }
    memset(entry, 1, 48);
    kept->last = entry;
    kept->count++;
    kept->sum += kept->count;
    return is_open ? 0 : nv_tx_commit();
}

/* What one thread does in one compartment. */
typedef struct {
    const char *name;
    unsigned entries;
    int code;
    uint64_t count;
    void *object;
} stay;

/* Enters, adds, says how many entries there are, leaves. */
static void *add_there(void *argument) {
    stay *stay = argument;
    stay->code = nv_compartment_enter(stay->name);
    if (stay->code) return NULL;
    for (unsigned at = 0; at < stay->entries && !stay->code; at++) stay->code = add_entry(0);
    const ledger *kept = nvread("ledger", NULL);
    stay->count = kept && is_sound(kept) ? kept->count : UINT64_MAX;
    if (!stay->entries && !kept) stay->count = 0;
    int left = nv_compartment_leave();
    if (!stay->code) stay->code = left;
    return NULL;
}

/* Adds 100 entries in each compartment that is named, by a thread in each, at once. */
static int add(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stays[NAMES_MAX];
#ifndef __wasm__
    pthread_t threads[NAMES_MAX];
#endif
    for (size_t at = 0; at < request.count; at++) {
        stays[at] = (stay){.name = request.names[at], .entries = 100};
#ifdef __wasm__
        add_there(&stays[at]);
#else
        if (pthread_create(&threads[at], NULL, add_there, &stays[at])) abort();
#endif
    }
    int code = 0;
    for (size_t at = 0; at < request.count; at++) {
#ifndef __wasm__
        if (pthread_join(threads[at], NULL)) abort();
#endif
        if (stays[at].code) code = stays[at].code;
    }
    return reply_number(call, (uint64_t)code);
}

/* The count of the ledger in a compartment. */
static int look(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stay = {.name = request.names[0]};
    on_a_thread(add_there, &stay);
    return stay.code ? holdfast_fail(call, nv_strerror(stay.code)) : reply_number(call, stay.count);
}

/* The count of the ledger of threads that have entered nothing. */
static int look_outside(holdfast_call *call, void *context) {
    (void)context;
    const ledger *kept = nvread("ledger", NULL);
    if (!kept) return nv_errno() == NV_NO_SUCH_ROOT ? reply_number(call, 0) : failed(call);
    return reply_number(call, is_sound(kept) ? kept->count : UINT64_MAX);
}

/* An entry by a thread that has entered nothing. */
static int add_outside(holdfast_call *call, void *context) {
    (void)context;
    return add_entry(0) ? failed(call) : 0;
}

/* The error of entering, and of leaving what was not entered; the compartment is left again. */
static int enter_error(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    int code = nv_compartment_enter(request.names[0]);
    if (code == NV_OK && nv_compartment_leave()) return failed(call);
    return nv_compartment_leave() == NV_NOT_GRANTED ? reply_number(call, (uint64_t)code) : failed(call);
}

/* The errors of entering twice, with an open transaction outside, of opening it by a handle, and of its handle afterwards:
 * a byte each. */
static int misuse(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    const char *name = request.names[0];
    int codes[6];
    if (nv_tx_begin()) return failed(call);
    codes[0] = nv_compartment_enter(name);
    if (nv_tx_abort() || nv_compartment_enter(name)) return failed(call);
    codes[1] = nv_compartment_enter(name);
    codes[2] = nv_compartment_enter(NULL);
    if (nv_tx_begin() || !nvmalloc("lost", 8)) return failed(call);
    nv_heap *outside = nv_heap_open(NULL);
    codes[3] = nv_tx_begin_in(outside);
    uint64_t session = nv_session();
    if (nv_compartment_leave() || session == nv_session()) return failed(call);
    codes[4] = nv_compartment_enter(name);
    codes[5] = nvread("lost", NULL) ? NV_OK : nv_errno();
    if (nv_compartment_leave()) return failed(call);
    unsigned char bytes[6];
    for (size_t at = 0; at < 6; at++) bytes[at] = (unsigned char)codes[at];
    return holdfast_reply(call, bytes, sizeof bytes) ? failed(call) : 0;
}

/* Takes all of the compartment that it is told. */
static void *fill_there(void *argument) {
    stay *stay = argument;
    stay->code = nv_compartment_enter(stay->name);
    if (stay->code) return NULL;
    while (nvmalloc(NULL, 60 << 10)) stay->count++;
    stay->code = nv_errno();
    nv_compartment_leave();
    return NULL;
}

/* The error that says a compartment is full. */
static int fill(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stay = {.name = request.names[0]};
    on_a_thread(fill_there, &stay);
    return reply_number(call, (uint64_t)stay.code);
}

/* Fills slabs of many sizes in the compartment that it is told, and frees every second object. */
static void *churn_there(void *argument) {
    stay *stay = argument;
    stay->code = nv_compartment_enter(stay->name);
    if (stay->code) return NULL;
    void *objects[1000];
    for (size_t at = 0; at < 1000 && !stay->code; at++) {
        objects[at] = nvmalloc(NULL, 16 + at % 500);
        if (!objects[at]) stay->code = nv_errno();
    }
    for (size_t at = 0; at < 1000 && !stay->code; at += 2) stay->code = nvfree(objects[at]);
    nv_compartment_leave();
    return NULL;
}

/* With a second word it fails then. */
static int churn(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stay = {.name = request.names[0]};
    on_a_thread(churn_there, &stay);
    if (request.count > 1) return holdfast_fail(call, stay.code ? nv_strerror(stay.code) : "as told");
    return reply_number(call, (uint64_t)stay.code);
}

/* Leaves an object there, and says where. */
static void *make_there(void *argument) {
    stay *stay = argument;
    stay->code = nv_compartment_enter(stay->name);
    if (stay->code) return NULL;
    stay->object = nvmalloc(NULL, 64);
    stay->code = nv_compartment_leave();
    return NULL;
}

/* The errors of freeing, naming, resizing, announcing and persisting in one heap an object of another, and of looking for a
 * root of the other: a byte each. */
static void meddle(void *object, unsigned char codes[6]) {
    codes[0] = (unsigned char)nvfree(object);
    codes[1] = (unsigned char)nvname("stolen", object, 64, 0);
    codes[2] = (unsigned char)(nvrealloc(object, 128) ? NV_OK : nv_errno());
    nv_tx_begin();
    codes[3] = (unsigned char)nv_tx_add(object, 64);
    nv_tx_abort();
    codes[4] = (unsigned char)nv_persist(object, 64);
    codes[5] = (unsigned char)(nvread("ledger", NULL) ? NV_OK : nv_errno());
}

/* Both ways: an object of the compartment outside, and one from outside in the compartment (or, with two names, in the other
 * compartment). */
static int cross(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stay = {.name = request.names[0]};
    on_a_thread(make_there, &stay);
    void *outside = nvmalloc(NULL, 64);
    if (stay.code || !stay.object || !outside) return failed(call);
    unsigned char codes[12];
    meddle(stay.object, codes);
    if (request.count > 1) outside = stay.object;
    if (nv_compartment_enter(request.names[request.count - 1])) return failed(call);
    meddle(outside, codes + 6);
    if (nv_compartment_leave()) return failed(call);
    return holdfast_reply(call, codes, sizeof codes) ? failed(call) : 0;
}

#ifndef __wasm__
static atomic_int is_inside, may_end;

static void wait_a_while(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

/* Stays until it is told to end, and ends without leaving, in the middle of a transaction. */
static void *stay_and_end(void *argument) {
    stay *stay = argument;
    stay->code = nv_compartment_enter(stay->name);
    if (!stay->code) stay->code = add_entry(1);
    is_inside = 1;
    while (!may_end) wait_a_while();
    return NULL;
}

/* The errors of entering what another thread has, by its name and as any other, and of entering it when that thread has ended;
 * the count of the ledger then. 8 bytes each. */
static int end_inside(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stay = {.name = request.names[0]};
    uint64_t results[4];
    is_inside = may_end = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay_and_end, &stay)) abort();
    while (!is_inside) wait_a_while();
    results[0] = (uint64_t)nv_compartment_enter(request.names[0]);
    /* The next one is free, if there is one. */
    results[1] = (uint64_t)nv_compartment_enter(NULL);
    if (!results[1]) nv_compartment_leave();
    may_end = 1;
    if (pthread_join(thread, NULL) || stay.code) return failed(call);
    /* The kernel may take a moment longer than the join. */
    for (int turn = 0; turn < 1000; turn++) {
        results[2] = (uint64_t)nv_compartment_enter(request.names[0]);
        if (results[2] != NV_HELD) break;
        wait_a_while();
    }
    const ledger *kept = results[2] ? NULL : nvread("ledger", NULL);
    results[3] = kept && is_sound(kept) ? kept->count : kept ? UINT64_MAX : 0;
    nv_compartment_leave();
    return holdfast_reply(call, results, sizeof results) ? failed(call) : 0;
}

static atomic_int waiting;

/* Opens a transaction, waits until the other thread has one, too, and commits. */
static void *transact_there(void *argument) {
    stay *stay = argument;
    stay->code = nv_compartment_enter(stay->name);
    if (!stay->code) stay->code = add_entry(1);
    waiting++;
    while (waiting < 2) wait_a_while();
    if (!stay->code) stay->code = stay->entries ? nv_tx_commit() : nv_tx_abort();
    nv_compartment_leave();
    return NULL;
}

/* Two transactions at once, one in each compartment: the first is committed, the second is not. */
static int transact(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    waiting = 0;
    pthread_t threads[2];
    stay stays[2];
    for (int at = 0; at < 2; at++) {
        stays[at] = (stay){.name = request.names[at], .entries = at == 0};
        if (pthread_create(&threads[at], NULL, transact_there, &stays[at])) abort();
    }
    for (int at = 0; at < 2; at++) {
        if (pthread_join(threads[at], NULL) || stays[at].code) return failed(call);
    }
    return 0;
}

/* From within the second compartment, a store to an object of the first. */
static int stray(holdfast_call *call, void *context) {
    (void)context;
    request request;
    read_request(call, &request);
    stay stay = {.name = request.names[0]};
    on_a_thread(make_there, &stay);
    if (stay.code || !stay.object || nv_compartment_enter(request.names[1])) return failed(call);
    *(volatile char *)stay.object = 1;
    return nv_compartment_leave() ? failed(call) : 0;
}

/* For tests that kill it: a thread in each compartment adds for ever, and says on the output which entry counts. */
static void *run_there(void *argument) {
    const char *name = argument;
    if (nv_compartment_enter(name)) exit(3);
    for (;;) {
        if (add_entry(0)) exit(4);
        const ledger *kept = nvread("ledger", NULL);
        printf("%s %llu\n", name, (unsigned long long)kept->count);
        fflush(stdout);
    }
}

static int run(int count, char **names) {
    pthread_t threads[NAMES_MAX];
    for (int at = 0; at < count && at < NAMES_MAX; at++) {
        if (pthread_create(&threads[at], NULL, run_there, names[at])) abort();
    }
    return pthread_join(threads[0], NULL);
}
#endif

int main(int argc, char **argv) {
#ifndef __wasm__
    if (argc > 1) return run(argc - 1, argv + 1);
#else
    (void)argc, (void)argv;
#endif
    struct { const char *name; holdfast_function function; } functions[] = {
        {"add", add}, {"look", look}, {"look_outside", look_outside}, {"add_outside", add_outside},
        {"enter_error", enter_error}, {"misuse", misuse}, {"fill", fill}, {"churn", churn}, {"cross", cross},
#ifndef __wasm__
        {"end_inside", end_inside}, {"transact", transact}, {"stray", stray},
#endif
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        if (holdfast_export(functions[at].name, functions[at].function, NULL)) return 1;
    }
    return holdfast_serve();
}
