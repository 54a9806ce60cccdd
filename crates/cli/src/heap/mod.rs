//! The `heap` commands, one file each, and what they share.

pub mod backing;
pub mod check;
pub mod checkpoint;
pub mod grants;
pub mod ls;
pub mod rm;
pub mod show;

use holdfast_heap::{Finding, Inspection, OpenError, inspect};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionReader};
use serde::Serialize;
use zerocopy::IntoBytes;

use crate::exit::Failure;

pub fn name_space() -> Result<NameSpace, Failure> {
    Ok(NameSpace::new(Places::from_env()?))
}

pub fn key(names: &NameSpace, key_name: &str) -> Result<OwnerKey, Failure> {
    Ok(OwnerKey::load_or_create(names.places(), key_name)?)
}

/// Contradictions that are kept; all are counted. A hostile heap can have any number of them.
const FINDINGS_KEPT_MAX: usize = 10_000;

/// A root as the tools show it.
#[derive(Debug, Serialize)]
pub struct RootRow {
    pub name: String,
    pub bytes: u64,
}

/// Everything that a look into a heap told.
pub struct Look {
    pub inspection: Result<Inspection, OpenError>,
    pub findings: Vec<Finding>,
    pub roots: Vec<RootRow>,
}

/// Looks into a copy of a region's data, so that the heap itself is not touched.
pub fn look(reader: &RegionReader) -> Look {
    let bytes = reader.bytes();
    let mut copy = vec![0_u64; bytes.len() / 8];
    copy.as_mut_bytes().copy_from_slice(&bytes[..bytes.len() / 8 * 8]);
    let (mut findings, mut roots) = (Vec::new(), Vec::new());
    let mut keep = |finding| {
        if findings.len() < FINDINGS_KEPT_MAX {
            findings.push(finding);
        }
    };
    let inspection = inspect(&mut copy, &mut keep, &mut |name, bytes| {
        roots.push(RootRow { name: name.to_owned(), bytes });
    });
    roots.sort_by(|a, b| a.name.cmp(&b.name));
    Look { inspection, findings, roots }
}
