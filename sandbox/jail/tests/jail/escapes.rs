//! Ways out (X4): each is tried under every single layer that claims to stop it, under all of them,
//! and, as the canary, under none, where it must work: a test that does not notice the layer's
//! absence proves nothing.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use holdfast_jail::{End, Jail, Layer, Layers, PathAccess, PathGrant, Policy};

use crate::victims::{Bystander, WORKED, end, is_root, jail, refused};

/// One way out.
struct Escape<'a> {
    /// What the victim does.
    words: &'a [&'a str],
    /// Layers of which each one alone stops it, with the error that it then gets.
    stopped_by: &'a [(Layer, i32)],
    /// Layers without which it must not be tried: they keep the attempt from harming this machine.
    always: Layers,
    /// The call that the policy forbids, or the error that the program gets instead.
    policy: Result<&'a str, i32>,
}

impl Escape<'_> {
    fn try_it(&self) {
        let alone = |layers: Layers| end(jail(self.words).policy(Policy::open()).layers(layers));
        let what = self.words;
        // The canary.
        assert_eq!(alone(self.always), WORKED, "{what:?} under no layer");
        for (layer, errno) in self.stopped_by {
            let layers = self.always.with(*layer);
            assert_eq!(alone(layers), refused(*errno), "{what:?} under the layer {layer}");
        }
        for layers in [Layers::none(), Layers::default()] {
            let found = end(jail(self.words).layers(layers));
            match self.policy {
                Ok(name) => assert!(
                    matches!(&found, End::Violation(violation) if violation.name == name),
                    "{what:?} under the policy: {found}"
                ),
                Err(errno) => assert_eq!(found, refused(errno), "{what:?} under the policy"),
            }
        }
    }
}

const NONE: &[(Layer, i32)] = &[];

/// Layers that stop what an ordinary user could do anyway, or also what only root could.
fn with_root<'a>(
    always: &[(Layer, i32)],
    as_root: &[(Layer, i32)],
    room: &'a mut Vec<(Layer, i32)>,
) -> &'a [(Layer, i32)] {
    room.extend_from_slice(always);
    if is_root() {
        room.extend_from_slice(as_root);
    }
    room
}

/// Guarantee: sandbox/other-processes
#[test]
fn other_processes_cannot_be_traced_signalled_or_read() {
    let bystander = Bystander::start();
    let pid = bystander.pid();
    for (action, call) in
        [("ptrace", "ptrace"), ("kill", "kill"), ("read others' memory", "process_vm_readv")]
    {
        let mut room = Vec::new();
        let always = [(Layer::Processes, libc::ESRCH), (Layer::Landlock, libc::EPERM)];
        let stopped_by = with_root(&always, &[(Layer::Unprivileged, libc::EPERM)], &mut room);
        // As an ordinary user the two are equals, unless the kernel lets only parents trace.
        let yama =
            std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        if !is_root() && action != "kill" && !matches!(yama.trim(), "" | "0") {
            println!("not run: ptrace_scope lets no program trace another");
            continue;
        }
        let words: &[&str] = &[action, &pid];
        Escape { words, stopped_by, always: Layers::none(), policy: Ok(call) }.try_it();
    }
}

/// Guarantee: sandbox/other-processes
#[test]
fn the_host_cannot_be_signalled() {
    let pid = std::process::id().to_string();
    let mut room = Vec::new();
    let stopped_by = with_root(
        &[(Layer::Processes, libc::ESRCH), (Layer::Landlock, libc::EPERM)],
        &[(Layer::Unprivileged, libc::EPERM)],
        &mut room,
    );
    Escape { words: &["kill", &pid], stopped_by, always: Layers::none(), policy: Ok("kill") }
        .try_it();
}

/// A sandboxed program cannot create namespaces, mounts or BPF programs.
///
/// Guarantee: sandbox/privileges
#[test]
fn namespaces_mounts_and_bpf_are_denied() {
    let always = Layers::none();
    Escape { words: &["user name space"], stopped_by: NONE, always, policy: Ok("unshare") }
        .try_it();
    let found = end(jail(&["mount"]));
    assert!(matches!(&found, End::Violation(violation) if violation.name == "mount"), "{found}");
    if is_root() {
        // An ordinary user has no capabilities to lose: the exec takes them.
        // Within a mount name space of its own, so that this machine's mounts are safe.
        let always = Layers::none().with(Layer::Mounts);
        let stopped_by = [(Layer::Capabilities, libc::EPERM), (Layer::Landlock, libc::EPERM)];
        Escape { words: &["mount"], stopped_by: &stopped_by, always, policy: Ok("mount") }.try_it();
        // An ordinary user's would have to be locked memory, of which there is none.
        Escape {
            words: &["io_uring"],
            stopped_by: NONE,
            always: Layers::none(),
            policy: Err(libc::ENOSYS),
        }
        .try_it();
        let stopped_by = [(Layer::Capabilities, libc::EPERM), (Layer::Unprivileged, libc::EPERM)];
        Escape {
            words: &["bpf"],
            stopped_by: &stopped_by,
            always: Layers::none(),
            policy: Ok("bpf"),
        }
        .try_it();
    }
}

/// A sandboxed program cannot create code in memory or start another program.
///
/// Guarantee: sandbox/forbidden-calls
#[test]
fn executable_memory_and_exec_are_denied() {
    let always = Layers::none();
    let words = &["memory file"];
    Escape { words, stopped_by: NONE, always, policy: Err(libc::ENOSYS) }.try_it();
    // What is mapped while loading may be code; once sealed, nothing becomes code any more.
    assert_eq!(end(jail(&["run from memory"])), WORKED, "the canary");
    let sealed = jail(&["run from memory"]).spawn().unwrap();
    sealed.seal().unwrap();
    let found = crate::victims::finish(&sealed);
    assert!(matches!(&found, End::Violation(violation) if violation.name == "mprotect"), "{found}");
    let end = end(jail(&["exec"]));
    assert!(matches!(&end, End::Violation(violation) if violation.name == "execve"), "{end}");
}

/// Guarantee: sandbox/privileges
#[test]
fn the_start_of_the_program_is_allowed_once() {
    // The very call that the host let pass: execveat of descriptor 3 with AT_EMPTY_PATH.
    for policy in [Policy::default(), Policy::open()] {
        let again = jail(&["call", "322", "3", "0", "0", "0", "4096"]).policy(policy);
        let end = end(again);
        assert!(matches!(&end, End::Violation(found) if found.reason.contains("once")), "{end}");
    }
}

/// Guarantee: sandbox/privileges
#[test]
fn set_user_programs_raise_nothing() {
    // Never optional. Without it the program would end with its own error; here it cannot be
    // started with rights.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if !status.contains("NoNewPrivs:\t0") {
        println!("not run: the host has no privileges to lose");
        return;
    }
    let jailed = jail(&["waits"]).policy(Policy::open()).layers(Layers::none()).spawn().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", jailed.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
}

/// Guarantee: sandbox/privileges
#[test]
fn all_capabilities_are_gone_for_good() {
    let status = |layers: Layers| {
        let jailed = jail(&["waits"]).layers(layers).spawn().unwrap();
        std::fs::read_to_string(format!("/proc/{}/status", jailed.pid())).unwrap()
    };
    let none = |text: &str, names: &[&str]| {
        names.iter().all(|name| text.contains(&format!("{name}:\t0000000000000000")))
    };
    let confined = status(Layers::default());
    assert!(none(&confined, &["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]), "{confined}");
    // The canary.
    let loose = status(Layers::default().without(Layer::Capabilities));
    assert!(!none(&loose, &["CapBnd"]), "{loose}");
    if is_root() {
        assert!(confined.contains("Uid:\t65534\t65534\t65534\t65534"), "{confined}");
        let kept = status(Layers::default().without(Layer::Unprivileged));
        assert!(kept.contains("Uid:\t0\t0\t0\t0"), "{kept}");
    }
}

/// Guarantee: sandbox/granted-directories
#[test]
fn files_outside_cannot_be_read_or_written() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let path = secret.to_str().unwrap();
    let by_both = [(Layer::Mounts, libc::ENOENT), (Layer::Landlock, libc::EACCES)];

    // While loading, the policy leaves paths that are read to the other layers.
    let alone = |words: &[&str], layers| end(jail(words).layers(layers));
    assert_eq!(alone(&["read", path], Layers::none()), WORKED, "the canary");
    for (layer, errno) in by_both {
        assert_eq!(alone(&["read", path], Layers::none().with(layer)), refused(errno), "{layer}");
    }
    assert_eq!(alone(&["read", path], Layers::default()), refused(libc::ENOENT));

    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let always = Layers::none();
    let mut room = Vec::new();
    let stopped_by = with_root(&by_both, &[(Layer::Unprivileged, libc::EACCES)], &mut room);
    Escape { words: &["write", path], stopped_by, always, policy: Err(libc::EACCES) }.try_it();
    let own = [(Layer::Mounts, libc::ENOENT), (Layer::Landlock, libc::EACCES)];
    let words = &["own memory file"];
    Escape { words, stopped_by: &own, always, policy: Err(libc::EACCES) }.try_it();
}

/// Guarantee: sandbox/descriptors
/// Guarantee: sandbox/ordinary-programs
/// Guarantee: sandbox/other-processes
#[test]
fn of_all_devices_a_program_has_two_that_tell_nothing() {
    let alone = |words: &[&str], layers| end(jail(words).layers(layers));
    for layer in [Layer::Mounts, Layer::Landlock] {
        let layers = Layers::none().with(layer);
        for device in ["/dev/null", "/dev/urandom"] {
            assert_eq!(alone(&["read", device], layers), WORKED, "{device} {layer}");
        }
        assert_ne!(alone(&["read", "/dev/zero"], layers), WORKED, "{layer}");
    }
    assert_eq!(alone(&["read", "/dev/zero"], Layers::none()), WORKED, "the canary");
    // A device in a granted directory stays none.
    let directory = tempfile::tempdir().unwrap();
    let granted = |words: &[&str]| {
        let (host, guest) = (directory.path().to_owned(), directory.path().to_owned());
        end(jail(words).path(PathGrant { host, guest, access: PathAccess::ReadWrite }))
    };
    assert_eq!(granted(&["write", "/dev/null"]), WORKED);
    assert_eq!(granted(&["write", "/dev/urandom"]), refused(libc::EACCES));
    let device = directory.path().join("null");
    let made = std::process::Command::new("mknod").arg(&device).args(["c", "1", "3"]).status();
    if made.is_ok_and(|status| status.success()) {
        assert_eq!(granted(&["read", device.to_str().unwrap()]), refused(libc::EACCES));
    }
}

const NULL_FLAGS: [i32; 5] = [
    libc::O_RDONLY,
    libc::O_WRONLY,
    libc::O_RDWR | libc::O_CLOEXEC,
    libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
    libc::O_WRONLY | libc::O_APPEND,
];

/// Shells, git and Java open it for writing, and end where they cannot.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn dev_null_is_there_to_read_and_write() {
    let only = |layer| Layers::none().with(layer);
    for layers in [Layers::none(), only(Layer::Mounts), only(Layer::Landlock), Layers::default()] {
        for flags in NULL_FLAGS {
            let words = ["null", &flags.to_string()];
            assert_eq!(end(jail(&words).layers(layers)), WORKED, "{flags:#x} {layers:?}");
        }
    }
    for flags in NULL_FLAGS {
        let jailed = jail(&["sealed, null", &flags.to_string()]).spawn().unwrap();
        jailed.seal().unwrap();
        assert_eq!(crate::victims::finish(&jailed), WORKED, "{flags:#x}, sealed");
        let directory = tempfile::tempdir().unwrap();
        let (host, guest) = (directory.path().to_owned(), directory.path().to_owned());
        let granted = jail(&["null", &flags.to_string()]).path(PathGrant {
            host,
            guest,
            access: PathAccess::ReadWrite,
        });
        assert_eq!(end(granted), WORKED, "{flags:#x}, with a directory");
    }
    // As the kernel answers for a device that is there.
    for (flags, errno) in [
        (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, libc::EEXIST),
        (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_WRONLY, libc::ENOTDIR),
    ] {
        assert_eq!(end(jail(&["null", &flags.to_string()])), refused(errno), "{flags:#x}");
    }
    // It has as many files as it may have.
    let few = holdfast_jail::JailLimits { open_files: 5, ..Default::default() };
    let limited = end(jail(&["open for ever", "/dev/null"]).layers(Layers::none()).limits(few));
    assert_eq!(limited, refused(libc::EMFILE));
}

/// Guarantee: sandbox/ordinary-programs
#[test]
fn no_other_path_is_taken_for_dev_null() {
    for path in [
        "/dev/zero",
        "/dev/full",
        "/dev/null/",
        "/dev//null",
        "/dev/nul",
        "/dev/nulla",
        "dev/null",
        "",
    ] {
        assert_eq!(end(jail(&["write", path])), refused(libc::EACCES), "{path:?}");
    }
    // Up to the last byte of its memory: all of the path, or a part of it.
    assert_eq!(end(jail(&["write at the end of memory", "10"])), WORKED);
    for bytes in ["9", "1"] {
        assert_eq!(end(jail(&["write at the end of memory", bytes])), refused(libc::EACCES));
    }
    // The host looks at a copy and opens the device itself, so a path that changes meanwhile gains
    // nothing.
    let racer = |policy, times: &str| {
        end(jail(&["race null", "/dev/zero", times]).layers(Layers::none()).policy(policy))
    };
    assert_eq!(racer(Policy::default(), "3000"), refused(libc::ENOENT));
    assert_eq!(racer(Policy::open(), "10000000"), WORKED, "the canary");
}

/// A signal to itself ends a program, but is ignored by the first process of a PID namespace.
///
/// Guarantee: sandbox/descriptors
/// Guarantee: sandbox/ordinary-programs
/// Guarantee: sandbox/other-processes
#[test]
fn self_signal_depends_on_the_pid_namespace() {
    let signal = |signal, name| End::Signal { signal, name };
    let alone = |layers| end(jail(&["kill itself"]).layers(layers));
    assert_eq!(alone(Layers::none()), signal(libc::SIGTERM, "SIGTERM"));
    // The first process of a name space gets no signal that it does not handle.
    assert_eq!(alone(Layers::none().with(Layer::Processes)), WORKED);
}

/// Guarantee: sandbox/no-network
#[test]
fn nobody_outside_can_be_connected_to() {
    let always = Layers::none();
    // A lasting error: after a passing one programs try again for ever.
    let policy = Err(libc::EACCES);

    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let stopped_by = [(Layer::Network, libc::ENETUNREACH), (Layer::Landlock, libc::EACCES)];
    Escape { words: &["connect to a port", &port], stopped_by: &stopped_by, always, policy }
        .try_it();

    let name = format!("holdfast-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let stopped_by = [(Layer::Network, libc::ECONNREFUSED), (Layer::Landlock, libc::EPERM)];
    Escape { words: &["connect to a name", &name], stopped_by: &stopped_by, always, policy }
        .try_it();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _bound = UnixListener::bind(&path).unwrap();
    let stopped_by = [(Layer::Mounts, libc::ENOENT)];
    let words = &["connect to a path", path.to_str().unwrap()];
    Escape { words, stopped_by: &stopped_by, always, policy }.try_it();

    let policy = Ok("sendmsg");
    Escape { words: &["pass a descriptor"], stopped_by: NONE, always, policy }.try_it();
}

/// Guarantee: sandbox/other-processes
#[test]
fn shared_memory_of_system_v_cannot_be_attached() {
    let segment = Segment::new();
    let key = segment.key.to_string();
    let stopped_by = [(Layer::Ipc, libc::ENOENT)];
    let words = &["attach shared memory", &key];
    Escape { words, stopped_by: &stopped_by, always: Layers::none(), policy: Err(libc::ENOSYS) }
        .try_it();
}

/// A segment of System V shared memory, removed with this value.
struct Segment {
    key: u32,
}

impl Segment {
    fn command(words: &[&str]) -> String {
        let output = std::process::Command::new(words[0]).args(&words[1..]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn new() -> Segment {
        let made = Segment::command(&["ipcmk", "-M", "4096", "-p", "0666"]);
        let id = made.split_whitespace().last().unwrap().to_owned();
        let listed = Segment::command(&["ipcs", "-m"]);
        let line = listed.lines().find(|line| line.split_whitespace().nth(1) == Some(&id)).unwrap();
        let key = line.split_whitespace().next().unwrap().trim_start_matches("0x");
        Segment { key: u32::from_str_radix(key, 16).unwrap() }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        Segment::command(&["ipcrm", "-M", &format!("{:#x}", self.key)]);
    }
}

/// Guarantee: sandbox/no-terminal
#[test]
fn nothing_can_be_typed_into_a_terminal() {
    let end = end(jail(&["type into the terminal", "0"]));
    assert!(matches!(&end, End::Violation(violation) if violation.name == "ioctl"), "{end}");
    // Out of the session, there is no terminal, whatever else fails.
    let found = crate::victims::end(
        jail(&["type into the terminal", "0"]).policy(Policy::open()).layers(Layers::none()),
    );
    assert_eq!(found, refused(libc::ENOTTY));
    let found = crate::victims::end(
        jail(&["open the terminal"]).policy(Policy::open()).layers(Layers::none()),
    );
    assert_eq!(found, refused(libc::ENXIO));
}

/// Guarantee: sandbox/descriptors
#[test]
fn a_descriptor_that_the_host_forgot_does_not_leak() {
    let file = tempfile::tempfile().unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    assert!(file.as_raw_fd() > 2);
    for layers in [Layers::none(), Layers::default()] {
        assert_eq!(end(jail(&["find descriptors"]).layers(layers)), refused(libc::EBADF));
    }
}

/// Links in a granted directory lead nowhere outside it, even in a race.
///
/// Guarantee: sandbox/granted-directories
#[test]
fn links_cannot_leave_a_granted_directory() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let granted = tempfile::tempdir().unwrap();
    std::fs::write(granted.path().join("plain"), "open").unwrap();
    std::os::unix::fs::symlink(&secret, granted.path().join("link")).unwrap();
    let (target, scratch) = (granted.path().join("target"), granted.path().join("scratch"));
    let swap = |from: &str| {
        let _ = std::fs::remove_file(&scratch);
        match from {
            "link" => std::os::unix::fs::symlink(&secret, &scratch).unwrap(),
            _ => drop(std::fs::copy(granted.path().join("plain"), &scratch).unwrap()),
        }
        std::fs::rename(&scratch, &target).unwrap();
    };
    let race = |policy: Policy, layers: Layers| {
        swap("plain");
        let (host, guest) = (granted.path().to_owned(), granted.path().to_owned());
        let grant = PathGrant { host, guest, access: PathAccess::ReadOnly };
        let path = target.to_str().unwrap();
        let jail: Jail = jail(&["race", path]).policy(policy).layers(layers);
        let jail = if policy == Policy::open() { jail } else { jail.path(grant) };
        let jailed = jail.spawn().unwrap();
        while jailed.end().is_none() {
            swap("link");
            swap("plain");
        }
        crate::victims::finish(&jailed)
    };
    // The canary: without any layer the race is won.
    assert_eq!(race(Policy::open(), Layers::none()), WORKED);
    let nothing = Layers::none();
    for layers in [nothing.with(Layer::Mounts), nothing.with(Layer::Landlock), Layers::default()] {
        assert_eq!(race(Policy::default(), layers), refused(libc::ENOENT), "{layers:?}");
    }
}

/// `mmap` of a page of a descriptor.
fn map(protection: i32, flags: i32, descriptor: i32, offset: u64) -> Vec<String> {
    let numbers = [
        libc::SYS_mmap as u64,
        0,
        4096,
        protection as u64,
        flags as u64,
        descriptor as u64,
        offset,
    ];
    std::iter::once("call".to_owned()).chain(numbers.map(|number| number.to_string())).collect()
}

/// Guarantee: sandbox/descriptors
#[test]
fn the_regions_header_cannot_be_mapped_in_any_way() {
    const HEADER_BYTES: u64 = 8192;
    let run = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let file = || {
            let file =
                rustix::fs::memfd_create("holdfast-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, 2 * HEADER_BYTES).unwrap();
            file
        };
        let jail = jail(&words).descriptor(3, file()).descriptor(4, file());
        end(jail.regions(1, HEADER_BYTES).layers(Layers::none()))
    };
    use libc::{MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, PROT_EXEC, PROT_READ, PROT_WRITE};
    let data = map(PROT_READ | PROT_WRITE, MAP_SHARED, 4, HEADER_BYTES);
    assert_eq!(run(&data), WORKED);
    // What no limit counts beside a region: see `JailLimits::private_bytes`.
    for flags in [MAP_SHARED, MAP_PRIVATE | libc::MAP_GROWSDOWN] {
        let uncounted = map(PROT_READ | PROT_WRITE, flags | libc::MAP_ANONYMOUS, -1, 0);
        assert_eq!(run(&uncounted), refused(libc::ENOMEM), "{flags:#x}");
    }
    for protection in
        [0, PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE, PROT_EXEC, PROT_READ | PROT_EXEC]
    {
        for flags in [MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE] {
            let found = run(&map(protection, flags, 4, 4096));
            let is_violation =
                matches!(&found, End::Violation(violation) if violation.name == "mmap");
            assert!(is_violation, "protection {protection}, flags {flags}: {found}");
        }
    }
    for descriptor in [3, 4] {
        let found = run(&map(PROT_READ | PROT_EXEC, MAP_PRIVATE, descriptor, HEADER_BYTES));
        assert!(matches!(&found, End::Violation(_)), "code from descriptor {descriptor}: {found}");
    }
}

/// A sandboxed program cannot move a waiting thread of the host to another futex word.
///
/// Guarantee: applets/bounded-waits
#[test]
fn futex_requeue_of_a_host_waiter_is_denied() {
    for operation in [libc::FUTEX_REQUEUE, libc::FUTEX_CMP_REQUEUE] {
        let run = |operation: i32| {
            let (number, operation) = (libc::SYS_futex.to_string(), operation.to_string());
            end(jail(&["call", &number, "0", &operation, "0", "1", "0", "0"])
                .layers(Layers::none()))
        };
        assert_eq!(run(operation), refused(libc::ENOSYS));
        // Those of its own threads can; the address is wrong, which only one of the two notices.
        let own = run(operation | libc::FUTEX_PRIVATE_FLAG);
        assert!(own == WORKED || own == refused(libc::EFAULT), "{own}");
    }
}
