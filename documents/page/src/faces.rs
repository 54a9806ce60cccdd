//! Fonts that a page's style sheets bring (`@font-face`): the first source that can be had and
//! read.
//!
//! The engine takes the first source whose format it does not rule out, of rules at the top of a
//! sheet, and no other if there is no font to be had from it. What it leaves without a font is
//! looked for here, in the order of the sources.
//!
//! Source: CSS Fonts, "4.3 Font reference: the src descriptor".

use std::collections::HashSet;

use blitz_dom::BaseDocument;
use blitz_dom::decode_font_bytes;
use blitz_dom::net::FontFaceOverrides;
use blitz_traits::net::Url;
use fontique::FontStyle;
use skrifa::raw::FileRef;
use style::font_face::{
    FontFaceRule, FontFaceSourceFormat, FontFaceSourceFormatKeyword as Format, FontStyleRange,
    Source,
};
use style::stylesheets::{CssRule, CustomMediaMap, StylesheetInDocument};

use crate::families;
use crate::loader::Loader;
use crate::resource::seems_font;

/// Rules of a page that are looked at.
const RULES_MAX: usize = 2_000;

/// One source of a rule.
enum FontSource {
    Address(Url),
    Local(String),
}

/// A rule that names a family and sources.
struct DeclaredFont {
    overrides: FontFaceOverrides,
    sources: Vec<FontSource>,
    /// The rule in short: the same one is not looked at twice.
    key: String,
}

/// What was looked for.
#[derive(Default)]
pub(crate) struct FontFaces {
    seen: HashSet<String>,
    /// Families that rules of the page name, in small letters.
    families: HashSet<String>,
    left_out: Vec<String>,
}

impl FontFaces {
    /// Looks for fonts that the engine has not got; whether it got one. What the page asked for up
    /// to now has been answered.
    pub(crate) fn walk(&mut self, engine: &mut BaseDocument, loader: &Loader) -> bool {
        let mut has_changed = false;
        for face in faces_of(engine) {
            let family = face.overrides.family_name.clone().unwrap_or_default();
            self.families.insert(family.to_lowercase());
            if self.seen.len() >= RULES_MAX || !self.seen.insert(face.key.clone()) {
                continue;
            }
            let addresses = || {
                face.sources.iter().filter_map(|source| match source {
                    FontSource::Address(url) => Some(url),
                    FontSource::Local(_) => None,
                })
            };
            if addresses().any(|url| loader.is_font(url)) {
                loader.excuse(addresses());
                continue;
            }
            let found = face.sources.iter().find_map(|source| {
                let bytes = match source {
                    FontSource::Address(url) => loader.font(url)?,
                    FontSource::Local(name) => families::font_of_name(name)?,
                };
                readable(&bytes)
            });
            match found {
                Some(bytes) => {
                    families::give(engine, bytes, face.overrides.clone());
                    loader.excuse(addresses());
                    has_changed = true;
                }
                None => self
                    .left_out
                    .push(format!("the font {family}: none of its sources can be used")),
            }
        }
        has_changed
    }

    /// Whether the page brings a family of this name, in small letters.
    pub(crate) fn has(&self, family: &str) -> bool {
        self.families.contains(family)
    }

    /// Families that are missing, for people.
    pub(crate) fn left_out(&self) -> Vec<String> {
        self.left_out.clone()
    }
}

/// A font's tables as they are, unpacked; nothing, if it cannot be read.
fn readable(bytes: &[u8]) -> Option<Vec<u8>> {
    if !seems_font(bytes) && !bytes.starts_with(b"ttcf") {
        return None;
    }
    let unpacked = decode_font_bytes(bytes);
    FileRef::new(&unpacked).is_ok().then(|| unpacked.into_owned())
}

/// The rules of the page that count in this viewport.
fn faces_of(engine: &mut BaseDocument) -> Vec<DeclaredFont> {
    let sheets: Vec<_> = engine.author_stylesheets().cloned().collect();
    let lock = engine.guard().clone();
    let guard = lock.read();
    let device = engine.stylist_device();
    let media = CustomMediaMap::default();
    let mut faces = Vec::new();
    for sheet in &sheets {
        for rule in sheet.0.contents(&guard).effective_rules(device, &media, &guard) {
            if let CssRule::FontFace(rule) = rule {
                faces.extend(face_of(rule.read_with(&guard)));
            }
        }
    }
    faces
}

fn face_of(rule: &FontFaceRule) -> Option<DeclaredFont> {
    let descriptors = &rule.descriptors;
    let family = descriptors.font_family.as_ref()?.name.to_string();
    let mut sources = Vec::new();
    let mut key = family.clone();
    for source in &descriptors.src.as_ref()?.0 {
        let place = match source {
            Source::Url(source) if is_known(source.format_hint.as_ref()) => {
                FontSource::Address(source.url.url()?.as_ref().clone())
            }
            Source::Url(_) => continue,
            Source::Local(name) => FontSource::Local(name.name.to_string()),
        };
        key.push('\n');
        key.push_str(match &place {
            FontSource::Address(url) => url.as_str(),
            FontSource::Local(name) => name,
        });
        sources.push(place);
    }
    let weight = descriptors.font_weight.as_ref().and_then(|range| range.0.compute());
    let overrides = FontFaceOverrides {
        family_name: Some(family),
        weight: weight.map(|weight| weight.value()),
        style: descriptors.font_style.as_ref().map(style_of),
    };
    key.push_str(&format!("\n{:?} {:?}", overrides.weight, overrides.style));
    Some(DeclaredFont { overrides, sources, key })
}

/// Whether a format can be read, as far as it is said.
fn is_known(hint: Option<&FontFaceSourceFormat>) -> bool {
    match hint {
        None => true,
        Some(FontFaceSourceFormat::Keyword(format)) => {
            !matches!(format, Format::EmbeddedOpentype | Format::Svg | Format::Unknown)
        }
        Some(FontFaceSourceFormat::String(format)) => {
            let format = format.to_ascii_lowercase();
            let plain = format.strip_suffix("-variations").unwrap_or(&format);
            matches!(
                plain,
                "woff" | "woff2" | "truetype" | "opentype" | "collection" | "ttf" | "otf"
            )
        }
    }
}

/// As the engine takes it: what is not slanted is `oblique 0deg` to the style sheet's parser.
fn style_of(style: &FontStyleRange) -> FontStyle {
    match style {
        FontStyleRange::Italic => FontStyle::Italic,
        FontStyleRange::Oblique(min, max) => {
            let (min, max) = (min.degrees(), max.degrees());
            let is_upright = |angle: Option<f32>| angle.is_none_or(|angle| angle == 0.0);
            if is_upright(min) && is_upright(max) {
                FontStyle::Normal
            } else {
                FontStyle::Oblique(min)
            }
        }
    }
}
