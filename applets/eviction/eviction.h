/*
 * Which page is to leave memory: the least recently used one, unless the application says that it will need it soon.
 *
 * The "policy" extension of Small and Seltzer, A Comparison of OS Extension Technologies (USENIX 1996): the system has a
 * list of its pages in the order of their last use, the application a short list of hot pages (the inner nodes of a
 * B-tree whose leaves it is reading). The pages' numbers mean nothing here.
 */
#ifndef HOLDFAST_APPLET_EVICTION_H
#define HOLDFAST_APPLET_EVICTION_H

#include <stddef.h>
#include <stdint.h>

enum { EVICTION_HOT_PAGES_MAX = 1024 };

/* Where in `pages` (least recently used first, at least one) the first page is that is not hot. Where all of them are:
 * 0, what the system would have chosen by itself. */
size_t eviction_choose(const uint32_t *pages, size_t page_count, const uint32_t *hot, size_t hot_count);

/* The same for several lists of `page_count` pages each, one after the other: their chosen pages. */
void eviction_choose_each(const uint32_t *lists, size_t list_count, size_t page_count, const uint32_t *hot, size_t hot_count,
                          uint32_t *chosen);

#endif
