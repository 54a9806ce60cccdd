/* Compartments of the threads of one program: `compartments COMMAND`. What differs from what must be is printed. */
#define _GNU_SOURCE
#include <holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            printf("line %d: not so: %s (%d: %s)\n", __LINE__, #condition, nv_errno(), nv_message());     \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

static atomic_int turn;

static void reach(int value) {
    while (turn < value) usleep(1000);
}

static void *on_a_thread(void *(*work)(void *), void *argument) {
    pthread_t thread;
    void *result;
    MUST(pthread_create(&thread, NULL, work, argument) == 0 && pthread_join(thread, &result) == 0);
    return result;
}

/* What is done without a handle goes to the compartment; an object of one is none of another. */
static void apart(void) {
    MUST(nv_compartment_enter("early") == NV_NOT_GRANTED && nv_open("jobs", 0) == 0);
    char *shared = nvmalloc("root", 8), *small = nvmalloc(NULL, 24);
    nv_heap *jobs = nv_heap_open(NULL);
    uint64_t session = nv_session();
    MUST(shared && small && jobs && nv_compartment_leave() == NV_NOT_GRANTED);
    MUST(nv_compartment_enter("one") == 0 && nv_session() != session && !nvread("root", NULL));
    char *own = nvmalloc("root", 8), *child = nvmalloc(NULL, 24);
    MUST(own && child && own != shared && nv_read_in(jobs, "root", NULL) == shared);
    MUST(nvfree(small) == NV_NOT_ALLOCATED && nvname("x", small, 24, 0) == NV_NOT_ALLOCATED);
    MUST(nv_free_in(jobs, child) == NV_NOT_ALLOCATED && !nvrealloc(small, 100) && nv_errno() == NV_NOT_ALLOCATED);
    MUST(nv_tx_begin() == 0 && nv_tx_add(shared, 8) == NV_BAD_RANGE && nv_tx_begin_in(jobs) == NV_OTHER_HEAP);
    MUST(nvfree(child) == 0 && nvmalloc("lost", 8) && nv_persist(small, 8) == NV_BAD_RANGE);
    MUST(nv_compartment_enter("two") == NV_IS_OPEN && nv_compartment_enter(NULL) == NV_IS_OPEN);
    MUST(nv_open("other", 0) == NV_IS_OPEN && nv_close() == NV_UNSUPPORTED && nv_rollback() == NV_UNSUPPORTED);
    MUST(nv_compartment_leave() == 0 && nv_session() == session && nvread("root", NULL) == shared);
    MUST(nvfree(small) == 0 && nvfree(child) == NV_NOT_ALLOCATED);
    MUST(nv_tx_begin() == 0 && nv_compartment_enter("one") == NV_IN_TRANSACTION && nv_tx_abort() == 0);
    MUST(nv_compartment_enter("jobs+one") == 0 && nvread("root", NULL) == own && !nvread("lost", NULL));
    MUST(nvfree(child) == 0 && nv_commit(NV_POWER) == 0 && nv_compartment_leave() == 0);
    MUST(nv_compartment_enter("words+one") == NV_NOT_GRANTED && nv_compartment_enter("a b") == NV_BAD_NAME);
    MUST(nv_compartment_enter(NULL) == 0 && !nvread("root", NULL) && nvmalloc("root", 8));
    /* The main thread ends inside. */
}

static void *enter(void *name) { return (void *)(long)nv_compartment_enter(name); }

static void *stay(void *name) {
    MUST(nv_compartment_enter(name) == 0 && nv_tx_begin() == 0 && nvmalloc("open", 8));
    turn = 1;
    reach(2);
    return NULL;
}

/* What a thread has no other gets, until it ends: then it is rolled back, and free. */
static void ends(void) {
    MUST(nv_open("jobs", 0) == 0);
    pthread_t thread;
    char *first = "thread-1";
    MUST(pthread_create(&thread, NULL, stay, first) == 0);
    reach(1);
    MUST(nv_compartment_enter("thread-1") == NV_HELD && strstr(nv_message(), "jobs+thread-1"));
    MUST(nv_compartment_enter(NULL) == 0 && nvmalloc("second", 8) && nv_compartment_leave() == 0);
    MUST(on_a_thread(enter, first) == (void *)NV_HELD);
    turn = 2;
    MUST(pthread_join(thread, NULL) == 0 && nv_compartment_enter(NULL) == 0 && !nvread("open", NULL));
    MUST(nv_compartment_leave() == 0 && nv_compartment_enter("thread-2") == 0 && nvread("second", NULL));
    /* Every thread so far has left; so does one that enters and ends at once. */
    MUST(nv_compartment_leave() == 0 && on_a_thread(enter, first) == NULL && nv_compartment_enter(first) == 0);
}

static void *fill(void *name) {
    MUST(nv_compartment_enter(name) == 0 && nv_set_limit(64 << 20) != 0);
    while (nvmalloc(NULL, 60000)) {}
    MUST(nv_errno() == NV_LIMIT_REACHED);
    return NULL;
}

/* A full compartment is full for itself. */
static void full(void) {
    MUST(setenv("HOLDFAST_COMPARTMENT_QUOTA", "much", 1) == 0 && nv_open("jobs", 0) == 0);
    MUST(nv_compartment_enter("one") == NV_FAILED && strstr(nv_message(), "HOLDFAST_COMPARTMENT_QUOTA"));
    MUST(setenv("HOLDFAST_COMPARTMENT_QUOTA", "2MiB", 1) == 0);
    on_a_thread(fill, "one");
    MUST(nv_compartment_enter("two") == 0);
    for (int i = 0; i < 20; i++) MUST(nvmalloc(NULL, 60000));
    MUST(nv_compartment_leave() == 0);
    for (int i = 0; i < 100; i++) MUST(nvmalloc(NULL, 60000));
    MUST(setenv("HOLDFAST_COMPARTMENT_QUOTA", "1GiB", 1) == 0 && nv_compartment_enter("three") == NV_LIMIT_REACHED);
    MUST(nv_compartment_enter("one") == 0);
}

/* A child has neither the heap nor the compartment, and its end changes neither. */
static void forks(void) {
    MUST(nv_open("jobs", 0) == 0 && nv_compartment_enter("one") == 0 && nvmalloc("root", 8));
    MUST(nv_tx_begin() == 0 && nvmalloc("second", 8));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int is_right = !nvread("root", NULL) && nv_errno() == NV_FORKED && nv_compartment_leave() == NV_FORKED &&
                       nv_compartment_enter("two") == NV_FORKED && nv_session() == 0;
        exit(is_right ? 0 : 1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0 && nv_tx_commit() == 0);
    MUST(nvread("second", NULL) && nv_compartment_leave() == 0 && nv_compartment_enter("one") == 0);
    MUST(nvread("root", NULL) && nvread("second", NULL));
}

typedef struct {
    uint64_t count;
    uint64_t sum;
    void *last;
} ledger;

/* For tests that kill it: adds for ever, and says which entry counts. */
static void *add(void *name) {
    MUST(nv_compartment_enter(name) == 0);
    ledger *kept = nvread("ledger", NULL);
    if (!kept) kept = nvmalloc("ledger", sizeof *kept);
    MUST(kept && kept->sum == kept->count * (kept->count + 1) / 2);
    for (;;) {
        MUST(nv_tx_begin() == 0);
        void *entry = nvmalloc(NULL, 48);
        MUST(entry && nv_tx_add(kept, sizeof *kept) == 0 && nvfree(kept->last) == 0);
        kept->last = entry;
        kept->sum += ++kept->count;
        MUST(nv_tx_commit() == 0);
        printf("%s %llu\n", (char *)name, (unsigned long long)kept->count);
        fflush(stdout);
    }
}

static void run(void) {
    MUST(nv_open("jobs", 0) == 0);
    pthread_t thread;
    for (char **name = (char *[]){"one", "two", "three", NULL}; *name; name++) {
        MUST(pthread_create(&thread, NULL, add, *name) == 0);
    }
    add("four");
}

static void look(void) {
    MUST(nv_open("jobs", 0) == 0);
    for (char **name = (char *[]){"one", "two", "three", "four", NULL}; *name; name++) {
        MUST(nv_compartment_enter(*name) == 0);
        const ledger *kept = nvread("ledger", NULL);
        MUST(!kept || kept->sum == kept->count * (kept->count + 1) / 2);
        printf("%llu ", kept ? (unsigned long long)kept->count : 0);
        MUST(nv_compartment_leave() == 0);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "apart")) apart();
    else if (!strcmp(what, "ends")) ends();
    else if (!strcmp(what, "full")) full();
    else if (!strcmp(what, "forks")) forks();
    else if (!strcmp(what, "run")) run();
    else if (!strcmp(what, "look")) look();
    else return 2;
    return 0;
}
