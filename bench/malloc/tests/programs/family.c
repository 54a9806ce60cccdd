/* Uses malloc and its family in every way that a program may: the same with and without the shim. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                          \
    do {                                                                         \
        if (!(condition)) {                                                      \
            printf("line %d: not so: %s\n", __LINE__, #condition);               \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

static void filled(unsigned char *at, unsigned char with, size_t size) {
    for (size_t i = 0; i < size; i++) MUST(at[i] == with);
}

static void alignments(void) {
    void *kept[64];
    int count = 0;
    for (size_t align = 8; align <= 1 << 20; align *= 4) {
        for (size_t size = 1; size <= 1 << 20; size = size * 40 + 7) {
            void *pointer = NULL;
            MUST(posix_memalign(&pointer, align, size) == 0);
            MUST((uintptr_t)pointer % align == 0 && malloc_usable_size(pointer) >= size);
            memset(pointer, 1, malloc_usable_size(pointer));
            if (count < 64) kept[count++] = pointer;
            else free(pointer);
            unsigned char *grown = memalign(align, size);
            MUST((uintptr_t)grown % align == 0);
            memset(grown, 2, size);
            grown = realloc(grown, size * 3);
            MUST(grown);
            filled(grown, 2, size);
            free(grown);
        }
    }
    while (count > 0) free(kept[--count]);
    void *none = NULL;
    MUST(posix_memalign(&none, 3, 10) == EINVAL && posix_memalign(&none, 4, 10) == EINVAL);
    void *pages[] = {valloc(10), pvalloc(10), aligned_alloc(64, 128)};
    MUST((uintptr_t)pages[0] % 4096 == 0 && (uintptr_t)pages[1] % 4096 == 0 && (uintptr_t)pages[2] % 64 == 0);
    MUST(malloc_usable_size(pages[1]) >= 4096);
    for (int i = 0; i < 3; i++) free(pages[i]);
}

static void sizes(void) {
    free(NULL);
    void *nothing = malloc(0);
    MUST(nothing && malloc_usable_size(NULL) == 0);
    free(nothing);
    unsigned char *dirty = malloc(5000);
    memset(dirty, 9, 5000);
    free(dirty);
    unsigned char *clean = calloc(50, 100);
    MUST(clean);
    filled(clean, 0, 5000);
    free(clean);
    volatile size_t huge = SIZE_MAX;
    errno = 0;
    MUST(!malloc(huge) && errno == ENOMEM);
    MUST(!malloc(huge / 2) && !calloc(huge / 2, 3) && !reallocarray(NULL, huge / 2, 3) && !valloc(huge));
    unsigned char *same = malloc(10);
    memset(same, 3, 10);
    MUST(!realloc(same, huge));
    filled(same, 3, 10);
    for (size_t size = 10; size < 3 << 20; size = size * 3 / 2) {
        same = reallocarray(same, size, 1);
        MUST(same);
        filled(same, 3, 10);
        memset(same, 3, size);
    }
    same = realloc(same, 20);
    filled(same, 3, 20);
    free(same);
    same = realloc(NULL, 30);
    MUST(same);
    free(same);
}

/* What is freed is used again, also where an alignment put the pointer into the middle of a larger object. Those
 * that happen to start where their object does (all of it is usable) are kept, so that no others are handed out. */
static void reuse(void) {
    enum { AT_ONCE = 100, KEPT_MAX = 4000, WHOLE = 3000 + 2048 };
    static unsigned char *kept[KEPT_MAX], *live[AT_ONCE];
    int kept_count = 0;
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < AT_ONCE;) {
            unsigned char *pointer = memalign(2048, 3000);
            MUST(pointer);
            pointer[0] = pointer[2999] = 1;
            if (malloc_usable_size(pointer) < WHOLE) {
                live[i++] = pointer;
            } else {
                MUST(kept_count < KEPT_MAX);
                kept[kept_count++] = pointer;
            }
        }
        for (int i = 0; i < AT_ONCE; i++) free(live[i]);
    }
    while (kept_count > 0) free(kept[--kept_count]);
}

/* Pointers that no malloc has returned are left alone. (The C library would abort, so only with the shim.) */
static void foreign(void) {
    static _Alignas(16) char mine[64];
    char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *volatile pointers[] = {mine + 16, mapped + 16};
    for (int i = 0; i < 2; i++) {
        MUST(malloc_usable_size(pointers[i]) == 0);
        MUST(!realloc(pointers[i], 100));
        free(pointers[i]);
    }
}

/* All at once and mostly inside the allocator, so that two threads meet there. */
static pthread_barrier_t all_started;

static void *work(void *argument) {
    unsigned char number = *(unsigned char *)argument;
    unsigned char *live[100] = {0};
    pthread_barrier_wait(&all_started);
    for (unsigned i = 0; i < 300000; i++) {
        unsigned slot = i * 37 % 100, size = 16 + i * 13 % 100;
        if (live[slot]) MUST(live[slot][0] == number && live[slot][15] == number);
        if (i % 4 == 0) live[slot] = realloc(live[slot], size);
        else free(live[slot]), live[slot] = i % 4 == 1 ? aligned_alloc(64, size) : malloc(size);
        memset(live[slot], number, 16);
    }
    for (unsigned slot = 0; slot < 100; slot++) free(live[slot]);
    return NULL;
}

static void threads(void) {
    pthread_t started[4];
    MUST(pthread_barrier_init(&all_started, NULL, 4) == 0);
    unsigned char numbers[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) MUST(pthread_create(&started[i], NULL, work, &numbers[i]) == 0);
    for (int i = 0; i < 4; i++) MUST(pthread_join(started[i], NULL) == 0);
}

/* After a fork, parent and child change their own copies: also the child's child, and memory that is new. */
static void forks(void) {
    unsigned char *shared = malloc(100000);
    memset(shared, 'p', 100000);
    pid_t child = fork();
    if (child == 0) {
        filled(shared, 'p', 100000);
        memset(shared, 'c', 100000);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            filled(shared, 'c', 100000);
            memset(shared, 'g', 100000);
            unsigned char *own = malloc(9 << 20);
            memset(own, 'g', 9 << 20);
            free(shared);
            _exit(0);
        }
        for (int i = 0; i < 50; i++) memset(malloc(1 << 20), 'c', 1 << 20);
        int status = 1;
        MUST(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        filled(shared, 'c', 100000);
        free(shared);
        _exit(0);
    }
    unsigned char *own = malloc(20 << 20);
    memset(own, 'q', 20 << 20);
    int status = 1;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    filled(shared, 'p', 100000);
    filled(own, 'q', 20 << 20);
    free(shared);
    free(own);
}

int main(int argc, char **argv) {
    alarm(60);
    alignments();
    sizes();
    reuse();
    threads();
    forks();
    if (argc == 2 && !strcmp(argv[1], "foreign")) foreign();
    printf("as it must be\n");
    return 0;
}
