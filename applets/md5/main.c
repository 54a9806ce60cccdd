/*
 * MD5 as an applet: the computation of the papers that is long enough for a call to pay.
 *
 *     digest          input: the message. Result: its digest, 16 bytes
 *     digest_buffer   the call's shared buffer is the message, and is not copied. Input: how many bytes of it, as a
 *                     little-endian 64-bit number, or nothing for all of it. Result as above
 *     begin, update, finish
 *                     the same in pieces. What was taken in so far lies in the heap, so an applet that is killed in
 *                     between goes on with it in its next life. update takes its input and then its shared buffer
 *                     and returns, like progress, the bytes taken in since begin (a little-endian 64-bit number):
 *                     all of an update counts or nothing of it.
 *     progress        after a kill: from where to go on
 *     echo            its input: a call that computes nothing, to tell what the call costs
 *
 * Native and WebAssembly.
 */
#include "md5.h"
#include <holdfast.h>
#include <holdfast_applet.h>
#include <stdio.h>

/* Codes of failures. */
enum { BAD_INPUT = 1, NO_HEAP = 2, NOT_BEGUN = 3, HEAP_FAILED = 4, NO_REPLY = 5 };

static const char ROOT[] = "md5";

static int fail(holdfast_call *call, int code, const char *message) {
    holdfast_fail(call, message);
    return code;
}

static int heap_failed(holdfast_call *call) {
    return fail(call, nv_errno() == NV_NOT_GRANTED ? NO_HEAP : HEAP_FAILED, nv_message());
}

static int reply(holdfast_call *call, const void *bytes, size_t size) {
    return holdfast_reply(call, bytes, size) ? NO_REPLY : 0;
}

static int reply_number(holdfast_call *call, uint64_t number) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(number >> (8 * i));
    return reply(call, bytes, sizeof bytes);
}

static int echo(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *input = holdfast_input(call, &size);
    return reply(call, input, size);
}

static int digest(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    const void *message = holdfast_input(call, &size);
    uint8_t result[MD5_DIGEST_BYTES];
    md5_of(message, size, result);
    return reply(call, result, sizeof result);
}

static int digest_buffer(holdfast_call *call, void *context) {
    (void)context;
    size_t buffer_bytes, input_bytes;
    const void *message = holdfast_buffer(call, &buffer_bytes);
    const uint8_t *input = holdfast_input(call, &input_bytes);
    if (!message) return fail(call, BAD_INPUT, "digest_buffer needs a shared buffer with the message in it");
    if (input_bytes != 0 && input_bytes != 8) {
        return fail(call, BAD_INPUT, "the input of digest_buffer is a length of 8 bytes, little-endian, or nothing");
    }
    uint64_t size = input_bytes ? 0 : buffer_bytes;
    for (size_t i = 0; i < input_bytes; i++) size |= (uint64_t)input[i] << (8 * i);
    if (size > buffer_bytes) return fail(call, BAD_INPUT, "the message is said to be longer than the shared buffer");
    uint8_t result[MD5_DIGEST_BYTES];
    md5_of(message, (size_t)size, result);
    return reply(call, result, sizeof result);
}

/* Puts a state into the heap, in place of the one there: that stays whole until the new one counts. */
static int store(struct md5 *kept, const struct md5 *now) {
    if (nv_tx_begin()) return 1;
    /* A new object needs no announcement; it is there only together with what it holds. */
    int failed = kept ? nv_tx_add(kept, sizeof *kept) : !(kept = nvmalloc(ROOT, sizeof *kept));
    if (failed) {
        nv_tx_abort();
        return 1;
    }
    *kept = *now;
    return nv_tx_commit();
}

/* What an earlier call left in the heap, or NULL. */
static struct md5 *find(void) {
    size_t size;
    struct md5 *kept = nvread(ROOT, &size);
    return kept && size == sizeof *kept ? kept : NULL;
}

static int begin(holdfast_call *call, void *context) {
    (void)context;
    struct md5 fresh;
    md5_begin(&fresh);
    return store(find(), &fresh) ? heap_failed(call) : 0;
}

/* What begin left in the heap; NULL if nothing, with the failure told and its code in *code. */
static struct md5 *begun(holdfast_call *call, int *code) {
    struct md5 *kept = find();
    if (kept) return kept;
    *code = nv_errno() == NV_NOT_GRANTED
                ? heap_failed(call)
                : fail(call, NOT_BEGUN, "no digest has been begun in this heap; call begin first");
    return NULL;
}

static int update(holdfast_call *call, void *context) {
    (void)context;
    int code;
    struct md5 *kept = begun(call, &code);
    if (!kept) return code;
    struct md5 next = *kept;
    size_t size;
    const void *bytes = holdfast_input(call, &size);
    md5_update(&next, bytes, size);
    bytes = holdfast_buffer(call, &size);
    if (bytes) md5_update(&next, bytes, size);
    if (store(kept, &next)) return heap_failed(call);
    return reply_number(call, next.message_bytes);
}

static int progress(holdfast_call *call, void *context) {
    (void)context;
    int code;
    const struct md5 *kept = begun(call, &code);
    return kept ? reply_number(call, kept->message_bytes) : code;
}

static int finish(holdfast_call *call, void *context) {
    (void)context;
    int code;
    const struct md5 *kept = begun(call, &code);
    if (!kept) return code;
    uint8_t result[MD5_DIGEST_BYTES];
    md5_digest(kept, result);
    /* The state stays until the next begin: a host that did not get the digest may ask again. */
    return reply(call, result, sizeof result);
}

int main(void) {
    holdfast_export("digest", digest, NULL);
    holdfast_export("digest_buffer", digest_buffer, NULL);
    holdfast_export("begin", begin, NULL);
    holdfast_export("update", update, NULL);
    holdfast_export("progress", progress, NULL);
    holdfast_export("finish", finish, NULL);
    holdfast_export("echo", echo, NULL);
    if (!holdfast_serve()) return 0;
    fprintf(stderr, "md5: %s\n", nv_message());
    return 1;
}
