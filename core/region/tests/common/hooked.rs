//! The kernel's files, with something else done in the middle of a step, as another process or a
//! failing disk does it. Syncs do not reach the disk.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::{fmt, io};

use holdfast_region::{FileView, KernelStorage, Storage};

type Act = Box<dyn FnOnce() + Send>;
type Store = Box<dyn Fn(&mut FileView, u64, &[u8]) -> io::Result<()> + Send + Sync>;

#[derive(Default)]
pub(crate) struct Hooked {
    /// Before the first sync of a file.
    at_sync: Mutex<Option<Act>>,
    /// Before the first removal of a file with this extension.
    at_removal: Mutex<Option<(&'static str, Act)>>,
    /// In place of each store to an image.
    store: Option<Store>,
}

impl Hooked {
    /// Does something before the first sync of a file.
    pub(crate) fn at_sync(act: impl FnOnce() + Send + 'static) -> Hooked {
        Hooked { at_sync: Mutex::new(Some(Box::new(act))), ..Hooked::default() }
    }

    /// Does something before the first removal of a file with this extension.
    pub(crate) fn at_removal(
        extension: &'static str,
        act: impl FnOnce() + Send + 'static,
    ) -> Hooked {
        Hooked { at_removal: Mutex::new(Some((extension, Box::new(act)))), ..Hooked::default() }
    }

    /// Stores to images in another way.
    pub(crate) fn storing(
        store: impl Fn(&mut FileView, u64, &[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> Hooked {
        Hooked { store: Some(Box::new(store)), ..Hooked::default() }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Storage for Hooked {
    fn create(&self, path: &Path) -> io::Result<File> {
        KernelStorage.create(path)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        KernelStorage.allocate(file, range)
    }

    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        KernelStorage.set_len(file, len_bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        KernelStorage.write_at(file, bytes, offset)
    }

    fn store(&self, view: &mut FileView, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match &self.store {
            Some(store) => store(view, offset, bytes),
            None => view.store(offset, bytes),
        }
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        let act = self.at_sync.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        Ok(())
    }

    fn sync_data(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        KernelStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let extension = path.extension().and_then(OsStr::to_str);
        let mut hook = self.at_removal.lock().unwrap();
        let act = hook.take_if(|(wanted, _)| extension == Some(*wanted));
        drop(hook);
        if let Some((_, act)) = act {
            act();
        }
        KernelStorage.remove(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        KernelStorage.available_bytes(path)
    }
}
