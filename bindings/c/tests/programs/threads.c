/*
 * An applet whose functions use the heap from several threads.
 *
 *     spread    four threads allocate, check and free 20,000 objects each, so much that the heap grows meanwhile, and each
 *               finds its own last error; returns how many objects are left, which must be what they kept
 *     between   leaves a thread behind that needs the host between two calls: it goes on in the next one
 *     joined    waits for that thread; returns what it allocated
 */
#include <holdfast_applet.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 20000, KEPT = 100 };

#define MUST(holds) ((holds) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, nv_message()), abort()))

static void *work(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    uint32_t *kept[KEPT] = {0};
    MUST(nv_errno() == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t **place = &kept[round * 31 % KEPT];
        if (*place) {
            MUST((*place)[0] == number && (*place)[1] == round * 31 % KEPT);
            MUST(!nvfree(*place));
        }
        /* 4 x 100 x 20,000 bytes on average: more than the 4 MiB that a region begins with. */
        *place = nvmalloc(NULL, 8 + round * 97 % 40000);
        MUST(*place);
        (*place)[0] = (uint32_t)number;
        (*place)[1] = round * 31 % KEPT;
        if (round % 1000 == 0) {
            /* Every thread makes another mistake. */
            int expected = number % 2 ? NV_NOT_ALLOCATED : NV_NO_SUCH_ROOT;
            MUST((number % 2 ? nvfree((void *)(uintptr_t)8) : nvremove("none")) == expected);
            MUST(nv_errno() == expected);
        }
    }
    return NULL;
}

static int spread(holdfast_call *call, void *context) {
    (void)context;
    pthread_t threads[THREADS];
    MUST(nvmalloc("first", 1));
    for (uintptr_t number = 0; number < THREADS; number++) MUST(!pthread_create(&threads[number], NULL, work, (void *)number));
    for (int number = 0; number < THREADS; number++) MUST(!pthread_join(threads[number], NULL));
    MUST(nv_errno() == 0);
    return holdfast_reply(call, "done", 4);
}

static pthread_t behind;

static void *allocate_late(void *started) {
    *(volatile int *)started = 1;
    /* Long enough for the call to be over. */
    for (volatile unsigned spin = 0; spin < 200000000; spin++) {}
    /* More than the other threads can have left free: the heap has to grow for it. */
    void *large = nvmalloc("late", 64 << 20);
    MUST(large);
    memset(large, 7, 64 << 20);
    return large;
}

static int between(holdfast_call *call, void *context) {
    (void)call, (void)context;
    static volatile int started;
    MUST(!pthread_create(&behind, NULL, allocate_late, (void *)&started));
    while (!started) {}
    return 0;
}

static int joined(holdfast_call *call, void *context) {
    (void)context;
    void *large = NULL;
    MUST(!pthread_join(behind, &large));
    MUST(large && nvread("late", NULL) == large);
    return holdfast_reply(call, large, 3);
}

int main(void) {
    holdfast_export("spread", spread, NULL);
    holdfast_export("between", between, NULL);
    holdfast_export("joined", joined, NULL);
    return holdfast_serve();
}
