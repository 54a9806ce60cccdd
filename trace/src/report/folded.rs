//! Folded stacks, which flame graph programs read: program, class, part, call and, at the tip,
//! where the time went.

use super::document::{Report, Time};
use super::text::plain;

/// Which part of the time counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Part {
    /// All of it, with the parts as tips.
    #[default]
    Wall,
    /// Only that on a CPU.
    Cpu,
    /// All but the time asleep.
    Awake,
}

/// One line for each stack, in microseconds. What rounds to nothing has no line.
#[must_use]
pub fn folded(report: &Report, part: Part) -> String {
    let mut out = String::new();
    for stack in &report.stacks {
        // A semicolon ends a frame.
        let frame = |name: &str| plain(name).replace([';', ' '], "_");
        let command = if stack.command.is_empty() { "?".to_owned() } else { frame(&stack.command) };
        let base = format!(
            "{command};{};{};{}",
            stack.class.id(),
            stack.subclass.id(),
            frame(&stack.name)
        );
        for (tip, ns) in tips(&stack.time, part) {
            let us = ns.saturating_add(500) / 1000;
            if us > 0 {
                out += &format!("{base};{} {us}\n", tip.replace(' ', "_"));
            }
        }
    }
    out
}

fn tips(time: &Time, part: Part) -> Vec<(&'static str, u64)> {
    let cpu = ("on CPU", time.cpu_ns);
    let awake = [
        cpu,
        ("waiting", time.wait_ns),
        ("device", time.io_wait_ns),
        ("run queue", time.queue_ns),
        ("not told", time.untold_ns),
    ];
    match part {
        Part::Cpu => vec![cpu],
        Part::Awake => awake.to_vec(),
        Part::Wall => awake.into_iter().chain([("asleep", time.sleep_ns)]).collect(),
    }
}
