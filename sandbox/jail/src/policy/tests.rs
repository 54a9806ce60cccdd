//! The tables, rule by rule where it matters most. The compiled filter is compared with them
//! elsewhere.

use super::modes::{CREATING_FLAGS, MODE_CALLS, Mode, SPECIAL_BITS};
use super::*;

const GIVEN: Given = Given {
    first_free_descriptor: 6,
    last_region_descriptor: 5,
    region_data_offset: 8192,
    program_descriptor: 6,
    own_process: 1,
};

fn action(step: Step, syscall: i64, args: [u64; 6]) -> Option<Action> {
    Policy::default().rule(&GIVEN, step, syscall, &args).map(|rule| rule.action)
}

#[test]
fn every_rule_has_a_reason_and_a_known_call() {
    for rule in Group::ALL.into_iter().flat_map(Group::rules) {
        assert!(rule.reason.len() > 3, "{}: {:?}", name(rule.syscall), rule.reason);
        assert_ne!(name(rule.syscall), "unknown");
        assert!(rule.conditions.iter().all(|condition| condition.argument < 6));
    }
}

#[test]
fn only_x86_64_numbers_have_names() {
    assert_eq!(name(libc::SYS_read), "read");
    assert_eq!(name(-1), "unknown");
    assert_eq!(name(0x4000_0000), "unknown");
}

#[test]
fn files_are_opened_for_reading_while_loading_only() {
    let open = |flags: i32| [0, 0x1000, flags as u64, 0, 0, 0];
    assert_eq!(action(Step::Loader, libc::SYS_openat, open(libc::O_CLOEXEC)), Some(Action::Allow));
    // The host opens one file, and refuses all others.
    let refused = Some(Action::Ask(Question::Null));
    assert_eq!(action(Step::Final, libc::SYS_openat, open(libc::O_CLOEXEC)), refused);
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE] {
        assert_eq!(action(Step::Loader, libc::SYS_openat, open(flags)), refused, "{flags:#x}");
    }
}

/// A clone call counts as a thread only if it shares everything that threads share.
///
/// Guarantee: sandbox/descriptors
/// Guarantee: sandbox/ordinary-programs
/// Guarantee: sandbox/other-processes
#[test]
fn thread_creation_needs_all_shared_flags() {
    const GLIBC: u64 = 0x3d_0f00;
    const MUSL: u64 = 0x7d_0f00;
    const GO: u64 = 0x5_0f00;
    // SETTLS, PARENT_SETTID, CHILD_CLEARTID, DETACHED, CHILD_SETTID.
    const OPTIONAL: u64 = 0x178_0000;
    let clone = |flags: u64| action(Step::Final, libc::SYS_clone, [flags, 0x1000, 0, 0, 0, 0]);
    for flags in
        [GLIBC, MUSL, GO, GO | libc::CLONE_SETTLS as u64, GO | libc::CLONE_CHILD_SETTID as u64]
    {
        assert_eq!(clone(flags), Some(Action::Ask(Question::Thread)), "{flags:#x}");
    }
    // Without any one of what is shared, with any other flag, or with a signal at its end, it is no
    // thread.
    for bit in 0..64 {
        let flag = 1_u64 << bit;
        if OPTIONAL & flag == 0 {
            assert_eq!(clone(GO ^ flag), None, "{flag:#x}");
        }
    }
}

/// Guarantee: sandbox/descriptors
/// Guarantee: sandbox/ordinary-programs
/// Guarantee: sandbox/other-processes
#[test]
fn signals_go_to_the_program_itself_only() {
    let kill = |pid: i32| action(Step::Final, libc::SYS_kill, [pid as u64, 15, 0, 0, 0, 0]);
    assert_eq!(kill(1), Some(Action::Allow));
    for other in [0, -1, 2, -2, i32::MAX, i32::MIN] {
        assert_eq!(kill(other), None, "{other}");
    }
    // The number of no process, as the filter has it where the true one is not known yet.
    let unknown = Given { own_process: Given::UNKNOWN_PROCESS, ..GIVEN };
    for pid in [0_u64, 1, u64::from(u32::MAX), u64::MAX] {
        let args = [pid, 15, 0, 0, 0, 0];
        assert_eq!(
            Policy::default().rule(&unknown, Step::Final, libc::SYS_kill, &args),
            None,
            "{pid:#x}"
        );
    }
}

/// Guarantee: sandbox/descriptors
/// Guarantee: sandbox/ordinary-programs
/// Guarantee: sandbox/other-processes
#[test]
fn what_was_given_gets_no_second_number() {
    for given in [3, 4] {
        for (call, command) in [
            (libc::SYS_dup, 0),
            (libc::SYS_dup2, 9),
            (libc::SYS_dup3, 9),
            (libc::SYS_fcntl, libc::F_DUPFD as u64),
            (libc::SYS_fcntl, libc::F_DUPFD_CLOEXEC as u64),
            (libc::SYS_fcntl, libc::F_SETFL as u64),
        ] {
            assert_eq!(
                action(Step::Loader, call, [given, command, 0, 0, 0, 0]),
                None,
                "{}",
                name(call)
            );
            let own = action(Step::Loader, call, [6, command, 0, 0, 0, 0]);
            assert_eq!(own, Some(Action::Allow), "{}", name(call));
        }
    }
    // Nor does the input, which the host may have opened for writing.
    assert_eq!(action(Step::Final, libc::SYS_dup, [0; 6]), Some(Action::Errno(libc::EMFILE)));
}

/// Keys are made and given to memory before the jail is sealed, with arguments that mean nothing
/// but that.
///
/// Guarantee: applets/protection-keys
#[test]
fn protection_keys_are_made_before_the_seal() {
    let alloc = |step, flags: u64, rights: u64| {
        action(step, libc::SYS_pkey_alloc, [flags, rights, 0, 0, 0, 0])
    };
    let none = Some(Action::Errno(libc::ENOSYS));
    assert_eq!(alloc(Step::Loader, 0, 1), Some(Action::Allow));
    assert_eq!(alloc(Step::Final, 0, 1), none);
    assert_eq!(alloc(Step::Loader, 1, 1), none);
    assert_eq!(alloc(Step::Loader, 1 << 32, 1), none);
    assert_eq!(alloc(Step::Loader, 0, 4), none);
    let protect = |step, protection: i32, key: i32| {
        let arguments = [0x1000, 4096, protection as u64, key as u64, 0, 0];
        action(step, libc::SYS_pkey_mprotect, arguments)
    };
    let both = libc::PROT_READ | libc::PROT_WRITE;
    assert_eq!(protect(Step::Loader, both, 15), Some(Action::Allow));
    assert_eq!(protect(Step::Final, both, 15), None);
    assert_eq!(protect(Step::Loader, both, 16), None);
    assert_eq!(protect(Step::Loader, both, -1), None);
    assert_eq!(protect(Step::Loader, both | libc::PROT_EXEC, 1), None);
}

/// Guarantee: heap/persist
/// Guarantee: heap/reset-ordered
/// Guarantee: sandbox/descriptors
#[test]
fn the_regions_header_cannot_be_mapped_shared() {
    let mapped = |flags: i32, fd: u64, offset: u64| {
        [0, 4096, libc::PROT_READ as u64, flags as u64, fd, offset]
    };
    let shared = |fd, offset| mapped(libc::MAP_SHARED, fd, offset);
    for flags in [libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC] {
        assert_eq!(
            action(Step::Final, libc::SYS_mmap, mapped(flags, 4, 8192)),
            Some(Action::Allow)
        );
        // A second region is one as well; what comes behind the last one is none.
        assert_eq!(
            action(Step::Final, libc::SYS_mmap, mapped(flags, 5, 8192)),
            Some(Action::Allow)
        );
        // Shared with others, where a directory is granted.
        let refused = (flags == libc::MAP_SHARED).then_some(Action::Errno(libc::EACCES));
        assert_eq!(action(Step::Final, libc::SYS_mmap, mapped(flags, 6, 8192)), refused);
        assert_eq!(action(Step::Final, libc::SYS_mmap, mapped(flags, 5, 4096)), None);
        assert_eq!(action(Step::Final, libc::SYS_mmap, mapped(flags, 4, 4096)), None);
        assert_eq!(action(Step::Loader, libc::SYS_mmap, mapped(flags, 4, 0)), None);
    }
    assert_eq!(
        action(Step::Final, libc::SYS_mmap, mapped(libc::MAP_SHARED_VALIDATE, 4, 8192)),
        None
    );
    assert_eq!(action(Step::Final, libc::SYS_mmap, shared(3, 0)), Some(Action::Allow));
}

/// Every combination of groups.
fn policies() -> impl Iterator<Item = Policy> {
    (0..1_u32 << Group::ALL.len()).map(|groups| {
        let of = |(index, group): (usize, Group)| (groups >> index & 1 == 1).then_some(group);
        let nothing = Group::ALL.into_iter().fold(Policy::default(), Policy::without);
        Group::ALL.into_iter().enumerate().filter_map(of).fold(nothing, Policy::with)
    })
}

/// The rules of a call, once for each way in which groups bring them together.
fn orders(syscall: i64) -> Vec<Vec<&'static Rule>> {
    let mut orders: Vec<Vec<&'static Rule>> = policies()
        .map(|policy| policy.rules().filter(|rule| rule.syscall == syscall).collect())
        .collect();
    orders.dedup();
    orders
}

fn is_allowed(rules: &[&Rule], args: &[u64; 6]) -> bool {
    [Step::Loader, Step::Final].into_iter().any(|step| {
        let covers = |rule: &&&Rule| {
            rule.when.covers(step)
                && rule.conditions.iter().all(|condition| condition.holds(&GIVEN, args))
        };
        rules.iter().find(covers).is_some_and(|rule| rule.action == Action::Allow)
    })
}

/// The kernel takes a mode as 16 bits and flags as 32: what lies above must not make a difference.
const ABOVE: [u64; 3] = [0, 0x1_0000, 0xffff_ffff_0000_0000];

/// Guarantee: sandbox/special-files
#[test]
fn no_policy_lets_a_special_mode_through() {
    for row in MODE_CALLS {
        for rules in orders(row.syscall) {
            let holds = |change: &dyn Fn(&mut [u64; 6])| {
                // Descriptors of the program's own, and none.
                for first in [0, 9, libc::AT_FDCWD as u64] {
                    let mut args = [first, 0x1000, 0, 0, 0, 0];
                    change(&mut args);
                    assert!(!is_allowed(&rules, &args), "{row:?} {args:x?} {rules:?}");
                }
            };
            let special = (0..0o10000).filter(|mode| mode & SPECIAL_BITS != 0);
            match row.mode {
                Mode::Argument(at) => special
                    .flat_map(|mode| ABOVE.map(|above| mode | above))
                    .for_each(|mode| holds(&|args| args[usize::from(at)] = mode)),
                Mode::WhenCreating { flags, mode } => {
                    for with in (0..64).map(|bit| 1 << bit).filter(|bit| CREATING_FLAGS & bit != 0)
                    {
                        for how in
                            [0, libc::O_RDWR as u64, (libc::O_TRUNC | libc::O_PATH) as u64, 1 << 40]
                        {
                            special.clone().for_each(|value| {
                                holds(&|args| {
                                    args[usize::from(flags)] = with | how;
                                    args[usize::from(mode)] = value;
                                });
                            });
                        }
                    }
                }
                Mode::WithBits { argument, bits } => {
                    for others in 0..8 {
                        holds(&|args| args[usize::from(argument)] = bits | others);
                    }
                }
                Mode::WithValue { argument, value } => {
                    holds(&|args| args[usize::from(argument)] = value)
                }
                Mode::Unseen => holds(&|_| {}),
                Mode::Mask => {}
            }
        }
    }
}

/// Guarantee: sandbox/special-files
#[test]
fn ordinary_modes_pass_where_directories_are_granted() {
    let of = |syscall| {
        let policy = Policy::default().with(Group::Directories);
        policy.rules().filter(|rule| rule.syscall == syscall).collect::<Vec<_>>()
    };
    let makes =
        [libc::SYS_open, libc::SYS_openat, libc::SYS_creat, libc::SYS_mkdir, libc::SYS_mkdirat];
    for syscall in makes {
        let row = MODE_CALLS.iter().find(|row| row.syscall == syscall).unwrap();
        for mode in 0..=0o777 {
            let mut args = [0; 6];
            match row.mode {
                Mode::Argument(at) => args[usize::from(at)] = mode,
                Mode::WhenCreating { flags, mode: at } => {
                    args[usize::from(flags)] = CREATING_FLAGS;
                    args[usize::from(at)] = mode;
                }
                _ => unreachable!("{row:?}"),
            }
            assert!(is_allowed(&of(syscall), &args), "{row:?} {mode:o}");
        }
    }
    let renames = |flags: u32| is_allowed(&of(libc::SYS_renameat2), &[0, 0, 0, 0, flags.into(), 0]);
    assert!(renames(0) && renames(libc::RENAME_NOREPLACE) && renames(libc::RENAME_EXCHANGE));
    assert!(!renames(libc::RENAME_WHITEOUT));
}

/// A pair of sockets is a pipe: no addresses, no descriptors, no urgent bytes.
///
/// Guarantee: sandbox/no-network
/// Guarantee: sandbox/descriptors
#[test]
fn sockets_are_pairs_without_addresses_and_descriptors() {
    let is_allowed = |syscall, args| action(Step::Final, syscall, args) == Some(Action::Allow);
    let pair = |family: i32, kind: i32| {
        is_allowed(libc::SYS_socketpair, [family as u64, kind as u64, 0, 0, 0, 0])
    };
    assert!(pair(libc::AF_UNIX, libc::SOCK_STREAM));
    assert!(pair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK));
    assert!(!pair(libc::AF_UNIX, libc::SOCK_DGRAM) && !pair(libc::AF_UNIX, libc::SOCK_SEQPACKET));
    assert!(!pair(libc::AF_INET, libc::SOCK_STREAM) && !pair(libc::AF_NETLINK, libc::SOCK_RAW));
    let send = |fd, flags: i32, to| is_allowed(libc::SYS_sendto, [fd, 0, 0, flags as u64, to, 0]);
    assert!(send(6, 0, 0) && send(6, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT, 0));
    assert!(!send(6, libc::MSG_OOB, 0) && !send(6, 0, 1) && !send(6, 0, 1 << 32) && !send(5, 0, 0));
    let receive = |flags: i32| is_allowed(libc::SYS_recvfrom, [6, 0, 0, flags as u64, 0, 0]);
    assert!(receive(0) && receive(libc::MSG_DONTWAIT | libc::MSG_WAITALL));
    assert!(!receive(libc::MSG_OOB) && !receive(libc::MSG_PEEK | libc::MSG_OOB));
    for syscall in [libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_bind] {
        assert_eq!(action(Step::Final, syscall, [6, 0, 0, 0, 0, 0]), None, "{}", name(syscall));
    }
}

/// The kernel looks at the limit of a file's size in few of the modes of `fallocate`.
///
/// Guarantee: sandbox/memory-limits
#[test]
fn room_is_allocated_within_the_limit_of_a_file_only() {
    let policy = Policy::default().with(Group::Directories);
    let allocates = |mode: i32| {
        let args = [6, mode as u64, 0, 4096, 0, 0];
        let rule = policy.rule(&GIVEN, Step::Final, libc::SYS_fallocate, &args);
        rule.map(|rule| rule.action)
    };
    let gives_back = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    for mode in 0..128 {
        let expected = match mode {
            0 => Action::Allow,
            mode if mode == gives_back => Action::Allow,
            _ => Action::Errno(libc::ENOTSUP),
        };
        assert_eq!(allocates(mode), Some(expected), "{mode:#x}");
    }
}

/// A call that is let through in some policy, and sounds as if it made or changed files, is in the
/// table or known not to.
///
/// Guarantee: sandbox/special-files
#[test]
fn no_call_that_makes_files_is_missing_in_the_table() {
    const SOUNDS: [&str; 9] =
        ["open", "creat", "mk", "mod", "chown", "attr", "umask", "mq_", "memfd"];
    const NEITHER: [i64; 4] = [
        libc::SYS_timer_create,
        libc::SYS_timerfd_create,
        libc::SYS_epoll_create,
        libc::SYS_epoll_create1,
    ];
    let allowed: Vec<i64> = policies()
        .flat_map(|policy| policy.rules().filter(|rule| rule.action == Action::Allow))
        .map(|rule| rule.syscall)
        .filter(|syscall| SOUNDS.iter().any(|sound| name(*syscall).contains(sound)))
        .filter(|syscall| !NEITHER.contains(syscall))
        .collect();
    assert!(allowed.contains(&libc::SYS_creat));
    for syscall in allowed {
        assert!(MODE_CALLS.iter().any(|row| row.syscall == syscall), "{}", name(syscall));
    }
}
