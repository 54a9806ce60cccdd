//! The description of an entry's page: its address, its sources, and what its display list refers
//! to.

use peniko::{Blob, ImageAlphaType, ImageData, ImageFormat};
use serde::{Deserialize, Serialize};

use crate::error::EntryDamage;
use crate::fonts::{FontPlace, FontRecord};
use crate::list::AscendingRanges;
use crate::resource::{Reach, Resource};

/// The description of a page in its entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct PageDescription {
    pub(crate) address: String,
    pub(crate) title: String,
    /// Where it was found at last.
    pub(crate) found: String,
    /// What addresses in the page are relative to.
    pub(crate) base: String,
    /// What it might ask for, if it asked for something of the network.
    pub(crate) reach: Option<Reach>,
    pub(crate) resources: Vec<Resource>,
    /// What was not read though the page asks for it, and why.
    pub(crate) left_out: Vec<String>,
    pub(crate) fonts: Vec<FontRecord>,
    pub(crate) images: Vec<ImageRecord>,
}

/// An image of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ImageRecord {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Whether blue comes first in a pixel, instead of red.
    pub(crate) is_bgra: bool,
    /// Whether colours are multiplied with alpha already.
    pub(crate) is_premultiplied: bool,
    /// Where its pixels begin among those of the entry, four bytes each.
    pub(crate) at: u64,
}

impl ImageRecord {
    /// Describes an image whose pixels begin at `at` among those of the entry.
    pub(crate) fn new(image: &ImageData, at: u64) -> ImageRecord {
        ImageRecord {
            width: image.width,
            height: image.height,
            is_bgra: image.format == ImageFormat::Bgra8,
            is_premultiplied: image.alpha_type == ImageAlphaType::AlphaPremultiplied,
            at,
        }
    }

    /// The image, from its pixels.
    pub(crate) fn image(&self, pixels: Blob<u8>) -> ImageData {
        let format = if self.is_bgra { ImageFormat::Bgra8 } else { ImageFormat::Rgba8 };
        let alpha_type = match self.is_premultiplied {
            true => ImageAlphaType::AlphaPremultiplied,
            false => ImageAlphaType::Alpha,
        };
        ImageData { data: pixels, format, alpha_type, width: self.width, height: self.height }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (u64::from(self.width) * u64::from(self.height)).saturating_mul(4)
    }
}

impl PageDescription {
    pub(crate) fn write(&self) -> Vec<u8> {
        encode(self, Vec::new())
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<PageDescription, EntryDamage> {
        decode(bytes, "description")
    }

    /// Whether no two images, and no two fonts that came with the page, have bytes of the entry in
    /// common.
    pub(crate) fn check(&self) -> Result<(), EntryDamage> {
        let (mut images, mut fonts) = (AscendingRanges::default(), AscendingRanges::default());
        for image in &self.images {
            images.next(image.at, image.bytes(), "images")?;
        }
        for font in &self.fonts {
            if let FontPlace::Entry { at } = font.place {
                fonts.next(at, font.bytes, "fonts")?;
            }
        }
        Ok(())
    }
}

/// Appends a record to bytes, in the form of `postcard`.
pub(crate) fn encode(record: &impl Serialize, bytes: Vec<u8>) -> Vec<u8> {
    // Neither a `Vec` nor these records have an error to give.
    postcard::to_extend(record, bytes).unwrap_or_default()
}

/// Reads a record that fills all of `bytes`; `what` names it in the error.
pub(crate) fn decode<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    what: &'static str,
) -> Result<T, EntryDamage> {
    match postcard::take_from_bytes(bytes) {
        Ok((record, [])) => Ok(record),
        Err(postcard::Error::DeserializeUnexpectedEnd) => Err(EntryDamage::Outside { what }),
        Ok(_) | Err(_) => Err(EntryDamage::Value { what }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::entry::{EntryPart, Header, PARTS, assemble};
    use crate::picture::CachedView;
    use crate::resource::ResourceSum;

    fn about() -> PageDescription {
        let file = OsString::from_vec(b"/fonts/not UTF-8 \xff.ttf".to_vec()).into();
        let place = FontPlace::File { path: file, changed_ns: u64::MAX };
        PageDescription {
            address: "https://example.org/".to_owned(),
            title: "Título".to_owned(),
            found: "https://example.org/a/".to_owned(),
            base: "https://example.org/b/".to_owned(),
            reach: None,
            resources: vec![
                Resource {
                    url: "a.css".to_owned(),
                    found: ResourceSum::Bytes { hash: u128::MAX, bytes: 7, read_as: 9 },
                },
                Resource { url: "b.css".to_owned(), found: ResourceSum::Nothing },
            ],
            left_out: vec!["c.css: too large".to_owned()],
            fonts: vec![
                FontRecord { hash: 5, bytes: 6, place },
                FontRecord { hash: 7, bytes: 8, place: FontPlace::Entry { at: 9 } },
            ],
            images: vec![ImageRecord {
                width: 3,
                height: 4,
                is_bgra: true,
                is_premultiplied: false,
                at: 48,
            }],
        }
    }

    #[test]
    fn about_reads_as_written_and_never_when_cut() {
        let reaches = [Reach::Files, Reach::FilesAndNetwork, Reach::Network, Reach::SafeNetwork];
        for reach in reaches.map(Some).into_iter().chain([None]) {
            let about = PageDescription { reach, ..about() };
            let bytes = about.write();
            assert_eq!(PageDescription::read(&bytes), Ok(about));
            for length in 0..bytes.len() {
                assert!(PageDescription::read(&bytes[..length]).is_err(), "{length} bytes");
            }
            assert!(PageDescription::read(&[&*bytes, &[0]].concat()).is_err(), "one byte more");
        }
    }

    // A whole entry of version 3, whose description is in the form that this version had.
    #[test]
    fn entry_of_version_3_is_of_an_older_build() {
        let mut description = Vec::new();
        for text in ["https://example.org/", "Title", "https://example.org/"] {
            description.extend((text.len() as u32).to_le_bytes());
            description.extend(text.as_bytes());
        }
        // The reach; no resources, nothing left out, no fonts, no images.
        description.extend([0; 1 + 4 * 4]);
        assert_ne!(
            PageDescription::read(&description).map(|about| about.title),
            Ok("Title".to_owned())
        );
        let mut header = Header::new();
        header.version = 3.into();
        let mut parts: [&[u8]; PARTS] = [&[]; PARTS];
        parts[EntryPart::PageDescription as usize] = &description;
        let damage = CachedView::open(&assemble(header, parts)).map(drop).unwrap_err();
        assert_eq!(damage, EntryDamage::Version { version: 3 });
        assert!(damage.is_of_older_build());
    }
}
