/*
 * MD5 as RFC 1321 defines it. Nothing here knows of applets: measurements build the same file into an ordinary program.
 *
 * Each of the 64 steps of a block waits for the one before it, so the length of that chain is the speed. Two things
 * shorten it: the sums are ordered so that what is known early is added early, and round 2's choice by D is a sum of
 * its two halves (they have no bit in common), of which only one waits for the step before.
 */
#include "md5.h"
#include <string.h>

static uint32_t rotate_left(uint32_t word, int bits) {
    return word << bits | word >> (32 - bits);
}

/* Compilers make one load of it on machines that are little-endian themselves. */
static uint32_t load_little_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void store_little_endian(uint8_t *bytes, uint64_t value, int size) {
    for (int i = 0; i < size; i++) bytes[i] = (uint8_t)(value >> (8 * i));
}

/* One step: `early` is what does not depend on b, `late` what does. */
#define STEP(a, b, early, late, shift) ((a) += (early), (a) += (late), (a) = rotate_left((a), (shift)) + (b))
/* The functions F, G, H, I of RFC 1321, section 3.4. The constants are floor(2^32 * abs(sin(step))). */
#define F(a, b, c, d, word, shift, sine) STEP(a, b, (word) + (sine), (d) ^ ((b) & ((c) ^ (d))), shift)
#define G(a, b, c, d, word, shift, sine) STEP(a, b, (word) + (sine) + (~(d) & (c)), (d) & (b), shift)
#define H(a, b, c, d, word, shift, sine) STEP(a, b, (word) + (sine), (b) ^ ((c) ^ (d)), shift)
#define I(a, b, c, d, word, shift, sine) STEP(a, b, (word) + (sine), (c) ^ ((b) | ~(d)), shift)

static void take_blocks(uint32_t state[4], const uint8_t *bytes, size_t blocks) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (; blocks; blocks--, bytes += MD5_BLOCK_BYTES) {
        const uint32_t a_before = a, b_before = b, c_before = c, d_before = d;
        uint32_t x[16];
        for (int i = 0; i < 16; i++) x[i] = load_little_endian(bytes + 4 * i);

        F(a, b, c, d, x[0], 7, 0xd76aa478);
        F(d, a, b, c, x[1], 12, 0xe8c7b756);
        F(c, d, a, b, x[2], 17, 0x242070db);
        F(b, c, d, a, x[3], 22, 0xc1bdceee);
        F(a, b, c, d, x[4], 7, 0xf57c0faf);
        F(d, a, b, c, x[5], 12, 0x4787c62a);
        F(c, d, a, b, x[6], 17, 0xa8304613);
        F(b, c, d, a, x[7], 22, 0xfd469501);
        F(a, b, c, d, x[8], 7, 0x698098d8);
        F(d, a, b, c, x[9], 12, 0x8b44f7af);
        F(c, d, a, b, x[10], 17, 0xffff5bb1);
        F(b, c, d, a, x[11], 22, 0x895cd7be);
        F(a, b, c, d, x[12], 7, 0x6b901122);
        F(d, a, b, c, x[13], 12, 0xfd987193);
        F(c, d, a, b, x[14], 17, 0xa679438e);
        F(b, c, d, a, x[15], 22, 0x49b40821);

        G(a, b, c, d, x[1], 5, 0xf61e2562);
        G(d, a, b, c, x[6], 9, 0xc040b340);
        G(c, d, a, b, x[11], 14, 0x265e5a51);
        G(b, c, d, a, x[0], 20, 0xe9b6c7aa);
        G(a, b, c, d, x[5], 5, 0xd62f105d);
        G(d, a, b, c, x[10], 9, 0x02441453);
        G(c, d, a, b, x[15], 14, 0xd8a1e681);
        G(b, c, d, a, x[4], 20, 0xe7d3fbc8);
        G(a, b, c, d, x[9], 5, 0x21e1cde6);
        G(d, a, b, c, x[14], 9, 0xc33707d6);
        G(c, d, a, b, x[3], 14, 0xf4d50d87);
        G(b, c, d, a, x[8], 20, 0x455a14ed);
        G(a, b, c, d, x[13], 5, 0xa9e3e905);
        G(d, a, b, c, x[2], 9, 0xfcefa3f8);
        G(c, d, a, b, x[7], 14, 0x676f02d9);
        G(b, c, d, a, x[12], 20, 0x8d2a4c8a);

        H(a, b, c, d, x[5], 4, 0xfffa3942);
        H(d, a, b, c, x[8], 11, 0x8771f681);
        H(c, d, a, b, x[11], 16, 0x6d9d6122);
        H(b, c, d, a, x[14], 23, 0xfde5380c);
        H(a, b, c, d, x[1], 4, 0xa4beea44);
        H(d, a, b, c, x[4], 11, 0x4bdecfa9);
        H(c, d, a, b, x[7], 16, 0xf6bb4b60);
        H(b, c, d, a, x[10], 23, 0xbebfbc70);
        H(a, b, c, d, x[13], 4, 0x289b7ec6);
        H(d, a, b, c, x[0], 11, 0xeaa127fa);
        H(c, d, a, b, x[3], 16, 0xd4ef3085);
        H(b, c, d, a, x[6], 23, 0x04881d05);
        H(a, b, c, d, x[9], 4, 0xd9d4d039);
        H(d, a, b, c, x[12], 11, 0xe6db99e5);
        H(c, d, a, b, x[15], 16, 0x1fa27cf8);
        H(b, c, d, a, x[2], 23, 0xc4ac5665);

        I(a, b, c, d, x[0], 6, 0xf4292244);
        I(d, a, b, c, x[7], 10, 0x432aff97);
        I(c, d, a, b, x[14], 15, 0xab9423a7);
        I(b, c, d, a, x[5], 21, 0xfc93a039);
        I(a, b, c, d, x[12], 6, 0x655b59c3);
        I(d, a, b, c, x[3], 10, 0x8f0ccc92);
        I(c, d, a, b, x[10], 15, 0xffeff47d);
        I(b, c, d, a, x[1], 21, 0x85845dd1);
        I(a, b, c, d, x[8], 6, 0x6fa87e4f);
        I(d, a, b, c, x[15], 10, 0xfe2ce6e0);
        I(c, d, a, b, x[6], 15, 0xa3014314);
        I(b, c, d, a, x[13], 21, 0x4e0811a1);
        I(a, b, c, d, x[4], 6, 0xf7537e82);
        I(d, a, b, c, x[11], 10, 0xbd3af235);
        I(c, d, a, b, x[2], 15, 0x2ad7d2bb);
        I(b, c, d, a, x[9], 21, 0xeb86d391);

        a += a_before;
        b += b_before;
        c += c_before;
        d += d_before;
    }
    state[0] = a;
    state[1] = b;
    state[2] = c;
    state[3] = d;
}

void md5_begin(struct md5 *md5) {
    *md5 = (struct md5){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void md5_update(struct md5 *md5, const void *bytes, size_t size) {
    if (!size) return; /* `bytes` may be null then, to which nothing may be added */
    const uint8_t *next = bytes;
    size_t filled = md5->message_bytes % MD5_BLOCK_BYTES;
    md5->message_bytes += size;
    if (filled) {
        size_t part = MD5_BLOCK_BYTES - filled < size ? MD5_BLOCK_BYTES - filled : size;
        memcpy(md5->rest + filled, next, part);
        if (filled + part < MD5_BLOCK_BYTES) return;
        take_blocks(md5->state, md5->rest, 1);
        next += part;
        size -= part;
    }
    take_blocks(md5->state, next, size / MD5_BLOCK_BYTES);
    next += size - size % MD5_BLOCK_BYTES;
    if (size % MD5_BLOCK_BYTES) memcpy(md5->rest, next, size % MD5_BLOCK_BYTES);
}

void md5_digest(const struct md5 *md5, uint8_t digest[MD5_DIGEST_BYTES]) {
    uint32_t state[4];
    memcpy(state, md5->state, sizeof state);
    /* The rest, a one bit, zeroes, and the length in bits fill one block, or two where the length has no room in it. */
    uint8_t end[2 * MD5_BLOCK_BYTES] = {0};
    size_t filled = md5->message_bytes % MD5_BLOCK_BYTES;
    size_t blocks = filled < MD5_BLOCK_BYTES - 8 ? 1 : 2;
    memcpy(end, md5->rest, filled);
    end[filled] = 0x80;
    store_little_endian(end + blocks * MD5_BLOCK_BYTES - 8, md5->message_bytes * 8, 8);
    take_blocks(state, end, blocks);
    for (int i = 0; i < 4; i++) store_little_endian(digest + 4 * i, state[i], 4);
}

void md5_of(const void *bytes, size_t size, uint8_t digest[MD5_DIGEST_BYTES]) {
    struct md5 md5;
    md5_begin(&md5);
    md5_update(&md5, bytes, size);
    md5_digest(&md5, digest);
}
