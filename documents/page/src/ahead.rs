//! Prepares, in threads, what a kept page will need to be painted, while another thread still
//! checks that the page is valid: its pixels, if they are kept; else memory for them, and the
//! fonts.
//!
//! Invariant: nothing depends on it. What is not ready, because no thread could be started or the
//! file is not what it was, is made or read where it is needed, and tells there what is wrong.

use std::cell::RefCell;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::error::EntryDamage;
use crate::fonts::{FontPlace, FontRecord};
use crate::view::View;

/// Fonts that are read: a list has them in the order in which it uses them, so a viewport near its
/// beginning uses the first ones.
const FONTS_MAX: usize = 4;
/// Beyond it, memory for a picture is taken as it is needed.
const ROOM_BYTES_MAX: usize = 64 << 20;
/// Bytes of a page of memory, or fewer.
const MEMORY_PAGE_BYTES: usize = 4096;

/// Pixels that were kept packed.
type Unpacked = Result<Vec<u8>, EntryDamage>;

/// A font's number, and its bytes if they are what they were.
type Font = (usize, Option<Vec<u8>>);

/// Threads that prepare pixels, memory and fonts for a page that is probably still valid.
#[derive(Default)]
pub(crate) struct Prefetch {
    pixels: RefCell<Option<JoinHandle<Unpacked>>>,
    room: RefCell<Option<JoinHandle<Vec<u8>>>>,
    fonts: RefCell<Option<Receiver<Font>>>,
}

impl Prefetch {
    /// Begins.
    pub(crate) fn begin(&self, view: View, fonts: &[FontRecord]) {
        let bytes = view.width() as usize * view.height() as usize * 4;
        if bytes <= ROOM_BYTES_MAX {
            let make = move || {
                let mut room = vec![0; bytes];
                // Zeros that were never written are no memory yet, and a thousand pages of it take
                // as long as many lines to paint.
                room.chunks_mut(MEMORY_PAGE_BYTES).for_each(|page| page[0] = black_box(0));
                room
            };
            *self.room.borrow_mut() = Builder::new().name("room".to_owned()).spawn(make).ok();
        }
        let files: Vec<(usize, FontRecord, PathBuf)> = fonts
            .iter()
            .enumerate()
            .filter_map(|(number, font)| match &font.place {
                FontPlace::File { path, .. } => Some((number, font.clone(), path.clone())),
                FontPlace::Entry { .. } => None,
            })
            .take(FONTS_MAX)
            .collect();
        if files.is_empty() {
            return;
        }
        let (sender, receiver) = sync_channel(FONTS_MAX);
        let read = move || {
            for (number, font, path) in files {
                // The reader of them may have gone.
                if sender.send((number, font.read(&path))).is_err() {
                    return;
                }
            }
        };
        *self.fonts.borrow_mut() =
            Builder::new().name("fonts".to_owned()).spawn(read).ok().map(|_| receiver);
    }

    /// Begins to unpack pixels that are kept.
    pub(crate) fn begin_pixels(&self, unpack: impl FnOnce() -> Unpacked + Send + 'static) {
        *self.pixels.borrow_mut() = Builder::new().name("pixels".to_owned()).spawn(unpack).ok();
    }

    /// The pixels that were unpacked; none, if they were not begun.
    pub(crate) fn pixels(&self) -> Option<Unpacked> {
        self.pixels.take().and_then(|thread| thread.join().ok())
    }

    /// Memory for the pixels; none, if none was made.
    pub(crate) fn room(&self) -> Vec<u8> {
        self.room.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    /// The next font that was read, waiting for it.
    pub(crate) fn next_font(&self) -> Option<Font> {
        self.fonts.borrow().as_ref()?.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefetched fonts arrive in order; a font that changed on disk arrives without bytes.
    #[test]
    fn prefetch_keeps_order_and_drops_changed_fonts() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a.ttf", "b.ttf", "c.ttf"].map(|name| folder.path().join(name));
        let mut fonts: Vec<FontRecord> = Vec::new();
        for name in &names {
            std::fs::write(name, name.as_os_str().as_encoded_bytes()).unwrap();
            fonts.push(FontRecord::of_file(name.clone(), name.as_os_str().as_encoded_bytes()));
        }
        fonts.insert(1, FontRecord::of_entry(0, b"of the page"));
        std::fs::write(&names[1], "another").unwrap();
        let ahead = Prefetch::default();
        assert!(ahead.next_font().is_none() && ahead.room().is_empty());
        ahead.begin(View::new(10, 20, 1000).unwrap(), &fonts);
        let bytes = |index: usize| Some(names[index].as_os_str().as_encoded_bytes().to_vec());
        let came: Vec<Font> = std::iter::from_fn(|| ahead.next_font()).collect();
        assert_eq!(came, [(0, bytes(0)), (2, None), (3, bytes(2))]);
        assert_eq!(ahead.room(), vec![0; 10 * 20 * 4]);
        assert!(ahead.room().is_empty());
    }
}
