//! Limits on a page and all that it asks for. A page comes from strangers, and so is all that it
//! asks for.

use std::time::Duration;

/// Limits on a page that is laid out. What is more of the page itself is a typed error; what is
/// more of its style sheets and images is left out, and said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Bytes of the source: 32 MiB.
    pub source_bytes: u64,
    /// Nodes: 1 million.
    pub nodes: u32,
    /// Nodes below each other: 400. The engine goes as deep as the page does.
    pub depth: u32,
    /// Style sheets, images and fonts that are read: 1,000.
    pub resources: u32,
    /// Bytes of one of them: 32 MiB.
    pub resource_bytes: u64,
    /// Bytes of all of them: 128 MiB.
    pub resources_bytes: u64,
    /// Pixels of all images: 64 million.
    pub image_pixels: u64,
    /// How long style and layout may take: 60 s.
    pub time: Duration,
    /// How long servers are asked for the page and what it asks for: 60 s. What was not asked for
    /// by then is left out.
    pub network: Duration,
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits {
            source_bytes: 32 << 20,
            nodes: 1_000_000,
            depth: 400,
            resources: 1_000,
            resource_bytes: 32 << 20,
            resources_bytes: 128 << 20,
            image_pixels: 64_000_000,
            time: Duration::from_secs(60),
            network: Duration::from_secs(60),
        }
    }
}

/// Pixels of a viewport in one direction: the rasterizer counts them in 16 bits.
pub const VIEWPORT_MAX: u32 = 16_384;
/// Height of a page that is kept as a picture, in pixels. Of a longer one only the document is
/// kept.
pub(crate) const PICTURE_HEIGHT_MAX: u32 = 4_000_000;
/// The stack of the thread that lays out; it is used as far as the page is deep.
pub(crate) const STACK_BYTES: usize = 256 << 20;
/// How often what a style sheet asks for can ask for more.
pub(crate) const ROUNDS_MAX: u32 = 8;
