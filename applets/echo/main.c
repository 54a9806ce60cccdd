/*
 * The smallest applet in C that serves. Its functions:
 *
 *     echo      returns what it is given
 *     reverse   the same, last byte first
 *     upper     makes the letters in the call's shared buffer upper case, where they lie
 *     count     counts its calls in the persistent heap; returns the count as 8 bytes, little endian
 *     numbers   takes a count in decimal, and streams the numbers from 1 to it, each as a chunk of text
 */
#include <holdfast_applet.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int echo(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *bytes = holdfast_input(call, &size);
    if (holdfast_reply(call, bytes, size)) return holdfast_fail(call, nv_message());
    return 0;
}

static int reverse(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *bytes = holdfast_input(call, &size);
    char *reversed = malloc(size ? size : 1);
    if (!reversed) return holdfast_fail(call, "there is no memory");
    for (size_t at = 0; at < size; at++) reversed[size - 1 - at] = bytes[at];
    int status = holdfast_reply(call, reversed, size);
    free(reversed);
    return status ? holdfast_fail(call, nv_strerror(status)) : 0;
}

static int upper(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    unsigned char *text = holdfast_buffer(call, &size);
    if (!text) return holdfast_fail(call, "upper works in a shared buffer; call it with one");
    for (size_t at = 0; at < size; at++) {
        /* Read once: the host may store here at any time. */
        unsigned char letter = text[at];
        if (letter >= 'a' && letter <= 'z') text[at] = (unsigned char)(letter - 'a' + 'A');
    }
    return 0;
}

static int count(holdfast_call *call, void *context) {
    (void)context;
    uint64_t *counter = nvread("calls", NULL);
    if (!counter) counter = nvmalloc("calls", sizeof *counter);
    if (!counter || nv_tx_begin()) return holdfast_fail(call, nv_message());
    if (nv_tx_add(counter, sizeof *counter)) return holdfast_fail(call, nv_message());
    ++*counter;
    if (nv_tx_commit() || holdfast_reply(call, counter, sizeof *counter)) return holdfast_fail(call, nv_message());
    return 0;
}

static int numbers(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const char *text = holdfast_input(call, &size);
    unsigned long most = 0;
    for (size_t at = 0; at < size; at++) {
        if (text[at] < '0' || text[at] > '9' || most >= 100000000) {
            holdfast_fail(call, "numbers takes a count in decimal, of at most 9 digits");
            return 2;
        }
        most = most * 10 + (unsigned long)(text[at] - '0');
    }
    for (unsigned long number = 1; number <= most; number++) {
        /* The host may have enough before the end. */
        if (holdfast_cancelled(call)) return holdfast_fail(call, "cancelled");
        char chunk[16];
        int length = snprintf(chunk, sizeof chunk, "%lu", number);
        int status = holdfast_send(call, chunk, (size_t)length);
        /* Or while this waits for room. */
        if (status == NV_CANCELLED) return holdfast_fail(call, "cancelled");
        if (status) return holdfast_fail(call, nv_message());
    }
    return 0;
}

int main(void) {
    holdfast_export("echo", echo, NULL);
    holdfast_export("reverse", reverse, NULL);
    holdfast_export("upper", upper, NULL);
    holdfast_export("count", count, NULL);
    holdfast_export("numbers", numbers, NULL);
    int status = holdfast_serve();
    if (status) fprintf(stderr, "echo: %s\n", nv_strerror(status));
    return status;
}
