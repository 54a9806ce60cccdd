//! What an entry says of its page: the address, what it was made from, and what its display list refers to.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use peniko::{ImageAlphaType, ImageFormat};

use crate::error::EntryDamage;
use crate::fonts::{FontPlace, FontRecord};
use crate::list::Onwards;
use crate::list::wire::{Reader, Writer};
use crate::loader::{Found, Reach, Resource};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) address: String,
    pub(crate) title: String,
    /// What addresses in the page are relative to: where it was found at last.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageRecord {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) format: ImageFormat,
    pub(crate) alpha: ImageAlphaType,
    /// Where its pixels begin among those of the entry, four bytes each.
    pub(crate) at: u64,
}

impl ImageRecord {
    pub(crate) fn bytes(&self) -> u64 {
        (u64::from(self.width) * u64::from(self.height)).saturating_mul(4)
    }
}

impl About {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.block(self.address.as_bytes());
        to.block(self.title.as_bytes());
        to.block(self.base.as_bytes());
        to.u8(self.reach.map_or(0, Reach::number));
        to.u32(self.resources.len() as u32);
        for resource in &self.resources {
            to.block(resource.url.as_bytes());
            match resource.found {
                Found::Nothing => to.u8(0),
                Found::Bytes { hash, bytes } => {
                    to.u8(1);
                    to.u128(hash);
                    to.u64(bytes);
                }
            }
        }
        to.u32(self.left_out.len() as u32);
        for text in &self.left_out {
            to.block(text.as_bytes());
        }
        to.u32(self.fonts.len() as u32);
        for font in &self.fonts {
            to.u128(font.hash);
            to.u64(font.bytes);
            match &font.place {
                FontPlace::File { path, changed_ns } => {
                    to.u8(0);
                    to.block(path.as_os_str().as_bytes());
                    to.u64(*changed_ns);
                }
                FontPlace::Entry { at } => {
                    to.u8(1);
                    to.u64(*at);
                }
            }
        }
        to.u32(self.images.len() as u32);
        for image in &self.images {
            to.u32(image.width);
            to.u32(image.height);
            to.u8(u8::from(image.format == ImageFormat::Bgra8));
            to.u8(image.alpha as u8);
            to.u64(image.at);
        }
        to.bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<About, EntryDamage> {
        let from = &mut Reader::new(bytes, "description");
        let mut about = About {
            address: from.text()?.to_owned(),
            title: from.text()?.to_owned(),
            base: from.text()?.to_owned(),
            reach: match from.u8()? {
                0 => None,
                number => Some(Reach::of(number).ok_or(from.wrong())?),
            },
            ..About::default()
        };
        for _ in 0..from.count(5)? {
            let url = from.text()?.to_owned();
            let found = match from.u8()? {
                0 => Found::Nothing,
                1 => Found::Bytes { hash: from.u128()?, bytes: from.u64()? },
                _ => return Err(from.wrong()),
            };
            about.resources.push(Resource { url, found });
        }
        for _ in 0..from.count(4)? {
            about.left_out.push(from.text()?.to_owned());
        }
        for _ in 0..from.count(33)? {
            let (hash, bytes) = (from.u128()?, from.u64()?);
            let place = match from.u8()? {
                0 => FontPlace::File { path: path(from)?, changed_ns: from.u64()? },
                1 => FontPlace::Entry { at: from.u64()? },
                _ => return Err(from.wrong()),
            };
            about.fonts.push(FontRecord { hash, bytes, place });
        }
        for _ in 0..from.count(18)? {
            let (width, height) = (from.u32()?, from.u32()?);
            let format = match from.u8()? {
                0 => ImageFormat::Rgba8,
                1 => ImageFormat::Bgra8,
                _ => return Err(from.wrong()),
            };
            let alpha = match from.u8()? {
                0 => ImageAlphaType::Alpha,
                1 => ImageAlphaType::AlphaPremultiplied,
                _ => return Err(from.wrong()),
            };
            about.images.push(ImageRecord { width, height, format, alpha, at: from.u64()? });
        }
        from.end()?;
        Ok(about)
    }

    /// Whether no two images, and no two fonts that came with the page, have bytes of the entry in common.
    pub(crate) fn check(&self) -> Result<(), EntryDamage> {
        let (mut images, mut fonts) = (Onwards::default(), Onwards::default());
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

fn path(from: &mut Reader<'_>) -> Result<PathBuf, EntryDamage> {
    Ok(PathBuf::from(std::ffi::OsString::from_vec(from.block()?.to_vec())))
}
