"use strict";
// The eviction policy in JavaScript: what the applet is compared with. The same algorithm as eviction.c: the hot list is
// looked through.

function isHot(page, hot) {
  for (let i = 0; i < hot.length; i++) {
    if (hot[i] === page) return true;
  }
  return false;
}

class Eviction {
  #hot = new Uint32Array(0);

  /** Pages (numbers) that are not to be evicted, in place of those before. */
  hot(pages) {
    this.#hot = Uint32Array.from(pages);
  }

  /** The first of `pages` (least recently used first, at least one) that is not hot; the first if all are. */
  evict(pages) {
    const hot = this.#hot;
    for (let i = 0; i < pages.length; i++) {
      if (!isHot(pages[i], hot)) return pages[i];
    }
    return pages[0];
  }
}

module.exports = { Eviction };
