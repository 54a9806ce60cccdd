/* Forks at inconvenient moments: the same with and without the shim. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define MUST(condition)                                                          \
    do {                                                                         \
        if (!(condition)) {                                                      \
            printf("line %d: not so: %s\n", __LINE__, #condition);               \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

static FILE *file;

static void *fork_once(void *argument) {
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        _exit(fputs("of the child", file) < 0);
    }
    int status = -1;
    MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return argument;
}

static void *put(void *text) {
    MUST(fputs(text, file) >= 0);
    return NULL;
}

static void in_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* The C library resets the locks of all files in the child, which must not reach the parent. */
static void with_a_locked_file(void) {
    file = fopen("/dev/null", "w");
    MUST(file);
    for (int i = 0; i < 20; i++) {
        flockfile(file);
        in_thread(fork_once, NULL);
        put("still locked by this thread");
        funlockfile(file);
        put("and by nobody");
        in_thread(put, "nor by any other");
    }
    fclose(file);
}

/* On a stack that lies in the heap, where the shim cannot give the child a copy: it ends, and the parent does not. */
static void fork_from_the_heap(void) {
    volatile int here = 1;
    pid_t child = fork();
    if (child == 0) {
        here = 2;
        _exit(0);
    }
    int status = -1;
    MUST(child > 0 && waitpid(child, &status, 0) == child && here == 1);
    MUST(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

/* Deaf to faults, and with an alternate stack: both are the same afterwards, for parent and child. */
static void while_deaf_to_faults(void) {
    stack_t alternate = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, now;
    sigset_t faults, before;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    MUST(alternate.ss_sp && sigaltstack(&alternate, NULL) == 0);
    MUST(pthread_sigmask(SIG_BLOCK, &faults, NULL) == 0);
    pid_t child = fork();
    MUST(pthread_sigmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGSEGV));
    MUST(sigaltstack(NULL, &now) == 0 && now.ss_sp == alternate.ss_sp);
    if (child == 0) _exit(0);
    int status = -1;
    MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    MUST(pthread_sigmask(SIG_UNBLOCK, &faults, NULL) == 0);
    alternate.ss_flags = SS_DISABLE;
    MUST(sigaltstack(&alternate, NULL) == 0);
    free(now.ss_sp);
}

static void from_a_stack_in_the_heap(void) {
    enum { BYTES = 1 << 20 };
    static ucontext_t main_context, context;
    MUST(getcontext(&context) == 0 && (context.uc_stack.ss_sp = malloc(BYTES)));
    context.uc_stack.ss_size = BYTES;
    context.uc_link = &main_context;
    makecontext(&context, fork_from_the_heap, 0);
    MUST(swapcontext(&main_context, &context) == 0);
    free(context.uc_stack.ss_sp);
}

/* The program's own handling of faults is what it was, in parent and child. */
static void on_fault(int signal) {
    (void)signal;
    _exit(7);
}

static void with_a_handler(void) {
    MUST(signal(SIGSEGV, on_fault) != SIG_ERR);
    char *object = malloc(100);
    strcpy(object, "before");
    pid_t child = fork();
    if (child == 0) {
        MUST(!strcmp(object, "before"));
        strcpy(object, "child");
        *(volatile int *)8 = 1;
    }
    int status = -1;
    MUST(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MUST(!strcmp(object, "before"));
    struct sigaction now;
    MUST(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler == on_fault);
}

/* What either changes the other does not see, and the child of a large program costs no copy of its heap. */
enum { PIECES = 4096, PIECE_BYTES = 16000 };

/*
 * What is copied is private, and of no file. Private pages of a file are the kernel's, and the parent's
 * memory is not private.
 */
static size_t copied_kib(void) {
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[200];
    size_t is_private = 0, of_no_file = 0;
    MUST(rollup);
    while (fgets(line, sizeof line, rollup)) {
        sscanf(line, "Private_Dirty: %zu", &is_private);
        sscanf(line, "Anonymous: %zu", &of_no_file);
    }
    fclose(rollup);
    return is_private < of_no_file ? is_private : of_no_file;
}

static void without_a_copy(void) {
    static unsigned char *pieces[PIECES];
    int go[2];
    char byte = 0;
    for (int i = 0; i < PIECES; i++) {
        MUST((pieces[i] = malloc(PIECE_BYTES)));
        memset(pieces[i], i, PIECE_BYTES);
    }
    for (int round = 0; round < 3; round++) {
        MUST(pipe(go) == 0);
        pid_t child = fork();
        if (child == 0) {
            MUST(read(go[0], &byte, 1) == 1);
            /* The parent is done with whatever it had for us. */
            MUST(copied_kib() < PIECES * (PIECE_BYTES / 1024) / 4);
            for (int i = 0; i < PIECES; i++) {
                unsigned char now = (unsigned char)(i + round * (i % 16 == 0));
                MUST(pieces[i][0] == now && pieces[i][PIECE_BYTES - 1] == (unsigned char)i);
                if (i % 16 == 0) memset(pieces[i], 0xEE, PIECE_BYTES);
            }
            for (int i = 1; i < PIECES; i += 2) free(pieces[i]);
            void *again = malloc(40000);
            MUST(again);
            memset(again, 0xEE, 40000);
            _exit(0);
        }
        for (int i = 0; i < PIECES; i += 16) pieces[i][0]++;
        MUST(write(go[1], &byte, 1) == 1);
        int status = -1;
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        for (int i = 0; i < PIECES; i++) {
            MUST(pieces[i][0] == (unsigned char)(i + (round + 1) * (i % 16 == 0)));
            MUST(pieces[i][PIECE_BYTES - 1] == (unsigned char)i);
        }
        close(go[0]);
        close(go[1]);
    }
    for (int i = 0; i < PIECES; i++) free(pieces[i]);
}

int main(void) {
    alarm(30);
    without_a_copy();
    with_a_locked_file();
    from_a_stack_in_the_heap();
    while_deaf_to_faults();
    with_a_handler();
    printf("as it must be\n");
    return 0;
}
