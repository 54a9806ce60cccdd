//! Families of fonts that are not on this machine: fontconfig says which stands in for one.
//!
//! A page asks for `Arial` first and for any font last. Fontconfig has an answer to each name, most
//! of which is "the usual one": that counts only where it was meant for just this name, or else the
//! next name of the page would never have its turn.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

use blitz_dom::net::{FontFaceOverrides, Resource, ResourceLoadResponse};
use blitz_dom::{BaseDocument, NodeId};
use blitz_traits::net::Bytes;
use fontconfig::{Fontconfig, ObjectSet, Pattern, list_fonts};
use style::values::computed::font::SingleFontFamily;

use crate::fetch::read_file;
use crate::fonts::FONT_BYTES_MAX;

const FAMILY: &CStr = c"family";
const FILE: &CStr = c"file";
const INDEX: &CStr = c"index";
/// By these names a font is known as a whole, to `local()`.
const WHOLE_NAMES: [&CStr; 2] = [c"fullname", c"postscriptname"];
/// Names of a page that are asked for.
const NAMES_MAX: usize = 1_000;
/// What a name that is not known leads to.
const GENERIC: [&str; 6] = ["sans-serif", "serif", "monospace", "cursive", "fantasy", "system-ui"];

/// What was asked for.
#[derive(Default)]
pub(crate) struct Families {
    asked: HashSet<String>,
}

impl Families {
    /// Gives the engine fonts for the families that the page's elements name, that no font on this
    /// machine has, and that the page does not declare itself (`is_declared`); returns whether it
    /// got one.
    pub(crate) fn stand_in(
        &mut self,
        engine: &mut BaseDocument,
        nodes: &[(u32, NodeId)],
        is_declared: impl Fn(&str) -> bool,
    ) -> bool {
        let mut wanted = used(engine, nodes);
        wanted.retain(|name| {
            let small = name.to_lowercase();
            // Names of the engine's own.
            !small.starts_with("-moz-")
                && !is_declared(&small)
                && self.asked.len() < NAMES_MAX
                && self.asked.insert(small)
        });
        if wanted.is_empty() {
            return false;
        }
        let Some(system) = Fontconfig::new() else { return false };
        let mut has_changed = false;
        for name in wanted {
            let Some(family) = stand_in_for(&system, &name) else { continue };
            for file in files_of(&system, &family) {
                let Ok(bytes) = read_file(&file, FONT_BYTES_MAX) else { continue };
                let family_name = Some(name.clone());
                give(
                    engine,
                    bytes,
                    FontFaceOverrides { family_name, ..FontFaceOverrides::default() },
                );
                has_changed = true;
            }
        }
        has_changed
    }
}

/// Gives the engine a font.
pub(crate) fn give(engine: &mut BaseDocument, bytes: Vec<u8>, overrides: FontFaceOverrides) {
    engine.load_resource(ResourceLoadResponse {
        // Of no request of the engine's.
        request_id: usize::MAX,
        node_id: None,
        resolved_url: None,
        result: Ok(Resource::Font(Bytes::from(bytes), overrides)),
    });
}

/// The family that stands for letters of no family.
pub(crate) fn usual() -> Option<String> {
    matched(&Fontconfig::new()?, &[GENERIC[0]])
}

/// The font of the machine that has this name as a whole.
pub(crate) fn font_of_name(name: &str) -> Option<Vec<u8>> {
    let system = Fontconfig::new()?;
    let file = WHOLE_NAMES.iter().find_map(|kind| files(&system, kind, name).into_iter().next())?;
    read_file(&file, FONT_BYTES_MAX).ok()
}

/// The families that elements ask for, in the order of the page.
fn used(engine: &BaseDocument, nodes: &[(u32, NodeId)]) -> Vec<String> {
    let (mut names, mut known, mut fonts) = (Vec::new(), HashSet::new(), HashSet::new());
    for (_, id) in nodes {
        let Some(style) = engine.get_node(*id).and_then(|node| node.primary_styles()) else {
            continue;
        };
        let font = style.get_font();
        // Most elements have the font of their parent.
        if !fonts.insert(std::ptr::from_ref(font) as usize) {
            continue;
        }
        for family in font.font_family.families.iter() {
            if let SingleFontFamily::FamilyName(name) = family {
                let name = name.name.to_string();
                if known.insert(name.clone()) {
                    names.push(name);
                }
            }
        }
    }
    names
}

/// The family that stands in for one that is not there; nothing, if it is there, or nothing was
/// meant for it.
fn stand_in_for(system: &Fontconfig, name: &str) -> Option<String> {
    if !files(system, FAMILY, name).is_empty() {
        return None;
    }
    let found = matched(system, &[name])?;
    let usual: Vec<String> = GENERIC.iter().filter_map(|name| matched(system, &[name])).collect();
    if !usual.contains(&found) {
        return Some(found);
    }
    // The usual one was meant if it comes before another family that is asked for next.
    let other = usual.iter().find(|other| **other != found)?;
    (matched(system, &[name, other])? == found).then_some(found)
}

/// The family that fontconfig chooses for names of families, the first of which counts most.
fn matched(system: &Fontconfig, names: &[&str]) -> Option<String> {
    let mut pattern = Pattern::new(system).ok()?;
    for name in names {
        pattern.add_string(FAMILY, &CString::new(*name).ok()?).ok()?;
    }
    let found = pattern.font_match().ok()?;
    found.get_string(FAMILY).ok().map(str::to_owned)
}

fn files_of(system: &Fontconfig, family: &str) -> Vec<PathBuf> {
    files(system, FAMILY, family)
}

/// Files of one font each in which a name is just this, sorted.
fn files(system: &Fontconfig, kind: &CStr, name: &str) -> Vec<PathBuf> {
    let listed = || {
        let mut pattern = Pattern::new(system).ok()?;
        pattern.add_string(kind, &CString::new(name).ok()?).ok()?;
        let mut objects = ObjectSet::new(system).ok()?;
        for object in [FILE, INDEX] {
            objects.add(object).ok()?;
        }
        let fonts = list_fonts(&pattern, Some(&objects)).ok()?;
        let mut found: Vec<PathBuf> = fonts
            .iter()
            // Others in a file with several fonts would come along under this name.
            .filter(|font| font.get_int(INDEX).is_ok_and(|index| index == 0))
            .filter_map(|font| font.get_string(FILE).ok().map(PathBuf::from))
            .filter(|path| !is_collection(path))
            .collect();
        found.sort();
        found.dedup();
        Some(found)
    };
    listed().unwrap_or_default()
}

fn is_collection(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["ttc", "otc"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}
