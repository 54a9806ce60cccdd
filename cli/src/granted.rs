//! The grants of an applet from the command line: its heap, directories, environment and limits.

use std::path::{Component, Path, PathBuf};

use holdfast_applet::{
    Command, Grants, HeapRequest, Limits, MAX_HEAP_LIMIT_BYTES, SandboxKind, thread_name,
};
use holdfast_identity::{AppletFile, Identity, KeySource, LEGACY_KEY, key_for};
use holdfast_region::{
    Consistency, KeyError, NameSpace, Opened, OwnerKey, Places, Region, RegionError, RegionName,
    RegionReader,
};

use crate::applet_args::AppletArgs;
use crate::identity::{Applet, examine};
use crate::remote;
use holdfast_command::exit::{Failure, NO_APPLET, USAGE, host, usage};
use holdfast_command::keys::{DEFAULT_KEY, key_for_new};
use holdfast_command::output::{quoted, say, with_progress};
use holdfast_command::size::show_size;

/// The command for an applet, without arguments and streams, and its heaps.
pub fn prepare(
    mut args: AppletArgs,
    arguments: Vec<String>,
) -> Result<(Command, Limits, Vec<Granted>), Failure> {
    check_arguments(&args)?;
    args.applet = remote::local(args.applet)?;
    if !args.applet.exists() {
        let path = args.applet.display();
        return Err(Failure::new(NO_APPLET, format!("there is no applet {path}; check the path")));
    }
    let places = Places::from_env().map_err(host);
    if places.as_ref().is_ok_and(Places::is_emulated) {
        say(format_args!(
            "the pool is emulated (HOLDFAST_EMULATE_DAX=1): commits at level system end with the machine"
        ));
    }
    let mut limits = Limits::default();
    limits.memory_bytes = args.memory;
    limits.compile_memory_bytes = args.compile_memory;
    limits.text_bytes = args.text_limit;
    limits.fuel = args.fuel;
    limits.cpu_time = args.cpu_time;
    limits.threads = args.threads;
    let mut grants = Grants::none();
    // Without a heap nothing has to be kept: a home that cannot be used costs the cache of compiled
    // programs only.
    if let Ok(places) = &places {
        grants = grants.cache_dir(places.cache());
    }
    for argument in arguments {
        grants = grants.arg(argument);
    }
    for variable in &args.env {
        let (name, value) = environment(variable)?;
        grants = grants.env(name, value);
    }
    let is_native = matches!(SandboxKind::of(&args.applet), Ok(SandboxKind::Native));
    for grant in &args.dirs {
        let mut grant = grant.clone();
        if !grant.host.is_dir() {
            let path = grant.host.display();
            return Err(usage(format!(
                "cannot grant {path}: there is no such directory; check the path after --dir"
            )));
        }
        if is_native {
            grant.guest = in_the_root(&grant.guest)?;
        }
        grants = grants.dir(grant);
    }
    let (mut heaps, mut examined) = (Vec::new(), None);
    if !args.heaps.is_empty() {
        let names = NameSpace::new(places?).with_medium(args.backing);
        let chosen = ChosenKey::of(&args, names.places())?;
        for heap in &args.heaps {
            check_heap(&names, heap, &args, is_native)?;
        }
        let keys = chosen.keys(&names, &args)?;
        (grants, heaps) = grant_heaps(grants, &names, &args, is_native, keys)?;
        examined = chosen.into_file();
    }
    let mut command = Command::new(args.applet, grants).strict(args.strict);
    if let Some(file) = examined {
        command = command.examined(file);
    }
    Ok((command, limits, heaps))
}

/// Refuses arguments that would have no effect beside the others, or another one than they say.
/// Nothing is looked up for that.
fn check_arguments(args: &AppletArgs) -> Result<(), Failure> {
    if let Some(worker) = &args.compartment {
        if args.heaps.len() > 1 {
            return Err(usage("--compartment is about one heap; grant one heap with it"));
        }
        if args.app.is_some() {
            return Err(usage(format!(
                "--app would do nothing: --compartment opens the heap with the key `{DEFAULT_KEY}` or the one after --key, \
                 whatever the applet is called; leave out --app"
            )));
        }
        if let Some(heap) = args.heaps.iter().find(|heap| heap.is_read_only) {
            return Err(usage(format!(
                "--heap {heap} grants reading only, and an applet writes to its compartment; leave out `:ro`, or \
                 --compartment {worker} to have the heap itself read"
            )));
        }
    }
    if args.compartments.is_some() && args.atomic {
        return Err(usage(
            "--atomic publishes the stores of all threads together, so they cannot have a compartment each; leave out \
             --atomic, or --compartments",
        ));
    }
    if let Some(option) = option_for_writing(args)
        && args.heaps.iter().all(|heap| heap.is_read_only)
    {
        return Err(usage(format!(
            "{option} is about heaps that the applet may write to, and each --heap grants reading only; leave out {option}, \
             or a `:ro`"
        )));
    }
    Ok(())
}

/// An option that has an effect only on heaps that the applet may write to.
fn option_for_writing(args: &AppletArgs) -> Option<&'static str> {
    let options = [("--reserve", args.reserve.is_some()), ("--atomic", args.atomic)];
    options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
}

/// Refuses such an option where no heap that was opened may be written to. [`check_arguments`] looks
/// at `:ro`; what a key may do shows only when it opens the heap.
fn check_writable(args: &AppletArgs, opened: &[(RegionName, Region)]) -> Result<(), Failure> {
    let Some(option) = option_for_writing(args) else { return Ok(()) };
    let by_key = args.heaps.iter().find(|heap| !heap.is_read_only);
    match by_key {
        Some(heap) if opened.iter().all(|(_, region)| region.is_read_only()) => {
            let name = &heap.heap;
            Err(usage(format!(
                "{option} is about heaps that the applet may write to, and its key may only read {name}; leave out {option}, \
                 or have the owner grant writing (`holdfast heap grant {name} --to KEY --rw`)"
            )))
        }
        _ => Ok(()),
    }
}

/// Opens the heaps. Where one cannot be opened, those before it are closed again, in order, and
/// those that were made for the run are removed.
fn grant_heaps(
    mut grants: Grants,
    names: &NameSpace,
    args: &AppletArgs,
    is_native: bool,
    keys: Vec<OwnerKey>,
) -> Result<(Grants, Vec<Granted>), Failure> {
    let (mut granted, mut opened) = (Vec::new(), Vec::new());
    if let Err(failure) = open_heaps(names, args, is_native, keys, &mut granted, &mut opened) {
        let failure = close_heaps(opened, failure);
        Granted::forget_all_made_now(granted);
        return Err(failure);
    }
    for (alias, region) in opened {
        grants = grants.heap_as(alias, region);
    }
    Ok((grants, granted))
}

/// Opens the heaps in turn, each with its name in the applet. After an error `opened` has those
/// that are to be closed, and `granted` those that were opened or made.
fn open_heaps(
    names: &NameSpace,
    args: &AppletArgs,
    is_native: bool,
    keys: Vec<OwnerKey>,
    granted: &mut Vec<Granted>,
    opened: &mut Vec<(RegionName, Region)>,
) -> Result<(), Failure> {
    for (heap, key) in args.heaps.iter().zip(keys) {
        let mut region = open_heap(names, heap, args, key, granted)?;
        let ready = make_ready(&mut region, args);
        let alias = heap.alias.clone().unwrap_or_else(|| region.name().clone());
        // It is to be closed, too, where it cannot be made ready.
        opened.push((alias, region));
        ready.map_err(host)?;
    }
    check_writable(args, opened)?;
    for number in 1..=args.compartments.unwrap_or_default() {
        let Some(parent) = granted.first() else { break };
        let (part, region) = parent.thread_compartment(number, args, is_native)?;
        granted.push(part);
        opened.push((region.name().clone(), region));
    }
    Ok(())
}

/// Closes the heaps of a run that is refused, in order. Left open, they would count as not closed
/// in order. Returns the failure, which says also which heap could not be closed.
fn close_heaps(opened: Vec<(RegionName, Region)>, mut failure: Failure) -> Failure {
    for (_, region) in opened {
        let name = region.name().clone();
        let closed = with_progress(&format!("writing {name} to the store"), || region.close());
        if let Err(error) = closed {
            let text = format!("; the heap {name} could not be closed in order: {error}");
            failure.message.push_str(&text);
        }
    }
    failure
}

/// What is wrong with a heap before its key is looked for: nothing is made then.
fn check_heap(
    names: &NameSpace,
    heap: &HeapRequest,
    args: &AppletArgs,
    is_native: bool,
) -> Result<(), Failure> {
    if args.compartments.is_some_and(|count| count > 1) && !is_native {
        return Err(usage(
            "a WebAssembly applet has one thread, and so one compartment: --compartments 1; start several applets, each with \
             --compartment WORKER",
        ));
    }
    let name = &heap.heap;
    // Only there the heap has to fit into an address space of 4 GiB.
    if !is_native {
        match &args.compartment {
            Some(worker) => {
                let part = name.compartment(worker).map_err(usage)?;
                check_size(names, &part, "--quota", args.quota)?;
            }
            None => check_size(names, name, "--heap-size", args.heap_size)?,
        }
    }
    if heap.is_read_only && is_new(names, name) {
        return Err(host(format!(
            "there is no heap {name} to read; leave out `:ro` to make it, or check the name (`holdfast heap ls`)"
        )));
    }
    Ok(())
}

/// Opens a heap and notes it in `granted`, which also has what was made before an error.
fn open_heap(
    names: &NameSpace,
    heap: &HeapRequest,
    args: &AppletArgs,
    key: OwnerKey,
    granted: &mut Vec<Granted>,
) -> Result<Region, Failure> {
    let (names, name) = (names.clone(), heap.heap.clone());
    let (opened, region) = match &args.compartment {
        Some(worker) => Granted::compartment(names, &name, worker, key, args, granted)?,
        None if heap.is_read_only => Granted::open_to_read(names, name, key)?,
        None => Granted::open(names, name, key, args.heap_size)?,
    };
    granted.push(opened);
    Ok(region)
}

/// Makes the room and chooses the mode that were asked for. An applet that may only read uses no
/// room and has nothing to publish.
fn make_ready(region: &mut Region, args: &AppletArgs) -> Result<(), RegionError> {
    if region.is_read_only() {
        return Ok(());
    }
    if let Some(bytes) = args.reserve {
        // In all, and not on top of what there is: the same command again must not fill the pool.
        region.grow(bytes)?;
    }
    if args.atomic {
        region.set_consistency(Consistency::Atomic)?;
    }
    Ok(())
}

/// Where a native program finds a directory: it begins in its root, so that a relative path is one
/// from there.
fn in_the_root(guest: &str) -> Result<String, Failure> {
    let path = Path::new(guest);
    if path.is_absolute() {
        return Ok(guest.to_owned());
    }
    let mut found = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => found.push(name),
            Component::CurDir => {}
            _ => found.clear(),
        }
    }
    if found.file_name().is_none() || !found.is_absolute() {
        return Err(usage(format!(
            "a native applet cannot have a directory under the path {guest}; give it a name after --dir, such as \
             {guest}::/data"
        )));
    }
    Ok(found.to_string_lossy().into_owned())
}

/// Where a heap of this run comes from, and so whether the run removes it when it fails.
#[derive(Clone, Copy)]
enum Origin {
    /// It was there before.
    Found,
    /// This run made it, and has had it open since.
    Made,
    /// This run made it for a compartment and closed it: other programs may use it by now.
    MadeForCompartment,
}

/// The heap of an applet, for what has to be done when it fails.
pub struct Granted {
    names: NameSpace,
    name: RegionName,
    key: OwnerKey,
    origin: Origin,
}

impl Granted {
    fn open(
        names: NameSpace,
        name: RegionName,
        key: OwnerKey,
        limit_bytes: u64,
    ) -> Result<(Granted, Region), Failure> {
        let region =
            with_progress(&format!("opening {name}"), || match names.access(&name, &key) {
                Ok(access) if !access.may_write() => names.open_read_only(&name, &key),
                // Whatever else there is to say is said by the opening.
                _ => names.open_or_create(&name, &key, limit_bytes),
            });
        Ok(Granted::with(names, name, key, region.map_err(host)?))
    }

    fn open_to_read(
        names: NameSpace,
        name: RegionName,
        key: OwnerKey,
    ) -> Result<(Granted, Region), Failure> {
        let region =
            with_progress(&format!("opening {name}"), || names.open_read_only(&name, &key));
        Ok(Granted::with(names, name, key, region.map_err(host)?))
    }

    /// The compartment of a worker, below a heap that is made if there is none. That heap is in
    /// `granted` then, also after an error.
    fn compartment(
        names: NameSpace,
        parent: &RegionName,
        worker: &RegionName,
        key: OwnerKey,
        args: &AppletArgs,
        granted: &mut Vec<Granted>,
    ) -> Result<(Granted, Region), Failure> {
        let open = || names.open_compartment(parent, worker, &key, args.quota);
        let region = match with_progress(&format!("opening {worker} of {parent}"), open) {
            Err(RegionError::NotFound { .. }) => {
                match names.create(parent, &key, args.heap_size) {
                    Ok(made) => {
                        granted.push(Granted {
                            names: names.clone(),
                            name: parent.clone(),
                            key: key.clone(),
                            origin: Origin::MadeForCompartment,
                        });
                        made.close().map_err(host)?;
                    }
                    // Another worker made it.
                    Err(RegionError::AlreadyExists { .. }) => {}
                    Err(error @ RegionError::LimitOutOfRange { .. }) => return Err(error.into()),
                    Err(error) => return Err(host(error)),
                }
                open()
            }
            other => other,
        };
        let name = parent.compartment(worker).map_err(host)?;
        Ok(Granted::with(names, name, key, region.map_err(host)?))
    }

    /// The compartment of a thread of the applet, below this heap.
    fn thread_compartment(
        &self,
        number: u32,
        args: &AppletArgs,
        is_native: bool,
    ) -> Result<(Granted, Region), Failure> {
        let worker = thread_name(number).map_err(host)?;
        let name = self.name.compartment(&worker).map_err(usage)?;
        if !is_native {
            check_size(&self.names, &name, "--quota", args.quota)?;
        }
        let open = || self.names.open_compartment(&self.name, &worker, &self.key, args.quota);
        let region = with_progress(&format!("opening {name}"), open).map_err(host)?;
        Ok(Granted::with(self.names.clone(), name, self.key.clone(), region))
    }

    /// Compartments before the heap that they are of.
    pub fn forget_all_made_now(granted: Vec<Granted>) {
        granted.into_iter().rev().for_each(Granted::forget_if_made_now);
    }

    fn with(
        names: NameSpace,
        name: RegionName,
        key: OwnerKey,
        region: Region,
    ) -> (Granted, Region) {
        let origin = match region.opened() {
            Opened::Created => Origin::Made,
            _ => Origin::Found,
        };
        (Granted { names, name, key, origin }, region)
    }

    /// A program that was never started leaves no empty heap behind.
    fn forget_if_made_now(self) {
        let is_disposable = match self.origin {
            Origin::Found => false,
            Origin::Made => true,
            Origin::MadeForCompartment => self.is_unused(),
        };
        if is_disposable && let Err(error) = self.names.remove(&self.name, &self.key) {
            say(format_args!("the new heap {} could not be removed again: {error}", self.name));
        }
    }

    /// Whether the heap has no compartment and nothing was stored in it. One that cannot be read
    /// now counts as used: another program may have it open.
    fn is_unused(&self) -> bool {
        let is_empty = |reader: RegionReader| {
            reader.bytes().iter().all(|byte| *byte == 0) && !reader.lost_backing()
        };
        self.names.compartments(&self.name).is_ok_and(|compartments| compartments.is_empty())
            && self.names.open_read(&self.name).is_ok_and(is_empty)
    }
}

/// How the key of each heap is chosen.
enum ChosenKey {
    /// The user named it; what may be started, if that is a file.
    Named(String, Option<Box<AppletFile>>),
    /// It follows from who the applet is.
    Own(Box<Applet>),
}

impl ChosenKey {
    /// Compartments are the host's: it tells the workers apart, whichever applets they run.
    fn of(args: &AppletArgs, places: &Places) -> Result<ChosenKey, Failure> {
        let named = match &args.key {
            Some(key) => key.as_str(),
            None if args.compartment.is_some() => DEFAULT_KEY,
            None => {
                let applet = Applet::identify(&args.applet, args.app.as_ref(), places)?;
                return Ok(ChosenKey::Own(Box::new(applet)));
            }
        };
        Ok(ChosenKey::Named(named.to_owned(), examine(&args.applet)?.map(Box::new)))
    }

    /// The key of each heap, in their order. Only an applet that may use all of them makes its
    /// publisher known.
    fn keys(&self, names: &NameSpace, args: &AppletArgs) -> Result<Vec<OwnerKey>, Failure> {
        let applet = match self {
            ChosenKey::Named(key_name, _) => {
                return args.heaps.iter().map(|heap| key(names, key_name, &heap.heap)).collect();
            }
            ChosenKey::Own(applet) => applet,
        };
        let found: Vec<_> = args
            .heaps
            .iter()
            .map(|heap| key_for(names, &heap.heap, &applet.identity).map_err(host))
            .collect::<Result<_, _>>()?;
        applet.meet(names.places())?;
        for (heap, found) in args.heaps.iter().zip(&found) {
            if found.source() == KeySource::Legacy {
                say(format_args!(
                    "heap {0} is one of the key `{LEGACY_KEY}`, which every applet may use; `{1}` hands it over to this \
                     one alone",
                    heap.heap,
                    adopting(&heap.heap, applet, &args.applet)
                ));
            }
        }
        Ok(found.iter().map(|found| found.key().clone()).collect())
    }

    /// What may be started with these keys.
    fn into_file(self) -> Option<AppletFile> {
        match self {
            ChosenKey::Named(_, file) => file.map(|file| *file),
            ChosenKey::Own(applet) => Some(applet.file),
        }
    }
}

/// The command that hands a heap over to this applet, under the name that it has here.
fn adopting(heap: &RegionName, applet: &Applet, path: &Path) -> String {
    let mut command = format!("holdfast heap adopt {heap} --by {}", quoted(path));
    if let Identity::Named(name) = &applet.identity {
        command.push_str(&format!(" --app {}", quoted(Path::new(name.as_str()))));
    }
    command
}

/// The key that the user named. Only with a new heap one is made; a user that mistypes the name of
/// a key gets none.
fn key(names: &NameSpace, key_name: &str, heap: &RegionName) -> Result<OwnerKey, Failure> {
    let key = if is_new(names, heap) {
        key_for_new(names, key_name)
    } else {
        OwnerKey::load_existing(names.places(), key_name)
    };
    key.map_err(|error| match error {
        KeyError::Name(_) => error.into(),
        KeyError::Missing { .. } => host(format!(
            "{error}; a key that is to use this heap is made by its owner: `holdfast heap grant {heap} --to KEY`"
        )),
        _ => host(error),
    })
}

/// Whether a run would make this heap.
fn is_new(names: &NameSpace, name: &RegionName) -> bool {
    matches!(names.summary(name), Err(RegionError::NotFound { .. }))
}

/// Asked before a heap is made: one that no applet can use would stay behind.
fn check_size(
    names: &NameSpace,
    name: &RegionName,
    option: &str,
    asked_bytes: u64,
) -> Result<(), Failure> {
    if asked_bytes <= MAX_HEAP_LIMIT_BYTES || !is_new(names, name) {
        return Ok(());
    }
    let message = format!(
        "{option} is {} and a WebAssembly applet can use a heap of {} MiB at most; choose a smaller size (`holdfast heap \
         limit NAME SIZE` raises it later)",
        show_size(asked_bytes),
        MAX_HEAP_LIMIT_BYTES >> 20
    );
    Err(Failure::new(USAGE, message))
}

/// `NAME=VALUE`, or `NAME` with the value that this process has.
fn environment(variable: &str) -> Result<(String, String), Failure> {
    if let Some((name, value)) = variable.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    let value = std::env::var(variable).map_err(|_| {
        let message = format!(
            "the environment has no variable {variable} to pass through; write --env {variable}=VALUE"
        );
        Failure::new(USAGE, message)
    })?;
    Ok((variable.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use holdfast_command::exit::HOST_FAILED;
    use holdfast_native_heap::open_heap;
    use holdfast_region::{Grant, KeyFingerprint, Rights};
    use tempfile::TempDir;

    use super::*;
    use crate::args::{self, Cli};

    fn name_space(scratch: &TempDir) -> NameSpace {
        let (home, pool) = (scratch.path().join("home"), scratch.path().join("pool"));
        NameSpace::new(Places::at(home, pool).unwrap())
    }

    /// The arguments of `holdfast run` with these options.
    fn arguments(options: &[&str]) -> AppletArgs {
        let words = ["holdfast", "run", "a.wasm"].iter().chain(options).copied();
        let cli = Cli::try_parse_from(words).unwrap();
        let args::Command::Run(run) = cli.command else { panic!("not a run") };
        run.applet
    }

    /// What would have no effect, or another one than it says, is refused before anything is looked
    /// up; the error says what to leave out.
    #[test]
    fn arguments_that_would_be_ignored_are_refused() {
        let refused: [(&[&str], &str); 7] = [
            (&["--heap", "a", "--compartment", "w", "--app", "notes"], "leave out --app"),
            (&["--heap", "a", "--heap", "b", "--compartment", "w"], "grant one heap"),
            (&["--heap", "n=a:ro", "--compartment", "w"], "--heap n=a:ro grants reading only"),
            (&["--heap", "a", "--compartments", "1", "--atomic"], "leave out --atomic"),
            (&["--heap", "a:ro", "--reserve", "8MiB"], "leave out --reserve"),
            (&["--heap", "a:ro", "--compartments", "1", "--reserve", "8MiB"], "out --reserve"),
            (&["--heap", "a:ro", "--heap", "b:ro", "--atomic"], "leave out --atomic"),
        ];
        for (options, hint) in refused {
            let Err(failure) = prepare(arguments(options), Vec::new()) else {
                panic!("{options:?}")
            };
            assert_eq!(failure.code, USAGE, "{options:?}: {}", failure.message);
            assert!(failure.message.contains(hint), "{options:?}: {}", failure.message);
        }
        let taken: [&[&str]; 5] = [
            &["--heap", "a", "--app", "notes"],
            &["--heap", "a", "--compartment", "w", "--key", "mine", "--atomic"],
            &["--heap", "a:ro"],
            &["--heap", "a:ro", "--compartments", "1"],
            &["--heap", "a:ro", "--heap", "b", "--reserve", "8MiB", "--atomic"],
        ];
        for options in taken {
            assert!(check_arguments(&arguments(options)).is_ok(), "{options:?}");
        }
    }

    /// A run that is refused at a later heap closes those before it in order, and removes the one
    /// that it made.
    #[test]
    fn refused_run_closes_the_heaps_before() {
        let scratch = tempfile::tempdir().unwrap();
        let names = name_space(&scratch);
        let key = OwnerKey::from_bytes([1; 32]);
        let [first, made, busy] =
            ["first", "made", "busy"].map(|name| RegionName::parse(name).unwrap());
        for name in [&first, &busy] {
            names.create(name, &key, 16 << 20).unwrap().close().unwrap();
        }
        let _holder = names.open(&busy, &key).unwrap();
        let heaps = ["--heap", "first", "--heap", "made", "--heap", "busy"];
        let args = arguments(&[&heaps[..], &["--reserve", "8MiB"]].concat());
        let keys = vec![key.clone(); 3];
        let Err(failure) = grant_heaps(Grants::none(), &names, &args, false, keys) else {
            panic!("the last heap is held")
        };
        assert_eq!(failure.code, HOST_FAILED, "{}", failure.message);
        assert!(failure.message.contains("busy"), "{}", failure.message);
        assert!(!failure.message.contains("could not be closed"), "{}", failure.message);
        assert!(is_new(&names, &made));
        let first = names.open(&first, &key).unwrap();
        assert_eq!((first.opened(), first.backed_bytes()), (Opened::Warm, 8 << 20));
    }

    /// What a key that may only read makes of an option is refused as with `:ro`, unless there is
    /// another heap that the option is about.
    #[test]
    fn options_for_writing_need_a_key_that_may_write() {
        let scratch = tempfile::tempdir().unwrap();
        let names = name_space(&scratch);
        let [owner, reader] = [1, 2].map(|byte| OwnerKey::from_bytes([byte; 32]));
        let [shared, own] = ["shared", "own"].map(|name| RegionName::parse(name).unwrap());
        names.create(&shared, &owner, 16 << 20).unwrap().close().unwrap();
        let fingerprint = KeyFingerprint::from_bytes(reader.fingerprint());
        names.grant(&shared, &owner, Grant::new(fingerprint, None, Rights::Read)).unwrap();
        let both = ["--heap", "shared", "--heap", "own"];
        for option in [&["--atomic"][..], &["--reserve", "8MiB"]] {
            let args = arguments(&[&["--heap", "shared"][..], option].concat());
            let keys = vec![reader.clone()];
            let Err(failure) = grant_heaps(Grants::none(), &names, &args, false, keys) else {
                panic!("{option:?}")
            };
            assert_eq!(failure.code, USAGE, "{option:?}: {}", failure.message);
            let leave_out = format!("leave out {}", option[0]);
            for words in [leave_out.as_str(), "heap grant shared --to KEY --rw"] {
                assert!(failure.message.contains(words), "{option:?}: {}", failure.message);
            }
            // The reader let it go.
            names.open(&shared, &owner).unwrap().close().unwrap();
            let args = arguments(&[&both[..], option].concat());
            let keys = vec![reader.clone(); 2];
            assert!(grant_heaps(Grants::none(), &names, &args, false, keys).is_ok(), "{option:?}");
            names.remove(&own, &reader).unwrap();
        }
        let args = arguments(&["--heap", "shared"]);
        assert!(grant_heaps(Grants::none(), &names, &args, false, vec![reader]).is_ok());
    }

    /// If closing a heap fails, the error names it beside the reason of the refusal, and the
    /// remaining heaps are still closed.
    #[test]
    fn heap_that_cannot_be_closed_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let names = name_space(&scratch);
        let key = OwnerKey::from_bytes([1; 32]);
        let [first, second] = ["first", "second"].map(|name| RegionName::parse(name).unwrap());
        let mut opened = Vec::new();
        for name in [&first, &second] {
            names.create(name, &key, 16 << 20).unwrap().close().unwrap();
            opened.push((name.clone(), names.open(name, &key).unwrap()));
        }
        let image = names.summary(&first).unwrap().image.unwrap().path;
        std::fs::OpenOptions::new().write(true).open(image).unwrap().set_len(0).unwrap();
        let failure = close_heaps(opened, usage("refused"));
        assert_eq!(failure.code, USAGE);
        let start = "refused; the heap first could not be closed in order: ";
        assert!(failure.message.starts_with(start), "{}", failure.message);
        assert!(!failure.message.contains("second"), "{}", failure.message);
        assert_eq!(names.open(&second, &key).unwrap().opened(), Opened::Warm);
    }

    /// A run that fails takes the heap along that it made for a compartment, unless another program
    /// has it open, has a compartment in it, or stored something in it.
    ///
    /// Guarantee: heap/compartments
    #[test]
    fn heap_that_others_use_by_now_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let names = name_space(&scratch);
        let key = OwnerKey::from_bytes([1; 32]);
        let made: Vec<Granted> = ["idle", "open", "parent", "filled"]
            .into_iter()
            .map(|name| {
                let name = RegionName::parse(name).unwrap();
                names.create(&name, &key, 16 << 20).unwrap().close().unwrap();
                let (names, key, origin) = (names.clone(), key.clone(), Origin::MadeForCompartment);
                Granted { names, name, key, origin }
            })
            .collect();
        let _held = names.open(&made[1].name, &key).unwrap();
        let worker = RegionName::parse("worker").unwrap();
        names.open_compartment(&made[2].name, &worker, &key, 4 << 20).unwrap().close().unwrap();
        let (mut heap, region) = open_heap(names.open(&made[3].name, &key).unwrap()).unwrap();
        heap.create_root("object", 100).unwrap();
        drop(heap.close());
        region.close().unwrap();
        Granted::forget_all_made_now(made);
        let left: Vec<_> =
            names.list().unwrap().into_iter().map(|heap| heap.name.to_string()).collect();
        assert_eq!(left, ["filled", "open", "parent", "parent+worker"]);
    }
}
