/* What is easily got wrong at the edges of holdfast.h: `edges COMMAND`. What differs from what must be is printed. */
#define _GNU_SOURCE
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            printf("line %d: not so: %s (%d: %s)\n", __LINE__, #condition, nv_errno(), nv_message());     \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* Somebody who is called in a transaction gives up, and the caller goes on without looking. */
static void nested(void) {
    char **root = nvmalloc("root", sizeof *root);
    MUST(root && (*root = nvmalloc(NULL, 100)));
    strcpy(*root, "precious");
    MUST(nv_tx_begin() == 0 && nv_tx_begin() == 0 && nv_tx_abort() == 0);
    MUST(nv_tx_add(root, sizeof *root) == 0 && nvfree(*root) == 0 && nvmalloc("late", 8));
    *root = NULL;
    MUST(nv_commit(NV_PROCESS) == NV_IN_TRANSACTION);
    MUST(nv_tx_commit() == NV_ABORTED && strstr(nv_message(), "inner"));
    MUST(nv_tx_commit() == NV_NO_TRANSACTION);
    MUST(!nvread("late", NULL) && *root && !strcmp(*root, "precious"));
    MUST(nvmalloc(NULL, 100) != *root && nvfree(*root) == 0);
    /* The next transaction knows nothing of it. */
    MUST(nv_tx_begin() == 0 && nvmalloc("next", 8) && nv_tx_commit() == 0 && nvread("next", NULL));
}

enum { STEPS = 1 << 14 };

/* Raises one number after the other, so that at every moment those in front are one ahead of the others. */
static void *store_for_ever(void *argument) {
    for (volatile unsigned long(*numbers)[8] = argument;; )
        for (int i = 0; i < STEPS; i++) numbers[i][0]++;
    return NULL;
}

static void look_at_numbers(unsigned long (*numbers)[8]) {
    int steps = 0;
    for (int i = 1; i < STEPS; i++) {
        MUST(numbers[i][0] == numbers[i - 1][0] || (numbers[i][0] + 1 == numbers[i - 1][0] && steps++ == 0));
    }
    for (int i = 1; i < STEPS; i++) numbers[i][0] = numbers[0][0];
}

static void *allocate_for_ever(void *argument) {
    for (;;) {
        char *object = nvmalloc(NULL, 100);
        if (object) *object = 1, nvfree(object);
    }
    return argument;
}

static void *return_at_once(void *argument) {
    return argument;
}

static long *raised(void) {
    long *count = nvread("count", NULL);
    if (!count) count = nvmalloc("count", sizeof *count);
    MUST(count);
    ++*count;
    return count;
}

static void start(void *(*run)(void *), void *argument) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, run, argument) == 0 && pthread_detach(thread) == 0);
}

/* Ends while its threads are at work. */
static void leave_threads(void) {
    unsigned long(*numbers)[8] = nvmmap("numbers", STEPS * sizeof *numbers);
    MUST(numbers);
    look_at_numbers(numbers);
    start(store_for_ever, numbers);
    start(allocate_for_ever, NULL);
    usleep(5000);
    printf("%ld\n", *raised());
}

static void leave_threads_atomic(void) {
    MUST(nv_open_atomic("heap", 0) == 0);
    leave_threads();
}

static void join_threads(void) {
    printf("%ld\n", *raised());
    fflush(stdout);
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) MUST(pthread_create(&threads[i], NULL, return_at_once, NULL) == 0);
    for (int i = 0; i < 50; i++) MUST(pthread_join(threads[i], NULL) == 0);
}

/* The ways to fork, of which the C library notices only the first. */
static pid_t fork_by_number(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void children(void) {
    pid_t (*const ways[])(void) = {fork, _Fork, fork_by_number};
    char *object = nvmalloc("object", 10);
    MUST(object);
    for (int way = 0; way < 3; way++) {
        for (int touches = 0; touches < 3; touches++) {
            pid_t child = ways[way]();
            if (child == 0) {
                signal(SIGSEGV, SIG_DFL);
                MUST(nv_session() == 0 && !nvmalloc("of the child", 10) && nv_errno() == NV_FORKED);
                MUST(nv_open("other", 0) == NV_FORKED && nv_close() == NV_FORKED && nv_tx_begin() == NV_FORKED);
                if (touches == 1) *object = 'c';
                if (touches == 2) object[9 << 20] = 'c'; /* where the heap has grown to */
                _exit(0);
            }
            int status = -1;
            MUST(child > 0 && waitpid(child, &status, 0) == child);
            MUST(touches ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : status == 0);
            char *grown = nvmalloc(NULL, 10 << 20);
            MUST(*object == 0 && !nvread("of the child", NULL) && grown && nvfree(grown) == 0);
        }
    }
    /* A child of a process without an open heap may open one. */
    MUST(nv_close() == 0);
    for (int way = 0; way < 3; way++) {
        pid_t child = ways[way]();
        if (child == 0) _exit(nv_open("heap", 0) || !nvread("object", NULL) || nv_close());
        int status = -1;
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } commands[] = {
        {"nested", nested},
        {"leave-threads", leave_threads},
        {"leave-threads-atomic", leave_threads_atomic},
        {"join-threads", join_threads},
        {"children", children},
    };
    alarm(60); /* nothing here takes a second */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (argc == 2 && !strcmp(argv[1], commands[i].name)) {
            commands[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: edges COMMAND\n");
    return 2;
}
