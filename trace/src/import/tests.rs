//! Logs as strace writes them, and as it never would.

use super::line::{Body, LineTime, Returned, parse};
use super::*;
use crate::classes::{Class, Scheme, Subclass};
use crate::report::Look;
use crate::report::Report;
use crate::report::document::Sleep;
use crate::summary::{Options, Summary};

fn import_as(options: Options, text: &str) -> (Imported, Report) {
    let mut summary = Summary::new(options);
    let imported = read(&mut text.as_bytes(), &mut summary).unwrap();
    let source = imported.source("log");
    (imported, summary.into_report(source))
}

fn import(text: &str) -> (Imported, Report) {
    import_as(Options::default(), text)
}

/// Guarantee: trace/strace-logs
#[test]
fn lines_of_every_form_are_read() {
    let value = |value| Returned::Value(value);
    let call =
        |name, arguments, returned, took_ns| Body::Call { name, arguments, returned, took_ns };
    for (text, thread, at, body) in [
        ("close(3) = 0", None, LineTime::Unknown, call("close", "3", value(0), None)),
        (
            "close(3)                = 0 <0.000013>",
            None,
            LineTime::Unknown,
            call("close", "3", value(0), Some(13_000)),
        ),
        ("1234  close(3) = 0", Some(1234), LineTime::Unknown, call("close", "3", value(0), None)),
        (
            "[pid  1234] close(3) = 0",
            Some(1234),
            LineTime::Unknown,
            call("close", "3", value(0), None),
        ),
        (
            "7 12:00:01.000002 close(3) = 0",
            Some(7),
            LineTime::OfDay(43_201_000_002_000),
            call("close", "3", value(0), None),
        ),
        (
            "7 1700000000.000001 close(3) = 0",
            Some(7),
            LineTime::Clock(1_700_000_000_000_001_000),
            call("close", "3", value(0), None),
        ),
        (
            "7      0.000020 close(3) = 0",
            Some(7),
            LineTime::After(20_000),
            call("close", "3", value(0), None),
        ),
        (
            "     0.000020 close(3) = 0",
            None,
            LineTime::After(20_000),
            call("close", "3", value(0), None),
        ),
        (
            "12:00:01 (+     0.000123) close(3) = 0",
            None,
            LineTime::OfDay(43_201_000_000_000),
            call("close", "3", value(0), None),
        ),
        (
            r#"openat(AT_FDCWD, "a) = 5 <0.1>\"", O_RDONLY) = -1 ENOENT (No such file) <0.000008>"#,
            None,
            LineTime::Unknown,
            call(
                "openat",
                r#"AT_FDCWD, "a) = 5 <0.1>\"", O_RDONLY"#,
                Returned::Error("ENOENT"),
                Some(8_000),
            ),
        ),
        (
            "read(3</tmp/a>, \"x\", 1) = 1 <0.000005>",
            None,
            LineTime::Unknown,
            call("read", "3</tmp/a>, \"x\", 1", value(1), Some(5_000)),
        ),
        (
            "openat(AT_FDCWD, \"a\", 0) = 3</tmp/a> <0.000005>",
            None,
            LineTime::Unknown,
            call("openat", "AT_FDCWD, \"a\", 0", value(3), Some(5_000)),
        ),
        (
            "mmap(NULL, 8192) = 0x7f0000001000 <0.000009>",
            None,
            LineTime::Unknown,
            call("mmap", "NULL, 8192", value(0x7f00_0000_1000), Some(9_000)),
        ),
        (
            "poll([{fd=3, events=POLLIN}], 1, -1) = 1 ([{fd=3, revents=POLLIN}]) <1.500000>",
            None,
            LineTime::Unknown,
            call("poll", "[{fd=3, events=POLLIN}], 1, -1", value(1), Some(1_500_000_000)),
        ),
        (
            "nanosleep({tv_sec=1, tv_nsec=0}, {tv_sec=0, tv_nsec=5}) = ? ERESTART_RESTARTBLOCK (Interrupted by signal) <0.4>",
            None,
            LineTime::Unknown,
            call(
                "nanosleep",
                "{tv_sec=1, tv_nsec=0}, {tv_sec=0, tv_nsec=5}",
                Returned::Error("ERESTART_RESTARTBLOCK"),
                Some(400_000_000),
            ),
        ),
        (
            "exit_group(0)                 = ?",
            None,
            LineTime::Unknown,
            call("exit_group", "0", Returned::Nothing, None),
        ),
        (
            "9 futex(0x7f, FUTEX_WAIT, 2, NULL <unfinished ...>",
            Some(9),
            LineTime::Unknown,
            Body::Unfinished { name: "futex", arguments: "0x7f, FUTEX_WAIT, 2, NULL" },
        ),
        (
            "9 <... futex resumed>)         = 0 <2.000100>",
            Some(9),
            LineTime::Unknown,
            Body::Resumed { name: "futex", returned: value(0), took_ns: Some(2_000_100_000) },
        ),
        (
            "9 <... read resumed>\"a) = 1\", 10) = 6 <0.1>",
            Some(9),
            LineTime::Unknown,
            Body::Resumed { name: "read", returned: value(6), took_ns: Some(100_000_000) },
        ),
        (
            "9 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 10",
            Some(9),
            LineTime::Unknown,
            Body::Resumed { name: "wait4", returned: value(10), took_ns: None },
        ),
        (
            "9 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---",
            Some(9),
            LineTime::Unknown,
            Body::Signal("SIGCHLD"),
        ),
        ("9 --- stopped by SIGSTOP ---", Some(9), LineTime::Unknown, Body::Remark),
        ("9 +++ exited with 3 +++", Some(9), LineTime::Unknown, Body::Exited(3)),
        (
            "9 +++ killed by SIGSEGV (core dumped) +++",
            Some(9),
            LineTime::Unknown,
            Body::Killed("SIGSEGV"),
        ),
        (
            "9 +++ superseded by execve in pid 11 +++",
            Some(9),
            LineTime::Unknown,
            Body::Superseded { by: 11 },
        ),
        (
            "[ Process PID=9 runs in 32 bit mode. ]",
            None,
            LineTime::Unknown,
            Body::Mode { process: 9, mode: "32" },
        ),
        ("strace: Process 9 attached", None, LineTime::Unknown, Body::Remark),
        (
            "_llseek(3, 0, [0], SEEK_CUR) = 0",
            None,
            LineTime::Unknown,
            call("_llseek", "3, 0, [0], SEEK_CUR", value(0), None),
        ),
        (
            "syscall_0x1c7(0, 0) = -1 (errno 38)",
            None,
            LineTime::Unknown,
            call("syscall_0x1c7", "0, 0", value(-1), None),
        ),
    ] {
        let line = parse(text).unwrap_or_else(|| panic!("not read: {text}"));
        assert_eq!((line.thread, line.at, line.body), (thread, at, body), "{text}");
    }
}

/// Lines that do not parse are counted, and the report shows the first of them.
///
/// Guarantee: trace/strace-logs
#[test]
fn unreadable_lines_are_counted_first_ones_shown() {
    let broken = [
        "hello world",
        "close(3",
        "close(3) = ",
        "close(3) = x",
        "(3) = 0",
        "12:00:01.000001",
        "+++ exited with many +++",
        "<... resumed>) = 0",
        "[ Process PID=x runs in 32 bit mode. ]",
        "\u{1b}[2Jread(3) = 1",
    ];
    let (imported, report) = import(&format!("{}\nclose(3) = 0 <0.1>\n", broken.join("\n")));
    assert_eq!((imported.lines, imported.skipped, imported.calls), (11, broken.len() as u64, 1));
    assert_eq!(imported.shown.len(), SHOWN_MAX);
    assert_eq!(imported.shown[1], (2, "close(3".to_owned()));
    assert_eq!(report.lines_skipped, broken.len() as u64);
    assert_eq!(report.total.calls, 1);
}

/// A call that strace splits into `unfinished` and `resumed` lines is one call with its full
/// length.
#[test]
fn unfinished_and_resumed_are_one_call() {
    let (imported, report) = import(
        "10 futex(0x1, FUTEX_WAIT_PRIVATE, 2, NULL <unfinished ...>\n\
         11 read(0, \"\", 10) = 0 <0.000010>\n\
         10 <... futex resumed>) = 0 <1.500000>\n\
         11 read(0,  <unfinished ...>\n\
         11 +++ killed by SIGKILL +++\n\
         10 +++ exited with 0 +++\n",
    );
    assert_eq!((imported.skipped, imported.calls), (0, 3));
    assert_eq!(report.call("futex").unwrap().sums.time.wall_ns, 1_500_000_000);
    assert_eq!(report.call("read").unwrap().sums.unfinished, 1);
    assert_eq!(report.unfinished[0].thread, 11);
    let ends: Vec<_> =
        report.threads.iter().map(|row| (row.thread, row.end.clone().unwrap())).collect();
    assert_eq!(ends, [(10, "exit 0".to_owned()), (11, "signal 9".to_owned())]);
    assert_eq!(report.total.time.untold_ns, 1_500_010_000, "a log tells no parts");
}

/// A call whose line is cut by messages of strace on a terminal is joined again.
#[test]
fn call_cut_by_strace_messages_is_joined() {
    let (imported, report) = import(
        "vfork(strace: Process 11 attached\n <unfinished ...>\n[pid    11] close(3)  = 0 <0.000010>\n\
         [pid    10] <... vfork resumed>) = 11 <0.000400>\n",
    );
    assert_eq!((imported.skipped, report.total.calls), (0, 3), "{:?}", imported.shown);
    assert_eq!(report.call("vfork").unwrap().sums.time.wall_ns, 400_000);
}

/// A thread belongs to the process that created it, and processes have program names.
#[test]
fn threads_belong_to_their_makers_process() {
    let (_, report) = import(
        "10 execve(\"/usr/bin/make\", [\"make\"], 0x7ff /* 20 vars */) = 0 <0.000300>\n\
         10 clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD, stack=0x7f}, 88 <unfinished ...>\n\
         11 set_robust_list(0x7f, 24) = 0 <0.000002>\n\
         10 <... clone3 resumed> => {parent_tid=[11]}) = 11 <0.000090>\n\
         10 vfork( <unfinished ...>\n\
         12 execve(\"/usr/bin/gcc\", [\"gcc\"], 0x7ff /* 20 vars */ <unfinished ...>\n\
         10 <... vfork resumed>) = 12 <0.002000>\n\
         12 <... execve resumed>) = 0 <0.001000>\n\
         12 close(3) = 0 <0.000001>\n\
         12 exit_group(0) = ?\n\
         12 +++ exited with 0 +++\n",
    );
    let processes: Vec<_> = report
        .processes
        .iter()
        .map(|row| (row.process, row.command.as_str(), row.threads))
        .collect();
    assert!(
        processes.contains(&(10, "make", 2)) && processes.contains(&(12, "gcc", 1)),
        "{processes:?}"
    );
    assert!(report.unfinished.is_empty());
    assert!(report.stacks.iter().any(|stack| stack.command == "gcc" && stack.name == "close"));
}

/// After exec by a thread other than the first, the program goes on under the process ID.
#[test]
fn exec_by_thread_continues_under_process_id() {
    let (imported, report) = import(
        "10 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD) = 11 <0.000090>\n\
         11 execve(\"/bin/new\", [], 0x7f <unfinished ...>\n\
         10 futex(0x1, FUTEX_WAIT, 0, NULL <unfinished ...>\n\
         10 +++ superseded by execve in pid 11 +++\n\
         10 <... execve resumed>) = 0 <0.000500>\n\
         10 close(1) = 0 <0.000001>\n",
    );
    assert_eq!(imported.skipped, 0);
    assert_eq!(report.call("execve").unwrap().sums.time.wall_ns, 500_000);
    assert_eq!(report.processes.iter().find(|row| row.process == 10).unwrap().command, "new");
}

#[test]
fn calls_of_32_bit_programs_are_named_as_such() {
    let (imported, report) = import(
        "[ Process PID=10 runs in 32 bit mode. ]\n10 _llseek(3, 0, [0], 0) = 0 <0.1>\n10 stat64(\"a\", 0x1) = 0 <0.1>\n\
         [ Process PID=10 runs in 64 bit mode. ]\n10 lseek(3, 0, 0) = 0 <0.1>\n",
    );
    assert_eq!(imported.skipped, 0);
    let names: Vec<_> =
        report.calls.iter().map(|row| (row.name.as_str(), row.abi.as_str())).collect();
    assert_eq!(names, [("_llseek", "i386"), ("lseek", "x86_64"), ("stat64", "i386")]);
    assert!(report.calls.iter().all(|row| row.class == Class::Metadata));
    let (_, report) = import(
        "[ Process PID=10 runs in 32 bit mode. ]\n10 break(0x1) = -1 ENOSYS (Function not implemented) <0.1>\n",
    );
    assert!(report.call("break").is_some());
}

#[test]
fn calls_of_x32_programs_are_named_as_such() {
    let (imported, report) = import(
        "[ Process PID=10 runs in x32 mode. ]\n10 ioctl(0, TCGETS, 0x1) = 0 <0.2>\n10 close(3) = 0 <0.1>\n",
    );
    assert_eq!(imported.skipped, 0);
    let rows: Vec<_> =
        report.calls.iter().map(|row| (row.name.as_str(), row.abi.as_str(), row.number)).collect();
    assert_eq!(rows, [("ioctl", "x32", 514), ("close", "x32", 3)]);
}

/// Interrupted calls, errors and unknown call names are counted separately.
#[test]
fn interruptions_errors_unknown_names_stay_apart() {
    let (_, report) = import(
        "read(0, 0x1, 5) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.2>\n\
         --- SIGALRM {si_signo=SIGALRM} ---\n\
         read(0, \"\", 5) = 0 <0.1>\n\
         access(\"/a\", F_OK) = -1 ENOENT (No such file or directory) <0.000001>\n\
         pread(3, \"\", 1, 0) = 0 <0.000001>\n\
         brand_new(1) = 0 <0.000001>\n",
    );
    let read = &report.call("read").unwrap().sums;
    assert_eq!((read.calls, read.interrupted, read.errors), (2, 1, 0));
    assert_eq!(report.call("access").unwrap().errors_by_code[0].name, "ENOENT");
    assert!(report.call("pread64").is_some() && report.call("other numbers").is_some());
    assert_eq!(report.signals[0].name, "SIGALRM");
}

/// The summary table of strace is also read from versions that leave columns out.
#[test]
fn count_table_may_lack_columns() {
    let table = "\
strace: Process 7 attached
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 87.50    0.014000         700        20           wait4
 12.50    0.002000           2      1000       900 access
  0.00    0.000000           0         1           stat64
------ ----------- ----------- --------- --------- ----------------
100.00    0.016000                  1021       900 total
";
    let (imported, report) =
        import_as(Options { sleep: Sleep::Paper, ..Options::default() }, table);
    assert_eq!((imported.skipped, imported.calls, imported.summed), (0, 0, 1021));
    assert_eq!(report.total.time.wall_ns, 16_000_000);
    assert_eq!(report.call("wait4").unwrap().sums.awake_ns, 0, "by the study's rule, at the mean");
    assert_eq!(report.call("access").unwrap().sums.errors, 900);
    assert!(imported.notes.iter().any(|note| note.contains("strace -c")));
}

/// Calls that are logged one by one are not counted again from the summary table.
#[test]
fn logged_calls_are_not_counted_again() {
    let (imported, report) = import(
        "close(3) = 0 <0.000010>\n% time     seconds  usecs/call     calls    errors syscall\n------ ---- --- --- --- ---\n\
         100.00    0.016000          16         1           close\n------ ---- --- --- --- ---\n\
         100.00    0.016000                     1           total\n+++ exited with 0 +++\n",
    );
    assert_eq!((report.total.calls, report.total.time.wall_ns, imported.skipped), (1, 10_000, 0));
    assert!(imported.notes.iter().any(|note| note.contains("left out")));
}

/// Every time format of strace gives the same length to calls split over two lines.
#[test]
fn all_time_formats_give_the_same_lengths() {
    for (one, two) in [
        ("1700000000.000000", "1700000002.500000"),
        ("23:59:59.000000", "00:00:01.500000"),
        ("0.000000", "2.500000"),
    ] {
        let (imported, report) = import(&format!(
            "10 {one} poll([], 0, -1 <unfinished ...>\n10 {two} <... poll resumed>) = 0\n10 {two} close(1) = 0\n"
        ));
        assert!(imported.has_times, "{one}");
        assert_eq!(report.call("poll").unwrap().sums.time.wall_ns, 2_500_000_000, "{one}");
        assert_eq!(imported.without_length, 1, "close has none");
        assert!(imported.notes.iter().any(|note| note.contains("-T")));
    }
}

/// A call that a message cuts at the end of the log counts as an unreadable line.
#[test]
fn call_cut_at_log_end_is_unreadable() {
    let cut = "clone(child_stack=NULL, strace: Process 11 attached\n";
    let (whole, report) =
        import(&format!("close(1) = 0 <0.1>\n{cut}, flags=CLONE_VM) = 11 <0.1>\n"));
    assert_eq!((whole.calls, whole.skipped, report.lines_skipped), (2, 0, 0));
    let (torn, report) = import(&format!("close(1) = 0 <0.1>\n{cut}"));
    assert_eq!((torn.calls, torn.skipped, report.lines_skipped), (1, 1, 1));
    assert_eq!(torn.shown, [(2, "clone(child_stack=NULL,".to_owned())]);
}

/// The importer parses arguments and descriptors as far as the classes depend on them.
#[test]
fn arguments_and_descriptors_decide_the_class() {
    let refined = Options { scheme: Scheme::Refined, ..Options::default() };
    let (_, report) = import_as(
        refined,
        "mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f00 <0.1>\n\
         mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f00 <0.1>\n\
         read(3<socket:[12]>, \"\", 1) = 0 <0.1>\n\
         read(4</etc/passwd>, \"\", 1) = 0 <0.1>\n\
         write(5<pipe:[7]>, \"\", 1) = 1 <0.1>\n\
         write(6<anon_inode:[eventfd]>, \"\", 8) = 8 <0.1>\n\
         fcntl(7, F_SETLKW, {l_type=F_WRLCK}) = 0 <0.1>\n",
    );
    let of = |subclass| {
        report
            .subclasses
            .iter()
            .find(|row| row.subclass == subclass)
            .map_or(0, |row| row.sums.calls)
    };
    assert_eq!((of(Subclass::Memory), of(Subclass::UserData)), (1, 2));
    assert_eq!((of(Subclass::Socket), of(Subclass::Sync)), (2, 2));
}

/// A log with arbitrary bytes, long lines and many threads is read in bounded memory.
///
/// Guarantee: trace/strace-logs
#[test]
fn hostile_log_is_read_in_bounded_memory() {
    let mut log = vec![0xff, 0xfe, b'\n', 0, b'\n'];
    log.extend(b"write(1, \"");
    log.extend(std::iter::repeat_n(b'x', 2 * LINE_BYTES_MAX));
    log.extend(b"\", 5) = 5 <0.1>\n");
    for thread in 0..70_000 {
        log.extend(format!("{thread} read(0, <unfinished ...>\n").bytes());
    }
    log.extend(b"5 close(1) = 0");
    let mut summary = Summary::default();
    let imported = read(&mut log.as_slice(), &mut summary).unwrap();
    assert_eq!(imported.lines, 70_004);
    assert!(
        imported.skipped > 4_000 && imported.shown[3].1.starts_with("<a thread"),
        "{:?}",
        imported.shown
    );
    assert!(imported.calls > 65_000);
}

/// A report shows an strace log and a measurement side by side with the ranking of each.
#[test]
fn log_and_measurement_are_ranked_together() {
    let (_, log) = import(
        "% time     seconds  usecs/call     calls    errors syscall\n 90.0    1.240000       1          5           futex\n \
         10.0    0.100000         1         50           read\n",
    );
    let (_, measured) =
        import("futex(0x1, FUTEX_WAIT, 0, NULL) = 0 <0.000024>\nread(0, \"\", 1) = 0 <0.300000>\n");
    let beside = StraceComparison::of(&log, &measured);
    assert!(beside.log_is_sums);
    let futex = &beside.rows[0];
    assert_eq!((futex.name.as_str(), futex.log_rank, futex.rank), ("futex", 1, 2));
    assert_eq!((beside.rows[1].log_rank, beside.rows[1].rank), (2, 1));
    let text = terminal(&beside, &Look::default());
    assert!(
        text.contains("futex") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

proptest::proptest! {
    #[test]
    fn no_text_at_all_makes_a_line_panic(text in ".{0,200}") {
        let _ = parse(&text);
        let _ = counts::parse(&text);
    }

    /// Guarantee: trace/strace-logs
    #[test]
    fn pieces_of_lines_in_any_order_are_read_to_the_end(pieces in proptest::collection::vec(0..PIECES.len(), 0..40)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        let (imported, report) = import(&text);
        proptest::prop_assert_eq!(report.total.calls, imported.calls + imported.summed);
    }
}

const PIECES: [&str; 24] = [
    "10 ",
    "11 ",
    "\n",
    "\n",
    "read(",
    "clone(CLONE_THREAD",
    "execve(\"/a",
    "\"",
    ") = ",
    "0",
    "11",
    "-1 ENOENT (x)",
    " <0.1>",
    " <unfinished ...>",
    "<... read resumed>",
    "<... clone resumed>",
    "+++ exited with 0 +++",
    "+++ superseded by execve in pid 11 +++",
    "--- SIGTERM {} ---",
    "[ Process PID=10 runs in 32 bit mode. ]",
    "?",
    "23:59:59.9 ",
    "% time     seconds x syscall\n",
    " 1.0 0.1 2 3 4 read\n",
];
