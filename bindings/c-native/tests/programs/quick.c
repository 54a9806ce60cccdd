/* Small objects of many threads: `quick COMMAND`. What differs from what must be is printed and ends it.
 *
 *     ends      threads end with objects that others free, and end with room that others use
 *     forks     a child of a thread that has slabs of its own is refused all the same
 *     joins     what a thread allocates and frees in an open transaction belongs to that
 *     closes    a thread goes on after another one has closed and opened the heap
 *     commits   threads allocate, and store nothing, while another one commits in the mode atomic
 *     dies      four threads allocate, link and free until a fifth one kills the process
 *     counts    prints how many objects are linked
 */
#include <holdfast.h>
#include <pthread.h>
#include <signal.h>
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
            fflush(stdout);                                                                               \
            _exit(1);                                                                                     \
        }                                                                                                 \
    } while (0)

enum { THREADS = 4, OBJECTS = 5000, LINKS = 200 };

static unsigned char *objects[OBJECTS];

static size_t size_of(int index) { return 16 + (size_t)index * 37 % 400; }

static void *fill(void *unused) {
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = nvmalloc(NULL, size_of(i));
        MUST(objects[i]);
        for (size_t at = 0; at < size_of(i); at++) MUST(objects[i][at] == 0);
        memset(objects[i], i % 251, size_of(i));
    }
    return unused;
}

/* Frees and allocates again what an ended thread has left. */
static void *replace(void *unused) {
    for (int i = 0; i < OBJECTS; i++) {
        for (size_t at = 0; at < size_of(i); at++) MUST(objects[i][at] == i % 251);
        MUST(nvfree(objects[i]) == 0);
        objects[i] = nvmalloc_uninit(size_of(i));
        MUST(objects[i]);
        memset(objects[i], i % 251, size_of(i));
    }
    return unused;
}

static void *empty(void *unused) {
    for (int i = 0; i < OBJECTS; i++) {
        MUST(nvfree(objects[i]) == 0);
        MUST(nvfree(objects[i]) == NV_NOT_ALLOCATED);
    }
    return unused;
}

static void in_thread(void *(*work)(void *), void *argument) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, work, argument) == 0);
    MUST(pthread_join(thread, NULL) == 0);
}

static void ends(void) {
    MUST(nvmalloc("root", 16));
    in_thread(fill, NULL);
    for (int round = 0; round < 20; round++) in_thread(replace, NULL);
    in_thread(empty, NULL);
}

static void forks(void) {
    void *warm = nvmalloc(NULL, 100), *next = nvmalloc(NULL, 100);
    MUST(warm && next && nvfree(warm) == 0);
    pid_t child = fork();
    if (child == 0) {
        MUST(!nvmalloc(NULL, 100) && nv_errno() == NV_FORKED);
        MUST(!nvmalloc_uninit(100) && nv_errno() == NV_FORKED);
        MUST(nvfree(next) == NV_FORKED);
        exit(0);
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The library's lock is this thread's after so many turns, and in the child it looks as if it were. */
    for (int i = 0; i < 200; i++) MUST(nv_tx_begin() == 0 && nv_tx_commit() == 0);
    MUST(nv_tx_begin() == 0);
    child = fork();
    if (child == 0) {
        MUST(nv_tx_add(next, 8) == NV_FORKED && nv_tx_commit() == NV_FORKED && nv_tx_begin() == NV_FORKED);
        MUST(!nvmalloc(NULL, 100) && nv_errno() == NV_FORKED);
        exit(0);
    }
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    MUST(nv_tx_commit() == 0);
    MUST(nvmalloc(NULL, 100) == warm && nvfree(warm) == 0 && nvfree(next) == 0);
}

static void *allocate_and_free(void *argument) {
    void **place = argument;
    MUST(nvfree(place[0]) == 0);
    place[1] = nvmalloc(NULL, 100);
    MUST(place[1]);
    return NULL;
}

static void joins(void) {
    void *place[2] = {nvmalloc(NULL, 100), NULL};
    MUST(place[0]);
    memset(place[0], 7, 100);
    MUST(nv_tx_begin() == 0);
    in_thread(allocate_and_free, place);
    MUST(nv_tx_abort() == 0);
    MUST(nvfree(place[1]) == NV_NOT_ALLOCATED);
    for (int at = 0; at < 100; at++) MUST(((unsigned char *)place[0])[at] == 7);
    MUST(nv_tx_begin() == 0);
    in_thread(allocate_and_free, place);
    MUST(nv_tx_commit() == 0);
    MUST(nvfree(place[0]) == NV_NOT_ALLOCATED && nvfree(place[1]) == 0);
}

static pthread_barrier_t turn;

static void *go_on(void *unused) {
    void *before = nvmalloc(NULL, 100);
    MUST(before && nvfree(before) == 0);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn); /* closed */
    MUST(!nvmalloc(NULL, 100) && nv_errno() == NV_NOT_GRANTED);
    MUST(nvfree(before) == NV_NOT_GRANTED);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn); /* open again */
    void *after = nvmalloc(NULL, 100);
    MUST(after && nvfree(after) == 0 && nvfree(after) == NV_NOT_ALLOCATED);
    return unused;
}

static void closes(void) {
    pthread_t thread;
    MUST(nvmalloc("root", 16));
    MUST(pthread_barrier_init(&turn, NULL, 2) == 0);
    MUST(pthread_create(&thread, NULL, go_on, NULL) == 0);
    pthread_barrier_wait(&turn);
    MUST(nv_close() == 0);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    MUST(nv_open("heap", 0) == 0);
    pthread_barrier_wait(&turn);
    MUST(pthread_join(thread, NULL) == 0);
}

enum { ROUNDS = 60, COMMITS = 3, KEPT = 20000 };

static int is_committing;

/* Objects of a thread until the commits are over; each is freed once, which it is not when two were one. */
static void *allocate_meanwhile(void *unused) {
    unsigned char **kept = calloc(KEPT, sizeof *kept);
    int count = 0;
    MUST(kept);
    while (__atomic_load_n(&is_committing, __ATOMIC_ACQUIRE) && count < KEPT) {
        kept[count] = nvmalloc(NULL, size_of(count));
        MUST(kept[count]);
        for (size_t at = 0; at < size_of(count); at++) MUST(kept[count][at] == 0);
        count++;
    }
    while (__atomic_load_n(&is_committing, __ATOMIC_ACQUIRE)) usleep(1000);
    for (int at = 0; at < count; at++) MUST(nvfree(kept[at]) == 0);
    free(kept);
    return unused;
}

/* The first commit after an opening drops the pages that it publishes. */
static void commits(void) {
    pthread_t threads[THREADS];
    for (int round = 0; round < ROUNDS; round++) {
        MUST(nv_open_atomic("heap", 0) == 0);
        __atomic_store_n(&is_committing, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, allocate_meanwhile, NULL) == 0);
        for (int commit = 0; commit < COMMITS; commit++) {
            usleep(1000);
            MUST(nv_commit(NV_PROCESS) == 0);
        }
        __atomic_store_n(&is_committing, 0, __ATOMIC_RELEASE);
        for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
        MUST(nv_close() == 0);
    }
}

/* Each object holds its own address; links are stored after and cleared before. */
static uint64_t *links(void) {
    uint64_t *all = nvread("links", NULL);
    if (!all) all = nvmalloc("links", LINKS * sizeof *all);
    MUST(all);
    return all;
}

/* How many objects each thread has linked. */
static unsigned linked[THREADS];

static void *churn(void *argument) {
    uint64_t *all = links();
    unsigned *count = &linked[(uintptr_t)argument];
    uint64_t random = (uint64_t)(uintptr_t)argument * 7919 + (uint64_t)getpid();
    for (;;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t *link = &all[(random >> 33) % LINKS];
        /* Whoever has taken the link has the object. */
        uint64_t old = __atomic_exchange_n(link, 0, __ATOMIC_ACQ_REL);
        if (old) {
            MUST(*(uint64_t *)old == old);
            MUST(nvfree((void *)old) == 0);
        }
        uint64_t *object = nvmalloc(NULL, 16 + (random >> 40) % 300);
        MUST(object);
        *object = (uint64_t)object;
        uint64_t none = 0;
        if (!__atomic_compare_exchange_n(link, &none, (uint64_t)object, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            MUST(nvfree(object) == 0);
        } else {
            __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void dies(void) {
    pthread_t thread;
    links();
    for (uintptr_t i = 0; i < THREADS; i++) MUST(pthread_create(&thread, NULL, churn, (void *)i) == 0);
    /* On a busy machine a thread may not have begun after any given time. */
    for (int i = 0; i < THREADS; i++) {
        while (__atomic_load_n(&linked[i], __ATOMIC_RELAXED) < LINKS) usleep(100);
    }
    usleep(getpid() % 20000);
    raise(SIGKILL);
}

static void counts(void) {
    uint64_t *all = links();
    int count = 0;
    for (int i = 0; i < LINKS; i++) {
        if (!all[i]) continue;
        MUST(*(uint64_t *)all[i] == all[i]);
        count++;
    }
    printf("%d\n", count);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } commands[] = {{"ends", ends}, {"forks", forks}, {"joins", joins}, {"closes", closes}, {"commits", commits}, {"dies", dies}, {"counts", counts}};
    alarm(60);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (argc == 2 && !strcmp(argv[1], commands[i].name)) {
            commands[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: quick COMMAND\n");
    return 2;
}
