/*
 * What the tests of applets call: functions that behave, fail, crash, hang, flood and misuse the heap, each named after
 * what it does. Numbers in inputs and results are 8 bytes, little endian.
 */
#define _GNU_SOURCE
#include <holdfast_applet.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef __wasm__
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#endif

static uint64_t number(const holdfast_call *call) {
    size_t size;
    const void *input = holdfast_input(call, &size);
    uint64_t value = 0;
    memcpy(&value, input, size < sizeof value ? size : sizeof value);
    return value;
}

static int reply_number(holdfast_call *call, uint64_t value) {
    return holdfast_reply(call, &value, sizeof value) ? holdfast_fail(call, nv_message()) : 0;
}

static int echo(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *bytes = holdfast_input(call, &size);
    return holdfast_reply(call, bytes, size) ? holdfast_fail(call, nv_message()) : 0;
}

static int fail(holdfast_call *call, void *context) {
    (void)context;
    holdfast_fail(call, "as it was asked to\033[31m");
    return 42;
}

static int crash(holdfast_call *call, void *context) {
    (void)call, (void)context;
    /* An address that the compiler does not know. */
    static volatile uintptr_t nowhere = 8;
    *(volatile int *)nowhere = 1;
#ifdef __wasm__
    __builtin_trap();
#endif
    return 0;
}

static int give_up(holdfast_call *call, void *context) {
    (void)call, (void)context;
    abort();
}

static int leave(holdfast_call *call, void *context) {
    (void)context;
    exit((int)number(call));
}

static int spin(holdfast_call *call, void *context) {
    (void)call, (void)context;
    for (volatile uint64_t turn = 0;; turn++) {}
    return 0;
}

static int spin_until_cancelled(holdfast_call *call, void *context) {
    (void)context;
    while (!holdfast_cancelled(call)) {}
    return holdfast_fail(call, "cancelled");
}

static int flood(holdfast_call *call, void *context) {
    (void)context;
    static char bytes[64 << 10];
    while (!holdfast_send(call, bytes, sizeof bytes)) {}
    return 0;
}

/* The same, whatever it is told. */
static int flood_on(holdfast_call *call, void *context) {
    (void)context;
    static char bytes[64 << 10];
    for (;;) (void)holdfast_send(call, bytes, sizeof bytes);
    return 0;
}

/* The same with parts of no size, which are never too many, on and on or until it is told to stop. */
static int flood_empty(holdfast_call *call, void *context) {
    (void)context;
    for (;;) (void)holdfast_send(call, "", 0);
    return 0;
}

static int flood_empty_until_cancelled(holdfast_call *call, void *context) {
    (void)context;
    while (!holdfast_send(call, "", 0)) {}
    return holdfast_fail(call, "cancelled");
}

/* As many parts as the number says, each its own number. */
static int parts(holdfast_call *call, void *context) {
    (void)context;
    uint64_t count = number(call);
    for (uint64_t part = 0; part < count; part++) {
        if (holdfast_send(call, &part, sizeof part)) return 1;
    }
    return reply_number(call, count);
}

/* Hands that many bytes over, each an x, with a NUL behind them. */
static int with_bytes(holdfast_call *call, int (*hand_over)(holdfast_call *, const char *, size_t)) {
    size_t size = (size_t)number(call);
    char *bytes = malloc(size + 1);
    if (!bytes) return holdfast_fail(call, "there is no memory");
    memset(bytes, 'x', size);
    bytes[size] = 0;
    int status = hand_over(call, bytes, size);
    free(bytes);
    return status;
}

static int reply_bytes(holdfast_call *call, const char *bytes, size_t size) {
    int status = holdfast_reply(call, bytes, size);
    return status ? holdfast_fail(call, nv_strerror(status)) : 0;
}

static int send_bytes(holdfast_call *call, const char *bytes, size_t size) {
    int status = holdfast_send(call, bytes, size);
    return status ? holdfast_fail(call, nv_strerror(status)) : 0;
}

static int fail_bytes(holdfast_call *call, const char *bytes, size_t size) {
    (void)size;
    return holdfast_fail(call, bytes);
}

/* As a result, as a part of one, as the text of a failure. */
static int large(holdfast_call *call, void *context) {
    (void)context;
    return with_bytes(call, reply_bytes);
}

static int large_part(holdfast_call *call, void *context) {
    (void)context;
    return with_bytes(call, send_bytes);
}

static int large_failure(holdfast_call *call, void *context) {
    (void)context;
    return with_bytes(call, fail_bytes);
}

/* A system call that nobody may make. */
static int kexec(holdfast_call *call, void *context) {
    (void)context;
#ifndef __wasm__
    return reply_number(call, (uint64_t)syscall(SYS_kexec_load, 11L, 22L, 33L, 44L));
#else
    return holdfast_fail(call, "there are no system calls");
#endif
}

/* In the heap: a root of one number. */
static uint64_t *counter(void) {
    uint64_t *found = nvread("counter", NULL);
    return found ? found : nvmalloc("counter", sizeof *found);
}

static int count(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = counter();
    if (!value || nv_tx_begin() || nv_tx_add(value, sizeof *value)) return holdfast_fail(call, nv_message());
    ++*value;
    if (nv_tx_commit()) return holdfast_fail(call, nv_message());
    return reply_number(call, *value);
}

static int look(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = nvread("counter", NULL);
    return reply_number(call, value ? *value : 0);
}

/* A little after it has answered. */
#ifndef __wasm__
static void *abort_soon(void *nothing) {
    (void)nothing;
    usleep(20000);
    abort();
}
#endif

static int abort_later(holdfast_call *call, void *context) {
    (void)context;
#ifndef __wasm__
    pthread_t thread;
    return pthread_create(&thread, NULL, abort_soon, NULL) ? holdfast_fail(call, "there is no thread") : 0;
#else
    return holdfast_fail(call, "there are no threads");
#endif
}

/* In the middle of a transaction. */
static int count_and_crash(holdfast_call *call, void *context) {
    uint64_t *value = counter();
    if (!value || nv_tx_begin() || nv_tx_add(value, sizeof *value)) return holdfast_fail(call, nv_message());
    *value += 1000;
    return crash(call, context);
}

/* The same, and then a failure. */
static int count_and_fail(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = counter();
    if (!value || nv_tx_begin() || nv_tx_add(value, sizeof *value)) return holdfast_fail(call, nv_message());
    *value += 1000;
    return holdfast_fail(call, "after all");
}

/* Without any transaction, for the mode `atomic`. */
static int store(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = counter();
    if (!value) return holdfast_fail(call, nv_message());
    *value = number(call);
    return reply_number(call, *value);
}

static int store_and_fail(holdfast_call *call, void *context) {
    int status = store(call, context);
    return status ? status : holdfast_fail(call, "after all");
}

static int store_and_crash(holdfast_call *call, void *context) {
    int status = store(call, context);
    return status ? status : crash(call, context);
}

static int store_and_exit(holdfast_call *call, void *context) {
    int status = store(call, context);
    if (!status) exit(7);
    return status;
}

/* A store behind the end of what the heap has, and far away from everything. */
static int store_out_of_range(holdfast_call *call, void *context) {
    (void)context;
    char *value = (char *)counter();
    if (!value) return holdfast_fail(call, nv_message());
    *(volatile char *)(value + ((size_t)1 << 30)) = 1;
    return 0;
}

/* As many objects of 1000 bytes as fit; says how many. */
static int fill(holdfast_call *call, void *context) {
    (void)context;
    uint64_t count = 0;
    while (nvmalloc(NULL, 1000)) ++count;
    return reply_number(call, count);
}

/* So many transactions, each with an allocation, a store and a free. */
static int transactions(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = counter();
    if (!value) return holdfast_fail(call, nv_message());
    for (uint64_t left = number(call); left > 0; left--) {
        if (nv_tx_begin() || nv_tx_add(value, sizeof *value)) return holdfast_fail(call, nv_message());
        void *object = nvmalloc(NULL, 64);
        ++*value;
        if (!object || nvfree(object) || nv_tx_commit()) return holdfast_fail(call, nv_message());
    }
    return reply_number(call, *value);
}

static int commit(holdfast_call *call, void *context) {
    (void)context;
    return nv_commit((int)number(call)) ? holdfast_fail(call, nv_message()) : 0;
}

/* Stores the number outside of transactions, in order; then what lies outside of the heap, which cannot be. */
static int store_in_order(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = counter(), mine = number(call);
    if (!value) return holdfast_fail(call, nv_message());
    *value = mine;
    if (nv_persist(value, sizeof *value)) return holdfast_fail(call, nv_message());
    if (nv_persist(&mine, sizeof mine) != NV_BAD_RANGE) return holdfast_fail(call, "the stack is no heap");
    return reply_number(call, *value);
}

/* Asks the host for something, on and on. */
static int ask_without_end(holdfast_call *call, void *context) {
    (void)call, (void)context;
    for (;;) (void)nv_commit(NV_SYSTEM);
    return 0;
}

/* Adds 1 to each byte of the shared buffer. */
static int increment(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    unsigned char *bytes = holdfast_buffer(call, &size);
    if (!bytes) return holdfast_fail(call, "there is no buffer");
    for (size_t at = 0; at < size; at++) bytes[at]++;
    return reply_number(call, size);
}

/* The bytes of the file that the input names. */
static int read_file(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    char path[256] = {0}, bytes[256];
    memcpy(path, input, size < sizeof path ? size : sizeof path - 1);
    FILE *file = fopen(path, "r");
    if (!file) return holdfast_fail(call, "it cannot be opened");
    size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return holdfast_reply(call, bytes, size) ? holdfast_fail(call, nv_message()) : 0;
}

/* Whether the file that the input names can be made, or written to. */
static int write_file(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    char path[256] = {0};
    memcpy(path, input, size < sizeof path ? size : sizeof path - 1);
    FILE *file = fopen(path, "a");
    if (!file) return reply_number(call, 0);
    int is_written = fputs("mine", file) >= 0;
    return reply_number(call, fclose(file) == 0 && is_written);
}

/* Begins to send a part and never comes to its end: half of what it sends cannot be read, and it does not go on then. */
#ifndef __wasm__
static void stop(int number) {
    (void)number;
    for (;;) pause();
}
#endif

static int stop_in_a_part(holdfast_call *call, void *context) {
    (void)context;
#ifndef __wasm__
    size_t size = 8 << 20;
    struct sigaction action = {.sa_handler = stop};
    char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED || mprotect(bytes + size / 2, size / 2, PROT_NONE) || sigaction(SIGSEGV, &action, NULL)) {
        return holdfast_fail(call, "it cannot be set up");
    }
    (void)holdfast_send(call, bytes, size);
    return 0;
#else
    return holdfast_fail(call, "a part is handed over at once");
#endif
}

/* Answers, and 100 ms later stops for ever: it takes no other call. */
static int stop_reading(holdfast_call *call, void *context) {
    (void)context;
#ifndef __wasm__
    struct sigaction action = {.sa_handler = stop};
    struct itimerval soon = {.it_value = {.tv_usec = 100000}};
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &soon, NULL)) {
        return holdfast_fail(call, "it cannot be set up");
    }
    return 0;
#else
    return holdfast_fail(call, "it takes a call when it is run");
#endif
}

/* Calls the function `fetch` of the host and stops for ever in the middle of its answer: the second half of 8 MiB cannot be
 * stored. With a number other than 0 it aborts a little later. */
static int stop_in_an_answer(holdfast_call *call, void *context) {
    (void)context;
#ifndef __wasm__
    size_t size = 8 << 20;
    struct sigaction action = {.sa_handler = stop};
    pthread_t thread;
    int function = holdfast_import("fetch");
    char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (function < 0 || bytes == MAP_FAILED || mprotect(bytes + size / 2, size / 2, PROT_NONE) || sigaction(SIGSEGV, &action, NULL)) {
        return holdfast_fail(call, "it cannot be set up");
    }
    if (number(call) && pthread_create(&thread, NULL, abort_soon, NULL)) return holdfast_fail(call, "there is no thread");
    /* What the library takes for its own memory, of that size. */
    holdfast_result result = {.bytes = bytes, .reserved = size};
    (void)holdfast_call_host(function, NULL, 0, &result);
    return 0;
#else
    return holdfast_fail(call, "an answer is handed over at once");
#endif
}

/* Calls a function of the host: a name, a NUL, and what it is passed. Its failure becomes this one's. */
static int ask_host(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *input = holdfast_input(call, &size);
    size_t length = strnlen(input, size);
    char name[256] = {0};
    memcpy(name, input, length < sizeof name ? length : sizeof name - 1);
    int function = holdfast_import(name);
    if (function < 0) {
        holdfast_fail(call, nv_strerror(-function));
        return -function;
    }
    holdfast_result result = {0};
    const char *passed = length < size ? input + length + 1 : "";
    int error = holdfast_call_host(function, passed, length < size ? size - length - 1 : 0, &result);
    if (!error) error = holdfast_reply(call, result.bytes, result.size) ? nv_errno() : 0;
    if (!error) return holdfast_result_free(&result), 0;
    char words[600];
    snprintf(words, sizeof words, "%d: %.*s", result.code, (int)(result.size < 500 ? result.size : 500), (const char *)result.bytes);
    holdfast_result_free(&result);
    holdfast_fail(call, words);
    return error;
}

/* The function of the host that is called when there are no more calls, if any. */
static char at_the_end[256];

static int ask_at_the_end(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *name = holdfast_input(call, &size);
    if (size >= sizeof at_the_end) return holdfast_fail(call, "the name is too long");
    memcpy(at_the_end, name, size);
    at_the_end[size] = 0;
    return 0;
}

/* Calls the function `echo` of the host so often, with 8 bytes. */
static int ask_host_often(holdfast_call *call, void *context) {
    (void)context;
    holdfast_result result = {0};
    int function = holdfast_import("echo");
    for (uint64_t left = number(call); left > 0; left--) {
        if (holdfast_call_host(function, &left, sizeof left, &result)) return holdfast_fail(call, nv_message());
        if (result.size != sizeof left || memcmp(result.bytes, &left, sizeof left)) return holdfast_fail(call, "the answer is wrong");
    }
    holdfast_result_free(&result);
    return 0;
}

/* Calls the function `peek` of the host while a transaction is open, which is then committed. */
static int ask_host_in_transaction(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *value = counter();
    holdfast_result result = {0};
    int function = holdfast_import("peek");
    if (!value || function < 0 || nv_tx_begin() || nv_tx_add(value, sizeof *value)) return holdfast_fail(call, nv_message());
    ++*value;
    int error = holdfast_call_host(function, value, sizeof *value, &result);
    holdfast_result_free(&result);
    if (error || nv_tx_commit()) return holdfast_fail(call, nv_message());
    return reply_number(call, *value);
}

/* Calls a function by a number that none has, and with pointers to nothing. */
static int ask_host_wrongly(holdfast_call *call, void *context) {
    (void)context;
    holdfast_result result = {0};
    const int numbers[] = {-1, 1000, 2147483647, -2147483647 - 1};
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        if (holdfast_call_host(numbers[at], NULL, 0, &result) != NV_NO_FUNCTION) return holdfast_fail(call, "it was called");
    }
    if (holdfast_import(NULL) != -NV_BAD_NAME || holdfast_import("") != -NV_NO_FUNCTION) return holdfast_fail(call, "it was found");
    holdfast_result_free(&result);
    holdfast_result_free(&result);
    return 0;
}

/* What the host told it that it is called. */
static const char *own_name;

static int tell_own_name(holdfast_call *call, void *context) {
    (void)context;
    return reply_bytes(call, own_name, strlen(own_name));
}

static int write_output(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *text = holdfast_input(call, &size);
    fwrite(text, 1, size, stdout);
    fflush(stdout);
    return 0;
}

/* For tests of programs that are run to their end: what it does is an argument. */
static int run(const char *what, uint64_t value) {
    uint64_t *found = counter();
    if (!found) {
        fprintf(stderr, "%s\n", nv_message());
        return 1;
    }
    if (!strcmp(what, "--look")) printf("%llu\n", (unsigned long long)*found);
    if (!strcmp(what, "--copy")) {
        char bytes[4096];
        size_t size;
        while ((size = fread(bytes, 1, sizeof bytes, stdin)) > 0) fwrite(bytes, 1, size, stdout);
    }
    if (!strncmp(what, "--store", 7)) *found = value;
    if (!strcmp(what, "--store-and-abort")) abort();
    if (!strcmp(what, "--spin")) for (;;) {}
    if (!strcmp(what, "--ask")) {
        holdfast_result result = {0};
        int error = holdfast_call_host(holdfast_import("double"), "run", 3, &result);
        printf("%d %.*s\n", error, (int)result.size, (const char *)result.bytes);
        holdfast_result_free(&result);
    }
    return 0;
}

int main(int argc, char **argv) {
    own_name = argc > 0 ? argv[0] : "";
    if (argc > 1 && !strcmp(argv[1], "--never-serve")) return 3;
    if (argc > 1) return run(argv[1], argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    struct { const char *name; holdfast_function function; } functions[] = {
        {"echo", echo}, {"fail", fail}, {"crash", crash}, {"abort", give_up}, {"abort_later", abort_later}, {"exit", leave}, {"spin", spin},
        {"spin_until_cancelled", spin_until_cancelled}, {"flood", flood}, {"flood_on", flood_on}, {"parts", parts},
        {"flood_empty", flood_empty}, {"flood_empty_until_cancelled", flood_empty_until_cancelled},
        {"large", large}, {"large_part", large_part}, {"large_failure", large_failure},
        {"kexec", kexec}, {"count", count}, {"look", look}, {"count_and_crash", count_and_crash},
        {"count_and_fail", count_and_fail}, {"store", store}, {"store_and_fail", store_and_fail},
        {"store_and_crash", store_and_crash}, {"store_and_exit", store_and_exit}, {"store_out_of_range", store_out_of_range}, {"fill", fill},
        {"transactions", transactions}, {"commit", commit}, {"increment", increment},
        {"write_output", write_output}, {"read_file", read_file}, {"write_file", write_file},
        {"store_in_order", store_in_order}, {"stop_in_a_part", stop_in_a_part}, {"stop_reading", stop_reading},
        {"stop_in_an_answer", stop_in_an_answer},
        {"ask_without_end", ask_without_end}, {"ask_host", ask_host},
        {"ask_host_in_transaction", ask_host_in_transaction}, {"ask_host_wrongly", ask_host_wrongly},
        {"ask_host_often", ask_host_often}, {"own_name", tell_own_name},
        {"ask_at_the_end", ask_at_the_end},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        if (holdfast_export(functions[at].name, functions[at].function, NULL)) return 1;
    }
    int status = holdfast_serve();
    if (at_the_end[0]) {
        holdfast_result result = {0};
        (void)holdfast_call_host(holdfast_import(at_the_end), NULL, 0, &result);
        holdfast_result_free(&result);
    }
    return status;
}
