//! Who an applet is: `holdfast sign` and `identity`, and the look at an applet's file that decides
//! whose key its heaps have.

use std::io;
use std::path::Path;

use holdfast_identity::{
    AppletFile, GivenName, Identity, IdentityError, Owner, OwnershipError, PublisherKey,
    PublisherKeyError, Publishers, SignError, SignatureError, Trust, TrustError,
    implicit_owner_key, owner_of, sign,
};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionError, RegionName};
use serde::Serialize;

use crate::identity_args::{IdentityArgs, OwnerArgs, SignArgs};
use holdfast_command::exit::{
    BAD_FILE, DENIED, Failure, HOST_FAILED, NO_APPLET, NOT_FOUND, NOT_LOADABLE, OTHER, USAGE,
};
use holdfast_command::keys::{DEFAULT_KEY, key, name_space};
use holdfast_command::output::{print, print_json, say, shown};

/// Whom a heap is opened for.
pub struct Applet {
    pub identity: Identity,
    /// What is started must be this file.
    pub file: AppletFile,
}

impl Applet {
    /// Who an applet is that is going to run. Nothing is recorded.
    pub fn identify(
        path: &Path,
        given: Option<&GivenName>,
        places: &Places,
    ) -> Result<Applet, Failure> {
        let found = Publishers::of(places).identify_path(path, given);
        let (file, identity, _) = found.map_err(|error| match error {
            IdentityError::File { path, source } => unreadable(&path, source),
            error => Failure::new(HOST_FAILED, error),
        })?;
        Ok(Applet { identity, file })
    }

    /// Records its publisher, if that is met first, and says so: when the applet has its keys.
    pub fn meet(&self, places: &Places) -> Result<(), Failure> {
        let Some(signature) = self.file.signature() else { return Ok(()) };
        let trust = Publishers::of(places).meet(signature);
        if trust.map_err(|error| Failure::new(HOST_FAILED, error))? != Trust::FirstUse {
            return Ok(());
        }
        let publisher = signature.publisher();
        say(format_args!(
            "this is the first applet of publisher `{}` here; its key is recorded, and another one under that name will \
             be refused: {}",
            publisher.name(),
            publisher.key()
        ));
        Ok(())
    }
}

/// Reads an applet's file whose key the user named: a signature that is not good does not start.
/// `None` for what is no file that can be read, of which the start says more.
pub fn examine(path: &Path) -> Result<Option<AppletFile>, Failure> {
    match AppletFile::of_path(path) {
        Ok(file) => Ok(Some(file)),
        Err(SignatureError::Io(_)) => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// An applet's file that tells nothing, with the exit codes of `run`.
fn unreadable(path: &Path, error: SignatureError) -> Failure {
    let code = match &error {
        SignatureError::Io(source) if source.kind() == io::ErrorKind::NotFound => NO_APPLET,
        _ => NOT_LOADABLE,
    };
    Failure::new(code, format!("{}: {error}", shown(path)))
}

/// The key of a command that only a heap's owner may give: the one that was named, or the applet's
/// own or `default`, whichever owns the heap.
pub fn owner_key(
    names: &NameSpace,
    owner: &OwnerArgs,
    heap: &RegionName,
) -> Result<OwnerKey, Failure> {
    if let Some(named) = &owner.key {
        return key(names, named, Some(heap));
    }
    match implicit_owner_key(names, heap) {
        Ok(Some((_, key))) => return Ok(key),
        Err(missing @ RegionError::NotFound { .. }) => return Err(missing.into()),
        // What is wrong with the heap the command itself says best.
        Ok(None) | Err(_) => {}
    }
    match owner_of(names, heap) {
        // Its file is missing, or not to be read.
        Ok(Owner::Applet(identity)) => key(names, &identity.key_name(), Some(heap)),
        Ok(owner @ Owner::Key { .. }) => {
            Err(Failure::new(DENIED, format!("heap {heap} belongs to {owner}; name it with --key")))
        }
        Ok(Owner::Unreadable) => Ok(OwnerKey::load_or_create(names.places(), DEFAULT_KEY)?),
        _ => key(names, DEFAULT_KEY, Some(heap)),
    }
}

pub fn sign_applet(args: &SignArgs) -> Result<u8, Failure> {
    let key = PublisherKey::load(&args.key_file).map_err(key_file_failure)?;
    sign(&args.applet, &key, &args.application).map_err(|error| match &error {
        SignError::Io { source, .. } => Failure::new(io_code(source), error),
        _ => Failure::new(BAD_FILE, error),
    })?;
    let publisher = key.publisher();
    print(&format!(
        "{}: signed as application `{}` of publisher `{}` (ed25519 {:#})\n",
        shown(&args.applet),
        args.application,
        publisher.name(),
        publisher.key()
    ))?;
    Ok(0)
}

/// What `identity --json` prints.
#[derive(Serialize)]
struct Shown {
    /// The short text of it.
    identity: Identity,
    /// The same in words.
    words: String,
    /// The name of the key that its heaps belong to.
    key: String,
    /// SHA-256 of the file.
    sha256: String,
    /// Whether its publisher is known here; null for an applet that is not signed.
    publisher_known: Option<bool>,
}

pub fn show(args: &IdentityArgs) -> Result<u8, Failure> {
    let file = AppletFile::of_path(&args.applet).map_err(|error| {
        let failure = unreadable(&args.applet, error);
        let code = if failure.code == NO_APPLET { NOT_FOUND } else { BAD_FILE };
        Failure { code, ..failure }
    })?;
    let publishers = Publishers::of(name_space()?.places());
    let publisher_known = match file.signature() {
        Some(signature) => Some(publishers.is_known(signature.publisher()).map_err(trust_failure)?),
        None => None,
    };
    let identity = Identity::of(&file, args.app.as_ref());
    let (words, key) = (identity.to_string(), identity.key_name());
    if args.json {
        let sha256 = file.hash().to_string();
        print_json(&Shown { identity, words, key, sha256, publisher_known })?;
        return Ok(0);
    }
    let trust = match publisher_known {
        Some(true) => "publisher: known here\n",
        Some(false) => "publisher: not known here yet\n",
        None => "",
    };
    print(&format!("{words}\nkey: {key}\n{trust}"))?;
    Ok(0)
}

/// The failure of a command about the owner of a heap.
pub fn ownership_failure(error: OwnershipError) -> Failure {
    match error {
        OwnershipError::Key(error) => error.into(),
        OwnershipError::Region(error) => error.into(),
        OwnershipError::Refused { .. }
        | OwnershipError::HasCompartments { .. }
        | OwnershipError::HasGrants { .. }
        | OwnershipError::NotDefault { .. } => Failure::new(DENIED, error),
        _ => Failure::new(OTHER, error),
    }
}

/// The failure of a command about the publishers that are known.
pub fn trust_failure(error: TrustError) -> Failure {
    let code = match &error {
        TrustError::KeyChanged { .. } | TrustError::LooksLike { .. } => DENIED,
        TrustError::Damaged { .. } | TrustError::Newer { .. } | TrustError::NotPrivate { .. } => {
            BAD_FILE
        }
        _ => OTHER,
    };
    Failure::new(code, error)
}

/// The failure of a command that makes or uses a publisher's key.
pub fn key_file_failure(error: PublisherKeyError) -> Failure {
    let code = match &error {
        PublisherKeyError::Exists { .. } => USAGE,
        PublisherKeyError::NotPrivate { .. } | PublisherKeyError::OtherUser { .. } => DENIED,
        PublisherKeyError::Damaged { .. } => BAD_FILE,
        PublisherKeyError::Io { source, .. } => io_code(source),
        _ => OTHER,
    };
    Failure::new(code, error)
}

fn io_code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { OTHER }
}
