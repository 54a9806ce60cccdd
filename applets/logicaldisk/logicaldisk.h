/*
 * The map of a log-structured disk: where the blocks lie that its user knows by other numbers.
 *
 * The "black box" extension of Small and Seltzer, A Comparison of OS Extension Technologies (USENIX 1996), after de Jonge,
 * Kaashoek and Hsieh, The Logical Disk (SOSP 1993): every block that is written goes to the next place of the segment
 * that is being filled, so that the disk writes whole segments, and the map remembers where. Data are the caller's.
 *
 * Invariants: a logical block lies at one physical place or none, and no two at the same; a segment is filled only when
 * nothing in it is live; between calls one segment is empty besides the one that is being filled.
 */
#ifndef HOLDFAST_APPLET_LOGICALDISK_H
#define HOLDFAST_APPLET_LOGICALDISK_H

#include <stddef.h>
#include <stdint.h>

/* No block: what a logical block that was never written maps to. */
#define LOGICALDISK_NOWHERE UINT32_MAX
/* 1 TiB of blocks of 4 KiB. */
enum { LOGICALDISK_BLOCKS_MAX = 1 << 28 };

struct logicaldisk;

/* A disk of `blocks` physical blocks in segments of `segment_blocks`, which divides it, and with logical blocks 0 to
 * `logical_blocks` - 1: two segments fewer, or less, since cleaning needs room. NULL if the numbers do not fit together
 * or there is no memory. */
struct logicaldisk *logicaldisk_new(uint32_t blocks, uint32_t segment_blocks, uint32_t logical_blocks);
void logicaldisk_free(struct logicaldisk *disk);
uint32_t logicaldisk_logical_blocks(const struct logicaldisk *disk);
uint32_t logicaldisk_segment_blocks(const struct logicaldisk *disk);

/* Where a logical block (less than logical_blocks) lies. */
uint32_t logicaldisk_read(const struct logicaldisk *disk, uint32_t logical);
/* The place that a logical block (less than logical_blocks) is to be written to; its old one is dead.
 * LOGICALDISK_NOWHERE, and nothing changed, if no segment is empty: clean first. */
uint32_t logicaldisk_write(struct logicaldisk *disk, uint32_t logical);

/* A block that the caller is to copy. */
struct logicaldisk_move {
    uint32_t from, to;
};
/* Empties the segment with the fewest live blocks: they go to the end of the log. Returns how many `moves` (room for
 * segment_blocks) are to be done before the next write; 0 if every other segment is empty or has only live blocks. */
size_t logicaldisk_clean(struct logicaldisk *disk, struct logicaldisk_move *moves);

/* Writes logical blocks, and cleans whenever no segment is empty. What the caller is to do, in this order, goes to `steps`
 * (room for `room` of them, `step_count` are used): a block that is written has no `from` (LOGICALDISK_NOWHERE), one that is
 * moved has both. Returns how many blocks were written: fewer than `count` when the room is used up, or nothing is left to
 * clean. */
size_t logicaldisk_update(struct logicaldisk *disk, const uint32_t *logical, size_t count, struct logicaldisk_move *steps,
                          size_t room, size_t *step_count);

#endif
