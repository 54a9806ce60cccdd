"""The map of a logical disk in plain Python: what the applet is compared with. Same decisions, same places."""

NOWHERE = 0xFFFFFFFF


class LogicalDisk:
    """`blocks` physical blocks in segments of `segment_blocks`; logical blocks 0 to `logical_blocks` - 1."""

    def __init__(self, blocks, segment_blocks, logical_blocks):
        if blocks % segment_blocks or not 0 < logical_blocks <= blocks - 2 * segment_blocks:
            raise ValueError("the numbers of blocks do not fit together")
        self._segment_blocks = segment_blocks
        self._segments = blocks // segment_blocks
        self._place = [NOWHERE] * logical_blocks
        self._block = [NOWHERE] * blocks
        self._live = [0] * self._segments
        self._filling = 0
        self._filled = 0
        self._empty = self._segments - 1

    def read(self, logical):
        """Where a logical block lies; NOWHERE if it was never written."""
        return self._place[logical]

    def write(self, logical):
        """The place that a logical block is to be written to; NOWHERE, and nothing changed, if it takes a clean first."""
        if not self._make_room(1):
            return NOWHERE
        return self._append(logical)

    def clean(self):
        """Empties the segment with the fewest live blocks; returns the moves (from, to) that are to be done."""
        candidates = [
            segment
            for segment, live in enumerate(self._live)
            if 0 < live < self._segment_blocks and segment != self._filling
        ]
        if not candidates:
            return []
        start = min(candidates, key=self._live.__getitem__) * self._segment_blocks
        moves = []
        for place in range(start, start + self._segment_blocks):
            logical = self._block[place]
            if logical != NOWHERE and self._make_room(0):
                moves.append((place, self._append(logical)))
        return moves

    def update(self, blocks):
        """Writes blocks, and cleans whenever no segment is empty; returns what is to be done, in this order: (NOWHERE, to) for
        a block that is written, (from, to) for one that is moved. It ends early if nothing is left to clean."""
        steps = []
        for logical in blocks:
            while (place := self.write(logical)) == NOWHERE:
                moves = self.clean()
                if not moves:
                    return steps
                steps.extend(moves)
            steps.append((NOWHERE, place))
        return steps

    def _make_room(self, spare):
        if self._filled < self._segment_blocks:
            return True
        if self._live[self._filling]:
            if self._empty <= spare:
                return False
            while self._live[self._filling]:
                self._filling = (self._filling + 1) % self._segments
            self._empty -= 1
        self._filled = 0
        return True

    def _append(self, logical):
        old = self._place[logical]
        new = self._filling * self._segment_blocks + self._filled
        self._filled += 1
        self._live[self._filling] += 1
        self._block[new] = logical
        self._place[logical] = new
        if old != NOWHERE:
            segment = old // self._segment_blocks
            self._block[old] = NOWHERE
            self._live[segment] -= 1
            if not self._live[segment] and segment != self._filling:
                self._empty += 1
        return new
