"use strict";
// The map of a logical disk in JavaScript: what the applet is compared with. Same decisions, same places.

const NOWHERE = 0xffffffff;

class LogicalDisk {
  #place;
  #block;
  #live;
  #segmentBlocks;
  #segments;
  #filling = 0;
  #filled = 0;
  #empty;

  /** `blocks` physical blocks in segments of `segmentBlocks`; logical blocks 0 to `logicalBlocks` - 1. */
  constructor(blocks, segmentBlocks, logicalBlocks) {
    if (blocks % segmentBlocks || logicalBlocks < 1 || logicalBlocks > blocks - 2 * segmentBlocks) {
      throw new RangeError("the numbers of blocks do not fit together");
    }
    this.#segmentBlocks = segmentBlocks;
    this.#segments = blocks / segmentBlocks;
    this.#place = new Uint32Array(logicalBlocks).fill(NOWHERE);
    this.#block = new Uint32Array(blocks).fill(NOWHERE);
    this.#live = new Uint32Array(this.#segments);
    this.#empty = this.#segments - 1;
  }

  /** The place that a logical block is to be written to; NOWHERE, and nothing changed, if it takes a clean first. */
  write(logical) {
    return this.#makeRoom(1) ? this.#append(logical) : NOWHERE;
  }

  /** Empties the segment with the fewest live blocks; adds the moves that are to be done to `steps`, and says how many. */
  clean(steps) {
    let best = NOWHERE;
    let fewest = this.#segmentBlocks;
    for (let segment = 0; segment < this.#segments; segment++) {
      const live = this.#live[segment];
      if (segment !== this.#filling && live && live < fewest) {
        best = segment;
        fewest = live;
      }
    }
    if (best === NOWHERE) return 0;
    let count = 0;
    for (let i = 0; i < this.#segmentBlocks; i++) {
      const from = best * this.#segmentBlocks + i;
      const logical = this.#block[from];
      if (logical === NOWHERE || !this.#makeRoom(0)) continue;
      steps.push([from, this.#append(logical)]);
      count++;
    }
    return count;
  }

  /** As `update` of reference.py. */
  update(blocks) {
    const steps = [];
    for (const logical of blocks) {
      let place;
      while ((place = this.write(logical)) === NOWHERE) {
        if (!this.clean(steps)) return steps;
      }
      steps.push([NOWHERE, place]);
    }
    return steps;
  }

  #makeRoom(spare) {
    if (this.#filled < this.#segmentBlocks) return true;
    if (this.#live[this.#filling]) {
      if (this.#empty <= spare) return false;
      do {
        this.#filling = this.#filling + 1 < this.#segments ? this.#filling + 1 : 0;
      } while (this.#live[this.#filling]);
      this.#empty--;
    }
    this.#filled = 0;
    return true;
  }

  #append(logical) {
    const old = this.#place[logical];
    const next = this.#filling * this.#segmentBlocks + this.#filled++;
    this.#live[this.#filling]++;
    this.#block[next] = logical;
    this.#place[logical] = next;
    if (old !== NOWHERE) {
      const segment = Math.floor(old / this.#segmentBlocks);
      this.#block[old] = NOWHERE;
      this.#live[segment]--;
      if (!this.#live[segment] && segment !== this.#filling) this.#empty++;
    }
    return next;
  }
}

module.exports = { LogicalDisk };
