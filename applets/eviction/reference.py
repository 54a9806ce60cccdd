"""The eviction policy in plain Python: what the applet is compared with.

The hot list is a frozenset, which is what one takes for it in Python; a list that is looked through, as in C, would only
make Python look slower than it is. Where the algorithm itself is to be the same, `kept_in` is `tuple`.
"""


class Eviction:
    """An application's policy: `hot` sets its hot list, `evict` chooses."""

    def __init__(self, kept_in=frozenset):
        self._kept_in = kept_in
        self._hot = kept_in()

    def hot(self, pages):
        """Pages (numbers) that are not to be evicted, in place of those before."""
        self._hot = self._kept_in(pages)

    def evict(self, pages):
        """The first of `pages` (least recently used first, at least one) that is not hot; the first if all are."""
        hot = self._hot
        for page in pages:
            if page not in hot:
                return page
        return pages[0]
