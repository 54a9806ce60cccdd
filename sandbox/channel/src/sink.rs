//! The destination of a payload: memory of the caller's, filled a piece at a time.

#![forbid(unsafe_code)]

/// There is no room; the message stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Takes the payload of one message. A sink may believe no more than that it gets as many bytes as
/// it is told: they come from the peer.
pub trait Sink {
    /// A message begins whose payload has that many bytes; whatever the sink had is void.
    ///
    /// # Errors
    /// When the sink has no room for it. Then nothing was taken, and the same message begins again
    /// next time.
    fn begin(&mut self, bytes: usize) -> Result<(), Refused>;

    /// Memory for the next `bytes` bytes, exactly as many.
    ///
    /// # Errors
    /// When memory has run out; the message is lost then, and the channel with it.
    fn next(&mut self, bytes: usize) -> Result<&mut [u8], Refused>;
}

/// Room of fixed size.
#[derive(Debug)]
pub struct SliceSink<'a> {
    room: &'a mut [u8],
    filled: usize,
}

impl<'a> SliceSink<'a> {
    /// A sink that fills the slice from its start.
    pub fn new(room: &'a mut [u8]) -> SliceSink<'a> {
        SliceSink { room, filled: 0 }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled
    }
}

impl Sink for SliceSink<'_> {
    fn begin(&mut self, bytes: usize) -> Result<(), Refused> {
        self.filled = 0;
        if bytes <= self.room.len() { Ok(()) } else { Err(Refused) }
    }

    fn next(&mut self, bytes: usize) -> Result<&mut [u8], Refused> {
        let start = self.filled;
        let piece = self.room.get_mut(start..start.saturating_add(bytes)).ok_or(Refused)?;
        self.filled += bytes;
        Ok(piece)
    }
}

/// Grows as bytes arrive, not as they are announced: who announces much and sends nothing costs
/// nothing.
#[cfg(feature = "std")]
impl Sink for std::vec::Vec<u8> {
    fn begin(&mut self, _: usize) -> Result<(), Refused> {
        self.clear();
        Ok(())
    }

    fn next(&mut self, bytes: usize) -> Result<&mut [u8], Refused> {
        let start = self.len();
        self.try_reserve(bytes).map_err(|_| Refused)?;
        self.resize(start + bytes, 0);
        Ok(&mut self[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice sink accepts what fits and starts again with each message.
    #[test]
    fn slice_sink_accepts_what_fits_per_message() {
        let mut room = [0; 4];
        let mut sink = SliceSink::new(&mut room);
        assert_eq!(sink.begin(5), Err(Refused));
        sink.begin(4).unwrap();
        sink.next(3).unwrap().fill(7);
        assert!(sink.next(2).is_err());
        sink.next(1).unwrap().fill(8);
        assert_eq!(sink.filled(), 4);
        sink.begin(0).unwrap();
        assert_eq!(sink.filled(), 0);
        assert_eq!(room, [7, 7, 7, 8]);
    }
}
