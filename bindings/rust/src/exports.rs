//! The functions that the host may call, by name.
//!
//! Invariants: names are distinct, valid, and in the order in which they were exported, which is
//! their number; once the host has been told, the table does not change any more.

use core::fmt;
use core::mem::MaybeUninit;

use crate::buffer::Buffer;
use crate::call::Call;
use crate::failure::Failure;
use crate::platform::Lock;
use holdfast_channel::hello::{EXPORTS_MAX, NAME_BYTES_MAX, is_valid_name};

/// Why a function was not exported.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportError {
    /// A name has 1 to 64 bytes, and no control characters.
    BadName,
    /// Another function has that name.
    NameTaken,
    /// There are as many as there can be.
    TooMany,
    /// The host has been told what there is.
    Serving,
    /// The program's own memory is used up.
    NoMemory,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName => {
                write!(
                    f,
                    "a function's name has 1 to {NAME_BYTES_MAX} bytes of UTF-8 that can be printed; choose such a one"
                )
            }
            Self::NameTaken => {
                f.write_str("a function of that name is exported already; choose another name")
            }
            Self::TooMany => {
                write!(
                    f,
                    "an applet exports at most {EXPORTS_MAX} functions; let one function take a command"
                )
            }
            Self::Serving => {
                f.write_str("the host has been told what there is; export before serve")
            }
            Self::NoMemory => f.write_str("the applet has no memory left; raise its memory limit"),
        }
    }
}

impl core::error::Error for ExportError {}

holdfast_heap::show_as_text!(ExportError);

/// What a function, or a closure, may have with it: two words.
type Captured = MaybeUninit<[*const (); 2]>;

/// A function that is exported.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    captured: Captured,
    /// # Safety
    /// The argument must point to what was captured with it.
    run: unsafe fn(*const (), &mut Call<'_>) -> Result<(), Failure>,
}

// SAFETY: what is captured may be sent to and used from any thread: `Function::new` asks for it.
unsafe impl Send for Function {}

impl Function {
    fn new<F>(function: F) -> Function
    where
        F: Fn(&mut Call<'_>) -> Result<(), Failure> + Copy + Send + Sync + 'static,
    {
        const {
            assert!(
                size_of::<F>() <= size_of::<Captured>()
                    && align_of::<F>() <= align_of::<Captured>(),
                "an exported closure captures at most two words; let it capture one reference to a static"
            );
        }
        /// # Safety
        /// `captured` must point to an `F`.
        unsafe fn run<F>(captured: *const (), call: &mut Call<'_>) -> Result<(), Failure>
        where
            F: Fn(&mut Call<'_>) -> Result<(), Failure>,
        {
            // SAFETY: per the contract.
            unsafe { (*captured.cast::<F>())(call) }
        }
        let mut captured = Captured::uninit();
        // SAFETY: it is large enough and aligned, as asserted; a `Copy` type has nothing to drop.
        unsafe { captured.as_mut_ptr().cast::<F>().write(function) };
        Function { captured, run: run::<F> }
    }

    pub(crate) fn run(&self, call: &mut Call<'_>) -> Result<(), Failure> {
        // SAFETY: it was captured with it, by `new`.
        unsafe { (self.run)(self.captured.as_ptr().cast(), call) }
    }
}

/// All of them.
pub(crate) struct Exports {
    functions: Buffer<Function>,
    /// As the host gets them: each name behind its length.
    names: Buffer<u8>,
    told: bool,
}

impl Exports {
    pub(crate) const fn new() -> Exports {
        Exports { functions: Buffer::new(), names: Buffer::new(), told: false }
    }

    fn add(&mut self, name: &str, function: Function) -> Result<(), ExportError> {
        if self.told {
            return Err(ExportError::Serving);
        }
        let length = u8::try_from(name.len())
            .ok()
            .filter(|_| is_valid_name(name))
            .ok_or(ExportError::BadName)?;
        if self.names().any(|taken| taken == name.as_bytes()) {
            return Err(ExportError::NameTaken);
        }
        if self.functions.len() >= EXPORTS_MAX {
            return Err(ExportError::TooMany);
        }
        // All or nothing.
        self.functions.reserve(1).map_err(|_| ExportError::NoMemory)?;
        self.names.reserve(1 + name.len()).map_err(|_| ExportError::NoMemory)?;
        self.functions.append(&[function]).map_err(|_| ExportError::NoMemory)?;
        self.names.append(&[length]).map_err(|_| ExportError::NoMemory)?;
        self.names.append(name.as_bytes()).map_err(|_| ExportError::NoMemory)
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.names.as_slice();
        core::iter::from_fn(move || {
            let (length, behind) = rest.split_first()?;
            let (name, others) = behind.split_at_checked(usize::from(*length))?;
            rest = others;
            Some(name)
        })
    }

    /// Their count and names, for the host, once. From now on there are no more.
    pub(crate) fn tell(&mut self) -> Option<(usize, &[u8])> {
        let first = !core::mem::replace(&mut self.told, true);
        first.then(|| (self.functions.len(), self.names.as_slice()))
    }

    pub(crate) fn function(&self, number: u32) -> Option<Function> {
        self.functions.as_slice().get(number as usize).copied()
    }
}

pub(crate) static EXPORTS: Lock<Exports> = Lock::new(Exports::new());

/// Offers a function to the host under a name of 1 to 64 bytes that no other one has; at most 1024,
/// and before [`serve`](crate::serve). A closure may capture two words that are [`Copy`], such as a
/// reference to a static.
///
/// # Errors
/// See [`ExportError`].
pub fn export<F>(name: &str, function: F) -> Result<(), ExportError>
where
    F: Fn(&mut Call<'_>) -> Result<(), Failure> + Copy + Send + Sync + 'static,
{
    EXPORTS.with(|exports| exports.add(name, Function::new(function)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &mut Call<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Names of exported functions are checked, must be distinct and reach the host in order.
    #[test]
    fn export_names_are_checked_and_sent_in_order() {
        let mut exports = Exports::new();
        let mut add = |name: &str| exports.add(name, Function::new(nothing));
        assert_eq!(add("one"), Ok(()));
        assert_eq!(add("zw\u{f6}lf"), Ok(()));
        assert_eq!(add("one"), Err(ExportError::NameTaken));
        assert_eq!(add(""), Err(ExportError::BadName));
        assert_eq!(add("a\nb"), Err(ExportError::BadName));
        assert_eq!(add(&"x".repeat(65)), Err(ExportError::BadName));
        assert_eq!(add(&"x".repeat(321)), Err(ExportError::BadName));
        assert_eq!(add(&"x".repeat(64)), Ok(()));
        let (count, names) = exports.tell().unwrap();
        assert_eq!(count, 3);
        assert_eq!(names[..11], *b"\x03one\x06zw\xc3\xb6lf");
        assert_eq!((names[11], names.len()), (64, 76));
        assert_eq!(exports.add("late", Function::new(nothing)), Err(ExportError::Serving));
        assert!(exports.function(2).is_some() && exports.function(3).is_none());
    }

    /// An applet cannot export more functions than the protocol allows.
    #[test]
    fn export_count_stays_within_the_protocol() {
        let mut exports = Exports::new();
        for number in 0..EXPORTS_MAX {
            exports.add(&std::format!("function {number}"), Function::new(nothing)).unwrap();
        }
        assert_eq!(exports.add("one more", Function::new(nothing)), Err(ExportError::TooMany));
        assert_eq!(exports.tell().map(|told| told.0), Some(EXPORTS_MAX));
        assert_eq!(exports.tell(), None);
    }
}
