//! The kernel of the machine: Debian's for the cloud, taken out of its package by `xtask/setup.sh`,
//! and those of its modules that the lab needs, in the order in which they can be loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::missing::{LabError, Result, host};

/// Memory that is treated as persistent; the disk; randomness; the power button, and a keyboard
/// with a power key; all with what they depend on.
const WANTED: [&str; 8] = [
    "nd_e820",
    "nd_pmem",
    "virtio_pci",
    "virtio_blk",
    "virtio_rng",
    "button",
    "virtio_input",
    "evdev",
];
/// For a kernel that does not have it built in.
const WANTED_IF_THERE: [&str; 2] = ["crc32c_generic", "ext4"];
/// Far more than any of them has.
const MODULES_MAX: usize = 64;

/// What the machine starts.
#[derive(Debug)]
pub struct Kernel {
    /// The compressed kernel.
    pub image: PathBuf,
    /// Modules in loading order.
    pub modules: Vec<PathBuf>,
}

impl Kernel {
    /// The kernel below `directory`: `vmlinuz` and `modules/`.
    ///
    /// # Errors
    /// `Missing` when it is not there, or lacks a module.
    pub fn find(directory: &Path) -> Result<Kernel> {
        let image = directory.join("vmlinuz");
        if !image.is_file() {
            return Err(LabError::Missing {
                what: format!("there is no kernel at {}", image.display()),
            });
        }
        let mut known = BTreeMap::new();
        collect(&directory.join("modules"), &mut known)?;
        let mut modules = Vec::new();
        for name in WANTED_IF_THERE.iter().filter(|name| known.contains_key(**name)).chain(&WANTED)
        {
            add(name, &known, &mut modules)?;
        }
        Ok(Kernel { image, modules })
    }
}

/// Every module below, by its name; `-` and `_` are the same in it.
fn collect(directory: &Path, known: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(directory).map_err(host("read", directory))?;
    for entry in entries {
        let path = entry.map_err(host("read", directory))?.path();
        if path.is_dir() {
            collect(&path, known)?;
        } else if let Some(name) =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".ko"))
        {
            known.insert(name.replace('-', "_"), path.clone());
        }
    }
    Ok(())
}

/// Adds a module behind what it depends on. What depends on itself would be noticed by the kernel's
/// makers.
fn add(name: &str, known: &BTreeMap<String, PathBuf>, modules: &mut Vec<PathBuf>) -> Result<()> {
    let missing = || LabError::Missing { what: format!("the kernel has no module {name}") };
    let path = known.get(name).ok_or_else(missing)?;
    if modules.contains(path) || modules.len() > MODULES_MAX {
        return Ok(());
    }
    let bytes = std::fs::read(path).map_err(host("read", path))?;
    for dependency in dependencies(&bytes) {
        add(&dependency, known, modules)?;
    }
    modules.push(path.clone());
    Ok(())
}

/// What a module says it depends on: `depends=a,b` among the texts that describe it, which end with
/// a zero byte.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let rest = &module[at + KEY.len()..];
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let names = String::from_utf8_lossy(&rest[..end]).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_behind_what_they_depend_on() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, depends: &str| {
            let path = directory.path().join("modules").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("ELF\0license=GPL\0depends={depends}\0name=x\0")).unwrap();
        };
        std::fs::write(directory.path().join("vmlinuz"), "k").unwrap();
        write("a/nd_e820.ko", "libnvdimm");
        write("a/nd_pmem.ko", "libnvdimm,nd_btt");
        write("a/nd_btt.ko", "libnvdimm");
        write("a/libnvdimm.ko", "");
        for name in ["virtio_pci", "virtio_blk", "virtio-rng", "button", "virtio_input"] {
            write(&format!("b/{name}.ko"), "");
        }
        let lacks = Kernel::find(directory.path()).unwrap_err();
        assert!(lacks.to_string().contains("no module evdev"), "{lacks}");
        write("b/evdev.ko", "");
        let kernel = Kernel::find(directory.path()).unwrap();
        let names: Vec<_> =
            kernel.modules.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
        assert_eq!(names[..4], ["libnvdimm", "nd_e820", "nd_btt", "nd_pmem"]);
        assert_eq!(names.len(), 10);
    }
}
