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
    MUST(nv_tx_commit() == NV_ABORTED && strstr(nv_message(), "aborted"));
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

static void shapes(void) {
    size_t size = 0;
    long *typed = nvmalloc_typed("typed", 3 * sizeof *typed, 0xABC);
    MUST(typed && nvread_typed("typed", 0xABC, &size) == typed && size == 3 * sizeof *typed);
    MUST(!nvread_typed("typed", 0xABD, NULL) && nv_errno() == NV_LAYOUT && strstr(nv_message(), "0abc"));
    MUST(nvread("typed", NULL) == typed && nvread_typed("typed", 0, NULL) == typed);
    MUST(!nvread_typed("none", 1, NULL) && nv_errno() == NV_NO_SUCH_ROOT);
    MUST(!nvmalloc_typed("typed", 8, 1) && nv_errno() == NV_NAME_TAKEN);
    for (size_t alignment = 1; alignment <= 2 << 20; alignment *= 2) {
        char *aligned = nvaligned_alloc(alignment, 100);
        MUST(aligned && (size_t)aligned % alignment == 0);
        for (int i = 0; i < 100; i++) MUST(aligned[i] == 0);
        memset(aligned, 1, 100);
        MUST(nvfree(aligned) == 0);
    }
    MUST(!nvaligned_alloc(3, 1) && nv_errno() == NV_ALIGNMENT && !nvaligned_alloc(4 << 20, 1));
    char *object = nvrealloc(NULL, 100);
    MUST(object && object[99] == 0);
    strcpy(object, "content");
    for (size_t bytes = 200; bytes < 20 << 20; bytes *= 3) {
        object = nvrealloc(object, bytes);
        MUST(object && !strcmp(object, "content"));
        memset(object + 8, 1, bytes - 8);
    }
    MUST(!nvrealloc(object, SIZE_MAX) && nv_errno() == NV_LIMIT_REACHED && !strcmp(object, "content"));
    MUST(!nvrealloc(object, 100 << 20) && nv_errno() == NV_LIMIT_REACHED);
    MUST(nv_set_limit(256 << 20) == 0 && (object = nvrealloc(object, 100 << 20)) && !strcmp(object, "content"));
    MUST(nv_set_limit(1 << 20) == NV_LIMIT_REACHED && strstr(nv_message(), "larger"));
    MUST(nvname("object", object, 100, 5) == 0 && nvread_typed("object", 5, &size) == object && size == 100);
    MUST(!nvrealloc(object, 10) && nv_errno() == NV_IS_ROOT && strstr(nv_message(), "nvremove"));
    MUST(nvname("again", object, 100, 0) == NV_NAME_TAKEN && nvname("none", &size, 1, 0) == NV_NOT_ALLOCATED);
}

/* With a key that may only read. */
static void only_read(void) {
    long *count = nvread("count", NULL);
    MUST(count && *count == 3);
    MUST(!nvmalloc("new", 8) && nv_errno() == NV_READ_ONLY && !nvmalloc(NULL, 8) && nv_errno() == NV_READ_ONLY);
    MUST(nv_tx_begin() == NV_READ_ONLY && nvremove("count") == NV_READ_ONLY && nvfree(count) == NV_READ_ONLY);
    MUST(!nvrealloc(NULL, 9) && nv_set_limit(1 << 30) == NV_READ_ONLY && nv_commit(NV_POWER) == 0);
    printf("read\n");
    fflush(stdout);
    if (getchar() == 's') *count = 4;
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
        {"shapes", shapes},
        {"only-read", only_read},
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
