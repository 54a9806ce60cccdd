//! Who an applet is, and which owner key follows from that.
//!
//! A heap belongs to the key that created it. Which key an applet uses by default follows from its
//! [`Identity`]:
//!
//! 1. the publisher's signature, if the applet's file is signed: the publisher's public key and the
//!    name of the application. An upgrade has other code and the same identity.
//! 2. else a name that the host gives: an application's name, or the origin of a web page;
//! 3. else the SHA-256 of the file.
//!
//! ```no_run
//! use holdfast_identity::{AppletFile, Publishers, Trust, key_for};
//! use holdfast_region::{NameSpace, Places, RegionName};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let names = NameSpace::new(Places::from_env()?);
//! let file = std::fs::File::open("notes.wasm")?;
//! let applet = AppletFile::of_file(&file)?;
//! let publishers = Publishers::of(names.places());
//! let (identity, _) = publishers.identify(&applet, None)?;
//! let heap = RegionName::parse("notes")?;
//! let applet_key = key_for(&names, &heap, &identity)?;
//! if let Some(signature) = applet.signature()
//!     && publishers.meet(signature)? == Trust::FirstUse
//! {
//!     eprintln!("this is the first use of {identity}");
//! }
//! let region = names.open_or_create(&heap, applet_key.key(), 64 << 20)?;
//! # region.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The signature
//!
//! An ed25519 signature travels inside the file, as its last bytes: in a WebAssembly module as a
//! custom section named `holdfast.signature`, in an ELF program as a trailer behind the file's end,
//! which the kernel does not load. It covers the format's version, the names of publisher and
//! application, the length and the SHA-256 of all bytes before it, under a domain of its own.
//! `strip` and `objcopy` write a new ELF file without the trailer: the program is then unsigned, so
//! sign last. A tool that appends a section to a signed module makes it one that is refused, until
//! it is signed again.
//!
//! A damaged, misplaced, repeated or forged signature is an error, never "unsigned". But whoever
//! can write the file can also take the signature off it: what an unsigned program cannot do is use
//! the publisher's heaps.
//!
//! # Checking and running the same bytes
//!
//! [`AppletFile::of_bytes`] is for a host that has the file in memory anyway, as one that compiles
//! WebAssembly does: check these bytes, then compile these bytes. [`AppletFile::of_file`] reads
//! through an open file and moves no offset: start the program from the same descriptor
//! (`execveat`, `/proc/self/fd/N`), never from the path again. A descriptor does not stop other
//! processes that may write to the file, so call [`AppletFile::is_unchanged`] before the program
//! runs its first instruction, or at the latest before it is given its heap.
//!
//! # Trust on first use
//!
//! A signature proves that the same publisher made two files, not who that is. [`Publishers`]
//! records the key of a publisher's name when an applet of it first gets the key of a heap. Another
//! key under that name, or under one that looks like it, is refused until the user removes the
//! record.
//!
//! # Keys
//!
//! [`key_for`] chooses the owner key of an applet for a heap. An unrelated applet is refused with
//! both identities in words. Heaps of the key [`LEGACY_KEY`], which all applets shared once, still
//! open for every applet, until [`hand_over`] gives them to one, or [`grant`] grants one something.
//! From then on they are closed to all others: [`revoke`], a removal and a restore change nothing
//! of that, [`open_to_all`] does. A host whose users grant and revoke uses these functions, and not
//! those of the name space.
//!
//! This crate must not know what an applet does, or how it is run.

#![forbid(unsafe_code)]

mod applet_file;
mod block;
mod closed;
mod container;
mod error;
mod identity;
mod names;
mod ownership;
mod publisher;
mod record;
mod signing;
mod trust;

pub use applet_file::{AppletFile, Signature, SignatureError};
pub use container::SignatureFault;
pub use error::IdentityError;
pub use identity::{CodeHash, Identity, IdentityTextError};
pub use names::{
    ApplicationName, GIVEN_NAME_BYTES_MAX, GivenName, NAME_BYTES_MAX, NameError, PublisherName,
};
pub use ownership::{
    AppletKey, HandOverReport, KeySource, LEGACY_KEY, Owner, OwnershipError, close, grant,
    hand_over, implicit_owner_key, is_open_to_all, key_for, note_closed, open_to_all, owner_of,
    revoke, revoke_all,
};
pub use publisher::{PublicKey, Publisher, PublisherKey, PublisherKeyError, PublisherTextError};
pub use signing::{SignError, sign};
pub use trust::{Publishers, Trust, TrustError};
