//! What the tables say, rule by rule where it matters most. The compiled filter is compared with them elsewhere.

use super::*;

const GIVEN: Given =
    Given { first_free_descriptor: 5, region_data_offset: 8192, program_descriptor: 5, own_process: 1 };

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
    let refused = Some(Action::Errno(libc::EACCES));
    assert_eq!(action(Step::Final, libc::SYS_openat, open(libc::O_CLOEXEC)), refused);
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE] {
        assert_eq!(action(Step::Loader, libc::SYS_openat, open(flags)), refused, "{flags:#x}");
    }
}

#[test]
fn a_thread_shares_all_that_threads_share_whatever_its_library_asks_for() {
    const GLIBC: u64 = 0x3d_0f00;
    const MUSL: u64 = 0x7d_0f00;
    const GO: u64 = 0x5_0f00;
    // SETTLS, PARENT_SETTID, CHILD_CLEARTID, DETACHED, CHILD_SETTID.
    const OPTIONAL: u64 = 0x178_0000;
    let clone = |flags: u64| action(Step::Final, libc::SYS_clone, [flags, 0x1000, 0, 0, 0, 0]);
    for flags in [GLIBC, MUSL, GO, GO | libc::CLONE_SETTLS as u64, GO | libc::CLONE_CHILD_SETTID as u64] {
        assert_eq!(clone(flags), Some(Action::Ask(Question::Thread)), "{flags:#x}");
    }
    // Without any one of what is shared, with any other flag, or with a signal at its end, it is no thread.
    for bit in 0..64 {
        let flag = 1_u64 << bit;
        if OPTIONAL & flag == 0 {
            assert_eq!(clone(GO ^ flag), None, "{flag:#x}");
        }
    }
}

#[test]
fn signals_go_to_the_program_itself_only() {
    let kill = |pid: i32| action(Step::Final, libc::SYS_kill, [pid as u64, 15, 0, 0, 0, 0]);
    assert_eq!(kill(1), Some(Action::Allow));
    for other in [0, -1, 2, -2, i32::MAX, i32::MIN] {
        assert_eq!(kill(other), None, "{other}");
    }
    // Nobody's number, as the filter has it where the true one is not known yet.
    let unknown = Given { own_process: Given::UNKNOWN_PROCESS, ..GIVEN };
    for pid in [0_u64, 1, u64::from(u32::MAX), u64::MAX] {
        let args = [pid, 15, 0, 0, 0, 0];
        assert_eq!(Policy::default().rule(&unknown, Step::Final, libc::SYS_kill, &args), None, "{pid:#x}");
    }
}

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
            assert_eq!(action(Step::Loader, call, [given, command, 0, 0, 0, 0]), None, "{}", name(call));
            let own = action(Step::Loader, call, [5, command, 0, 0, 0, 0]);
            assert_eq!(own, Some(Action::Allow), "{}", name(call));
        }
    }
    // Nor does the input, which the host may have opened for writing.
    assert_eq!(action(Step::Final, libc::SYS_dup, [0; 6]), Some(Action::Errno(libc::EMFILE)));
}

#[test]
fn the_regions_header_cannot_be_mapped_shared() {
    let mapped =
        |flags: i32, fd: u64, offset: u64| [0, 4096, libc::PROT_READ as u64, flags as u64, fd, offset];
    let shared = |fd, offset| mapped(libc::MAP_SHARED, fd, offset);
    for flags in [libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC] {
        assert_eq!(action(Step::Final, libc::SYS_mmap, mapped(flags, 4, 8192)), Some(Action::Allow));
        assert_eq!(action(Step::Final, libc::SYS_mmap, mapped(flags, 4, 4096)), None);
        assert_eq!(action(Step::Loader, libc::SYS_mmap, mapped(flags, 4, 0)), None);
    }
    assert_eq!(action(Step::Final, libc::SYS_mmap, mapped(libc::MAP_SHARED_VALIDATE, 4, 8192)), None);
    assert_eq!(action(Step::Final, libc::SYS_mmap, shared(3, 0)), Some(Action::Allow));
}
