//! Opens the region of the program's heap that the environment names.
//!
//! Invariant: the files of a scratch heap have lost their names before the program runs, so that
//! nothing is left whether it ends, is killed or execs.

use std::ffi::OsString;
use std::fs::File;

use holdfast_heap::Heap;
use holdfast_native_heap::{HeapOptions, OpenHeapError, SizeError, open_heap_on, parse_size};
use holdfast_region::{ErrorKind, KeyError, NameError, NameSpace, OwnerKey, PlaceError, Places};
use holdfast_region::{Region, RegionError, RegionName};

use crate::fork::ForkBacking;

const NAME_VARIABLE: &str = "HOLDFAST_MALLOC_HEAP";
const SIZE_VARIABLE: &str = "HOLDFAST_MALLOC_SIZE";
/// Address space only: what the program does not use is not allocated.
const LIMIT_BYTES_DEFAULT: u64 = 64 << 30;
/// Programs grow quickly, and growing takes a lock and four system calls.
const GROWTH_HINT_BYTES: u64 = 16 << 20;
const KEY_NAME: &str = "default";

/// Why the program has no heap.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpeningError {
    #[error(transparent)]
    Places(#[from] PlaceError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{NAME_VARIABLE}: {0}")]
    Name(#[from] NameError),
    #[error("{SIZE_VARIABLE}: {0}")]
    Size(#[from] SizeError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Heap(#[from] OpenHeapError),
    #[error("cannot remove {path}: {source}; check the permissions of its directory")]
    Remove { path: String, source: std::io::Error },
}

/// Opens the heap that the environment names, or a scratch heap.
pub(crate) fn open() -> Result<Heap<ForkBacking>, OpeningError> {
    let places = Places::from_env()?;
    holdfast_keeper_client::use_for_room();
    let key = OwnerKey::load_or_create(&places, KEY_NAME)?;
    let limit_bytes = match variable(SIZE_VARIABLE) {
        Some(size) => parse_size(&size.to_string_lossy())?,
        None => LIMIT_BYTES_DEFAULT,
    };
    let names = NameSpace::new(places);
    let (mut region, file) = match variable(NAME_VARIABLE) {
        Some(name) => {
            let name = RegionName::parse(&name.to_string_lossy())?;
            match names.open_or_create(&name, &key, limit_bytes) {
                // A program's children inherit the variable.
                Err(error) if error.kind() == ErrorKind::Held => scratch(&names, &key, limit_bytes),
                other => Ok((other?, None)),
            }
        }
        None => scratch(&names, &key, limit_bytes),
    }?;
    region.set_growth_hint(GROWTH_HINT_BYTES);
    let open = |region| ForkBacking::new(region, file);
    let (heap, _region) = open_heap_on(region, HeapOptions::default(), open)?;
    Ok(heap)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A heap for this program alone, and its image's file.
fn scratch(
    names: &NameSpace,
    key: &OwnerKey,
    limit_bytes: u64,
) -> Result<(Region, Option<File>), OpeningError> {
    let name = format!("malloc-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
    let region = names.create(&RegionName::parse(&name)?, key, limit_bytes)?;
    let path_of = |suffix| names.places().pool().join(format!("{name}.{suffix}"));
    // Without it a fork costs more; that is all.
    let file = File::open(path_of("image")).ok();
    for suffix in ["image", "lock"] {
        let path = path_of(suffix);
        std::fs::remove_file(&path)
            .map_err(|source| OpeningError::Remove { path: path.display().to_string(), source })?;
    }
    Ok((region, file))
}
