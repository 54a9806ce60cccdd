/*
 * Work in a persistent heap: loads and stores all over one root, and transactions over parts of it.
 *
 * The same file makes the applet and, with libholdfast, a native program, so that what is measured of both differs in nothing
 * else.
 */
#ifndef HOLDFAST_APPLET_TABLE_H
#define HOLDFAST_APPLET_TABLE_H

#include <stdint.h>

/* Numbers in the root "table". */
enum { TABLE_NUMBERS = 1 << 15 };

/* So many rounds, each of 64 loads and 64 stores, half of them one after the other and half at random, and a transaction over 8
 * numbers. The root is made when there is none, and zeroed. Returns 0 and a number that depends on every step, the same
 * wherever it runs; or an nv_error. */
int table_work(uint64_t rounds, uint64_t *result);

#endif
