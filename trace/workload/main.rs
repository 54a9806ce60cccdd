//! `trace-workload FACTS NAME…`: programs whose times and calls are known by construction, for the
//! conformance tests.
//!
//! Each measures itself with clocks and counters that no tracer has a part in, and writes what it
//! knows to the file FACTS: lines of a name and a number. Unsafe: the libc calls of forking,
//! waiting and signals.

#![deny(unsafe_code)]

mod blocking;
mod facts;
mod kinds;
mod rings;
mod signals;
mod threads;

use std::path::Path;

use crate::facts::Facts;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (Some(file), Some(name)) = (arguments.get(1), arguments.get(2)) else {
        panic!("trace-workload FACTS NAME [NUMBER]");
    };
    let number =
        |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut facts = Facts::new(Path::new(file));
    match name.as_str() {
        "sleeps" => blocking::sleeps(&mut facts, number(3), number(4)),
        "sleeper_beside_reader" => blocking::sleeper_beside_reader(&mut facts),
        "waits_for_busy_child" => blocking::waits_for_busy_child(&mut facts),
        "syncs" => blocking::syncs(&mut facts, Path::new(&arguments[3])),
        "vforks" => blocking::vforks(&mut facts, number(3)),
        "spins_beside_another" => blocking::spins_beside_another(&mut facts),
        "many_threads" => threads::many(&mut facts, number(3)),
        "exits_around_a_thread" => threads::exits_around_a_thread(&mut facts, false),
        "is_killed_around_a_thread" => threads::exits_around_a_thread(&mut facts, true),
        "execs_from_a_thread" => threads::execs_from_a_thread(&mut facts, file),
        "after_exec" => facts.tell("exec_process", u64::from(std::process::id())),
        "family" => threads::family(&mut facts),
        "makes_thread_by_clone" => threads::makes_thread_by_clone(&mut facts),
        "makes_thread_with_own_descriptors" => {
            threads::makes_thread_with_own_descriptors(&mut facts)
        }
        "makes_untraced" => threads::makes_untraced(&mut facts),
        "restarts" => signals::restarts(&mut facts),
        "is_stopped" => signals::is_stopped(&mut facts),
        "waits_for_signal" => signals::waits_for_signal(&mut facts),
        "doors" => kinds::doors(&mut facts),
        "filtered" => kinds::filtered(&mut facts, false),
        "filtered_to_death" => kinds::filtered(&mut facts, true),
        "filtered_thread" => kinds::filtered_thread(&mut facts),
        "filtered_x32" => kinds::filtered_x32(&mut facts),
        "trapped" => kinds::trapped(&mut facts),
        "is_sent_sigsys_after_read" => kinds::killed_after_read(&mut facts, false),
        "filtered_to_death_after_read" => kinds::killed_after_read(&mut facts, true),
        "descriptors" => kinds::descriptors(&mut facts),
        "ticks" => kinds::ticks(&mut facts, number(3)),
        "ticks_in_threads" => threads::tick(&mut facts, number(3)),
        "only_calls" => threads::only_call(&mut facts),
        "queues_operations" => rings::queues_operations(&mut facts, number(3)),
        "traces" => kinds::traces(&mut facts, &arguments[3], &arguments[4..]),
        "traces_as_before_5_3" => {
            kinds::traces_as_before_5_3(&mut facts, &arguments[3], &arguments[4..])
        }
        other => panic!("no workload {other}"),
    }
}
