/* Threads whose objects others free, that end and are followed by others, in a process that forks meanwhile. With an
 * argument a signal handler interrupts them that allocates, which the C library's own allocator does not stand. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("line %d: not so: %s\n", __LINE__, #condition);             \
            fflush(stdout);                                                    \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

enum { THREADS = 4, GENERATIONS = 10, ROUNDS = 20000, LIVE = 500 };

/* An object begins with its own address and its size; the last byte is the lowest one of that. */
static uint64_t *shared[LIVE];

static uint64_t *new_object(size_t size) {
    uint64_t *object = malloc(size);
    MUST(object);
    object[0] = (uint64_t)(uintptr_t)object;
    object[1] = size;
    ((unsigned char *)object)[size - 1] = (unsigned char)size;
    return object;
}

static void drop_object(uint64_t *object) {
    MUST(object[0] == (uint64_t)(uintptr_t)object);
    MUST(((unsigned char *)object)[object[1] - 1] == (unsigned char)object[1]);
    object[0] = 0;
    free(object);
}

static size_t size_of(uint64_t random) { return 17 + random % (random % 16 ? 500 : 60000); }

static void *work(void *argument) {
    uint64_t random = (uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t *object = new_object(size_of(random >> 20));
        uint64_t **place = &shared[(random >> 33) % LIVE];
        uint64_t *old = __atomic_exchange_n(place, object, __ATOMIC_ACQ_REL);
        if (old) drop_object(old);
    }
    return NULL;
}

static void interrupt(int signal) {
    (void)signal;
    /* What POSIX does not allow, and programs do. */
    free(malloc(100));
}

int main(int argc, char **argv) {
    (void)argv;
    pthread_t threads[THREADS];
    alarm(60);
    signal(SIGVTALRM, interrupt);
    struct itimerval often = {{0, 500}, {0, 500}};
    if (argc > 1) MUST(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    for (uintptr_t generation = 1; generation <= GENERATIONS; generation++) {
        for (uintptr_t i = 0; i < THREADS; i++) {
            MUST(pthread_create(&threads[i], NULL, work, (void *)(generation * THREADS + i)) == 0);
        }
        pid_t child = fork();
        if (child == 0) {
            /* Of the objects of the parent some are half-made: only its own are touched. */
            memset(shared, 0, sizeof shared);
            work((void *)7);
            _exit(0);
        }
        for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
        int status = -1;
        MUST(waitpid(child, &status, 0) == child);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < LIVE; i++) {
        if (shared[i]) drop_object(shared[i]);
    }
    return 0;
}
