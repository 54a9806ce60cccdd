//! The computations of the applets as libraries in this process: `libmd5.so`, `libeviction.so`,
//! `liblogicaldisk.so`, and `libtable.so` on `libholdfast`.
//!
//! Invariants: functions are called with the types of their headers (`applets/*/*.h`,
//! `holdfast.h`), and not after their library is unloaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Error};
use std::path::Path;

use holdfast_testkit::applet_file;
use libloading::Library;
use libloading::os::unix;

type Md5Of = unsafe extern "C" fn(*const c_void, usize, *mut u8);
type Open = unsafe extern "C" fn(*const c_char, u64) -> c_int;
type Work = unsafe extern "C" fn(u64, *mut u64) -> c_int;

/// A digest.
pub(crate) type Digest = [u8; 16];

/// The code of the applet `md5`.
pub(crate) struct Md5 {
    md5_of: Md5Of,
    _library: Library,
}

impl Md5 {
    pub(crate) fn load() -> io::Result<Md5> {
        // SAFETY: the library has no initialisation; the type is that of md5.h, and the library
        // stays as long as the value.
        unsafe {
            let library = Library::new(applet_file("libmd5.so")?).map_err(Error::other)?;
            let md5_of = *library.get::<Md5Of>("md5_of").map_err(Error::other)?;
            Ok(Md5 { md5_of, _library: library })
        }
    }

    pub(crate) fn digest(&self, message: &[u8]) -> Digest {
        let mut digest = Digest::default();
        // SAFETY: the message is as long as is said, and a digest has room for one.
        unsafe { (self.md5_of)(message.as_ptr().cast(), message.len(), digest.as_mut_ptr()) };
        digest
    }
}

type ChooseEach = unsafe extern "C" fn(*const u32, usize, usize, *const u32, usize, *mut u32);

/// The code of the applet `eviction`.
pub(crate) struct Eviction {
    choose_each: ChooseEach,
    _library: Library,
}

impl Eviction {
    pub(crate) fn load() -> io::Result<Eviction> {
        // SAFETY: the library has no initialisation; the type is that of eviction.h, and the
        // library stays as long as the value.
        unsafe {
            let library = Library::new(applet_file("libeviction.so")?).map_err(Error::other)?;
            let choose_each =
                *library.get::<ChooseEach>("eviction_choose_each").map_err(Error::other)?;
            Ok(Eviction { choose_each, _library: library })
        }
    }

    /// The page of each list of `page_count` pages, one or more.
    pub(crate) fn choose_each(
        &self,
        lists: &[u32],
        page_count: usize,
        hot: &[u32],
        chosen: &mut [u32],
    ) {
        let list_count = (lists.len() / page_count.max(1)).min(chosen.len());
        // SAFETY: the lists are as long as is said, there is a page in each and room for one of
        // each, and hot pages are only read.
        unsafe {
            (self.choose_each)(
                lists.as_ptr(),
                list_count,
                page_count,
                hot.as_ptr(),
                hot.len(),
                chosen.as_mut_ptr(),
            );
        }
    }
}

type NewDisk = unsafe extern "C" fn(u32, u32, u32) -> *mut c_void;
type FreeDisk = unsafe extern "C" fn(*mut c_void);
type UpdateDisk =
    unsafe extern "C" fn(*mut c_void, *const u32, usize, *mut [u32; 2], usize, *mut usize) -> usize;

/// A disk of the code of the applet `logicaldisk`.
pub(crate) struct LogicalDisk {
    disk: *mut c_void,
    logical_blocks: u32,
    free: FreeDisk,
    update: UpdateDisk,
    _library: Library,
}

impl LogicalDisk {
    pub(crate) fn new(
        blocks: u32,
        segment_blocks: u32,
        logical_blocks: u32,
    ) -> io::Result<LogicalDisk> {
        // SAFETY: the library has no initialisation; the types are those of logicaldisk.h, and the
        // library stays as long as the value.
        unsafe {
            let library = Library::new(applet_file("liblogicaldisk.so")?).map_err(Error::other)?;
            let new = *library.get::<NewDisk>("logicaldisk_new").map_err(Error::other)?;
            let free = *library.get::<FreeDisk>("logicaldisk_free").map_err(Error::other)?;
            let update = *library.get::<UpdateDisk>("logicaldisk_update").map_err(Error::other)?;
            let disk = new(blocks, segment_blocks, logical_blocks);
            if disk.is_null() {
                return Err(Error::other("the numbers of blocks do not fit together"));
            }
            Ok(LogicalDisk { disk, logical_blocks, free, update, _library: library })
        }
    }

    /// Writes blocks with the cleaner running; `steps` has room for what is to be done. Returns how
    /// many blocks were written and how many steps there are.
    pub(crate) fn update(
        &mut self,
        logical: &[u32],
        steps: &mut [[u32; 2]],
    ) -> io::Result<(usize, usize)> {
        if logical.iter().any(|block| *block >= self.logical_blocks) {
            return Err(Error::other("a logical block is not on this disk"));
        }
        let mut step_count = 0;
        // SAFETY: the disk is there until the value is dropped, the blocks are on it, and there is
        // room for as many steps as is said; a step is two numbers, as in C.
        let written = unsafe {
            (self.update)(
                self.disk,
                logical.as_ptr(),
                logical.len(),
                steps.as_mut_ptr(),
                steps.len(),
                &mut step_count,
            )
        };
        Ok((written, step_count))
    }
}

impl Drop for LogicalDisk {
    fn drop(&mut self) {
        // SAFETY: the disk came from the same library, and only its owner, which ends here, had it.
        unsafe { (self.free)(self.disk) };
    }
}

/// What video.h says of a video.
#[repr(C)]
struct Properties {
    width: c_int,
    height: c_int,
    frames: i64,
    frames_per_s: f64,
    codec: *const c_char,
}

type OpenVideo = unsafe extern "C" fn(*mut *mut c_void, *const u8, usize) -> c_int;
type CloseVideo = unsafe extern "C" fn(*mut c_void);
type PropertiesOf = unsafe extern "C" fn(*const c_void) -> Properties;
type NextFrame = unsafe extern "C" fn(*mut c_void, c_int, *mut u8, *mut i64) -> c_int;
type Rewind = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Of libavutil: `AV_PIX_FMT_RGB24`, `AVERROR_EOF`, and zeroes that readers of bits may look at
/// behind the end (`AV_INPUT_BUFFER_PADDING_SIZE`).
const RGB24: c_int = 2;
const END_OF_FILE: c_int = -541_478_725;
const PADDING_BYTES: usize = 64;

/// The code of the applet `video`, with a video open.
pub(crate) struct Video {
    video: *mut c_void,
    properties: Properties,
    next_frame: NextFrame,
    rewind: Rewind,
    close: CloseVideo,
    _bytes: Vec<u8>,
    _library: Library,
}

impl Video {
    pub(crate) fn open(bytes: &[u8]) -> io::Result<Video> {
        let padded = [bytes, &[0; PADDING_BYTES]].concat();
        // SAFETY: the libraries may be loaded at any time; the types are those of video.h, the
        // bytes stay as they are until the video is closed, and the library as long as the value.
        unsafe {
            let library = Library::new(applet_file("libvideo.so")?).map_err(Error::other)?;
            let open = *library.get::<OpenVideo>("video_open").map_err(Error::other)?;
            let close = *library.get::<CloseVideo>("video_close").map_err(Error::other)?;
            let properties =
                *library.get::<PropertiesOf>("video_properties").map_err(Error::other)?;
            let next_frame = *library.get::<NextFrame>("video_next_frame").map_err(Error::other)?;
            let rewind = *library.get::<Rewind>("video_rewind").map_err(Error::other)?;
            let mut video = std::ptr::null_mut();
            let code = open(&mut video, padded.as_ptr(), bytes.len());
            if code != 0 {
                return Err(undecodable(code));
            }
            let properties = properties(video);
            Ok(Video {
                video,
                properties,
                next_frame,
                rewind,
                close,
                _bytes: padded,
                _library: library,
            })
        }
    }

    /// Of a frame.
    pub(crate) fn pixels(&self) -> usize {
        let side = |length: c_int| usize::try_from(length).unwrap_or_default();
        side(self.properties.width) * side(self.properties.height)
    }

    pub(crate) fn frames(&self) -> usize {
        usize::try_from(self.properties.frames).unwrap_or_default()
    }

    /// Decodes the next frame to pixels of three bytes; `false` after the last one.
    pub(crate) fn next_frame(&mut self, pixels: &mut [u8]) -> io::Result<bool> {
        if pixels.len() < 3 * self.pixels() {
            return Err(Error::other("there is no room for the frame's pixels"));
        }
        let mut time_us = 0;
        // SAFETY: the video is open, and there is room for its pixels.
        let code =
            unsafe { (self.next_frame)(self.video, RGB24, pixels.as_mut_ptr(), &mut time_us) };
        match code {
            0 => Ok(true),
            END_OF_FILE => Ok(false),
            code => Err(undecodable(code)),
        }
    }

    /// The next frame is the first one again.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        // SAFETY: the video is open.
        match unsafe { (self.rewind)(self.video) } {
            0 => Ok(()),
            code => Err(undecodable(code)),
        }
    }
}

impl Drop for Video {
    fn drop(&mut self) {
        // SAFETY: the video came from the same library, and only its owner, which ends here, had it.
        unsafe { (self.close)(self.video) };
    }
}

fn undecodable(code: c_int) -> Error {
    Error::other(format!("libavcodec makes nothing of the video (AVERROR {code})"))
}

/// The code of the applet `table` on a heap of a native program.
pub(crate) struct Table {
    work: Work,
    _library: unix::Library,
    _heap: unix::Library,
}

impl Table {
    /// Opens a heap of this name and size with the library `holdfast`.
    pub(crate) fn load(holdfast: &Path, heap: &CStr, limit_bytes: u64) -> io::Result<Table> {
        // SAFETY: both libraries may be loaded at any time; the types are those of holdfast.h and
        // table.h, and the libraries stay as long as the value. `table` finds its functions in
        // `holdfast`, which is therefore loaded for everybody.
        let (opened, table) = unsafe {
            let global = unix::RTLD_NOW | unix::RTLD_GLOBAL;
            let heap_library = unix::Library::open(Some(holdfast), global).map_err(Error::other)?;
            let open = *heap_library.get::<Open>(b"nv_open\0").map_err(Error::other)?;
            let library = unix::Library::open(Some(applet_file("libtable.so")?), unix::RTLD_NOW)
                .map_err(Error::other)?;
            let work = *library.get::<Work>(b"table_work\0").map_err(Error::other)?;
            (
                open(heap.as_ptr(), limit_bytes),
                Table { work, _library: library, _heap: heap_library },
            )
        };
        if opened == 0 { Ok(table) } else { Err(refused(opened)) }
    }

    pub(crate) fn work(&self, rounds: u64) -> io::Result<u64> {
        let mut result = 0;
        // SAFETY: the heap is open, and there is room for the result.
        let status = unsafe { (self.work)(rounds, &mut result) };
        if status == 0 { Ok(result) } else { Err(refused(status)) }
    }
}

fn refused(status: c_int) -> Error {
    Error::other(format!("libholdfast refused with code {status} of holdfast.h"))
}
