/*
 * The MD5 message digest (RFC 1321) of bytes that come in any number of pieces.
 *
 * struct md5 is plain data without pointers: it may lie in a persistent heap and be gone on with by another run.
 * MD5 is broken as a signature; here it is a computation of known cost, as in the papers.
 */
#ifndef HOLDFAST_APPLET_MD5_H
#define HOLDFAST_APPLET_MD5_H

#include <stddef.h>
#include <stdint.h>

enum { MD5_BLOCK_BYTES = 64, MD5_DIGEST_BYTES = 16 };

struct md5 {
    uint64_t message_bytes;        /* taken in so far */
    uint32_t state[4];             /* A, B, C, D after the last whole block */
    uint8_t rest[MD5_BLOCK_BYTES]; /* its first message_bytes % 64 bytes are the block that is not whole yet */
};

void md5_begin(struct md5 *md5);
void md5_update(struct md5 *md5, const void *bytes, size_t size);
/* The digest of all that was taken in. md5 itself stays as it is, so more may follow. */
void md5_digest(const struct md5 *md5, uint8_t digest[MD5_DIGEST_BYTES]);
/* All three in one. */
void md5_of(const void *bytes, size_t size, uint8_t digest[MD5_DIGEST_BYTES]);

#endif
