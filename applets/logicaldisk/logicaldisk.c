/*
 * The map itself. Nothing here knows of applets: measurements build the same file into an ordinary program.
 */
#include "logicaldisk.h"
#include <stdlib.h>
#include <string.h>

static const uint32_t NOWHERE = LOGICALDISK_NOWHERE;

struct logicaldisk {
    uint32_t *place; /* of each logical block, or NOWHERE */
    uint32_t *block; /* the logical block at each place, or NOWHERE */
    uint32_t *live;  /* how many blocks of each segment are in use */
    uint32_t logical_blocks, segment_blocks, segments;
    uint32_t filling; /* the segment that is being filled */
    uint32_t filled;  /* places of it that are taken, live or dead by now */
    uint32_t empty;   /* segments but that one without a live block */
};

struct logicaldisk *logicaldisk_new(uint32_t blocks, uint32_t segment_blocks, uint32_t logical_blocks) {
    if (!segment_blocks || !logical_blocks || blocks > LOGICALDISK_BLOCKS_MAX || blocks % segment_blocks) return NULL;
    uint32_t segments = blocks / segment_blocks;
    if (segments < 3 || logical_blocks > blocks - 2 * segment_blocks) return NULL;
    struct logicaldisk *disk = calloc(1, sizeof *disk);
    if (!disk) return NULL;
    disk->place = malloc(logical_blocks * sizeof *disk->place);
    disk->block = malloc(blocks * sizeof *disk->block);
    disk->live = calloc(segments, sizeof *disk->live);
    if (!disk->place || !disk->block || !disk->live) {
        logicaldisk_free(disk);
        return NULL;
    }
    /* All bits set is NOWHERE. */
    memset(disk->place, 0xff, logical_blocks * sizeof *disk->place);
    memset(disk->block, 0xff, blocks * sizeof *disk->block);
    disk->logical_blocks = logical_blocks;
    disk->segment_blocks = segment_blocks;
    disk->segments = segments;
    disk->empty = segments - 1;
    return disk;
}

void logicaldisk_free(struct logicaldisk *disk) {
    if (!disk) return;
    free(disk->place);
    free(disk->block);
    free(disk->live);
    free(disk);
}

uint32_t logicaldisk_logical_blocks(const struct logicaldisk *disk) {
    return disk->logical_blocks;
}

uint32_t logicaldisk_segment_blocks(const struct logicaldisk *disk) {
    return disk->segment_blocks;
}

uint32_t logicaldisk_read(const struct logicaldisk *disk, uint32_t logical) {
    return disk->place[logical];
}

/* Sees to it that the segment being filled has a place left, and leaves `spare` segments empty. */
static int make_room(struct logicaldisk *disk, uint32_t spare) {
    if (disk->filled < disk->segment_blocks) return 1;
    if (disk->live[disk->filling]) {
        if (disk->empty <= spare) return 0;
        do {
            disk->filling = disk->filling + 1 < disk->segments ? disk->filling + 1 : 0;
        } while (disk->live[disk->filling]);
        disk->empty--;
    }
    disk->filled = 0;
    return 1;
}

/* Puts a block at the end of the log, where there is room. */
static uint32_t append(struct logicaldisk *disk, uint32_t logical) {
    uint32_t old = disk->place[logical];
    uint32_t new = disk->filling * disk->segment_blocks + disk->filled++;
    disk->live[disk->filling]++;
    disk->block[new] = logical;
    disk->place[logical] = new;
    if (old != NOWHERE) {
        uint32_t segment = old / disk->segment_blocks;
        disk->block[old] = NOWHERE;
        disk->live[segment]--;
        if (!disk->live[segment] && segment != disk->filling) disk->empty++;
    }
    return new;
}

uint32_t logicaldisk_write(struct logicaldisk *disk, uint32_t logical) {
    /* The spare segment is for cleaning, which must have somewhere to move blocks to. */
    return make_room(disk, 1) ? append(disk, logical) : NOWHERE;
}

size_t logicaldisk_clean(struct logicaldisk *disk, struct logicaldisk_move *moves) {
    uint32_t best = NOWHERE, fewest = disk->segment_blocks;
    for (uint32_t segment = 0; segment < disk->segments; segment++) {
        uint32_t live = disk->live[segment];
        if (segment != disk->filling && live && live < fewest) {
            best = segment;
            fewest = live;
        }
    }
    if (best == NOWHERE) return 0;
    size_t count = 0;
    for (uint32_t i = 0; i < disk->segment_blocks; i++) {
        uint32_t from = best * disk->segment_blocks + i;
        uint32_t logical = disk->block[from];
        if (logical == NOWHERE || !make_room(disk, 0)) continue;
        moves[count].from = from;
        moves[count].to = append(disk, logical);
        count++;
    }
    return count;
}

size_t logicaldisk_update(struct logicaldisk *disk, const uint32_t *logical, size_t count, struct logicaldisk_move *steps,
                          size_t room, size_t *step_count) {
    size_t used = 0, written = 0;
    for (; written < count && used < room; written++) {
        uint32_t place;
        while ((place = logicaldisk_write(disk, logical[written])) == NOWHERE) {
            /* One step stays for the block itself. */
            size_t moved = room - used > disk->segment_blocks ? logicaldisk_clean(disk, steps + used) : 0;
            used += moved;
            if (!moved) {
                *step_count = used;
                return written;
            }
        }
        steps[used++] = (struct logicaldisk_move){NOWHERE, place};
    }
    *step_count = used;
    return written;
}
