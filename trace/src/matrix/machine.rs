//! Where the processors of the machine were during a run: in programs, in the kernel, or idle.

/// Processor time of the machine since its start, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    user: u64,
    kernel: u64,
    idle: u64,
}

/// Shares of a run, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shares {
    pub(super) user: f64,
    pub(super) kernel: f64,
    pub(super) idle: f64,
}

impl ProcessorTime {
    /// As it stands; `None` where the kernel does not tell.
    pub(super) fn now() -> Option<ProcessorTime> {
        ProcessorTime::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, and
    /// guests, which are in `user` already.
    fn parse(text: &str) -> Option<ProcessorTime> {
        let numbers: Vec<u64> = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let [user, nice, system, idle, rest @ ..] = &numbers[..] else { return None };
        let at = |index: usize| rest.get(index).copied().unwrap_or(0);
        // What another machine had of these processors says nothing about this one.
        Some(ProcessorTime {
            user: user + nice,
            kernel: system + at(1) + at(2),
            idle: idle + at(0),
        })
    }

    /// Of the time from `before` to this.
    pub(super) fn since(self, before: ProcessorTime) -> Option<Shares> {
        let user = self.user.saturating_sub(before.user) as f64;
        let kernel = self.kernel.saturating_sub(before.kernel) as f64;
        let idle = self.idle.saturating_sub(before.idle) as f64;
        let whole = user + kernel + idle;
        let share = |part: f64| part * 100.0 / whole;
        (whole > 0.0).then(|| Shares {
            user: share(user),
            kernel: share(kernel),
            idle: share(idle),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_passed_between_two_looks() {
        let before = ProcessorTime::parse("cpu  100 10 50 800 40 1 2 9 0 0\ncpu0 1\n").unwrap();
        assert_eq!(before, ProcessorTime { user: 110, kernel: 53, idle: 840 });
        let after = ProcessorTime::parse("cpu  120 10 55 870 44 1 3 99 0 0\n").unwrap();
        let shares = after.since(before).unwrap();
        assert_eq!(shares, Shares { user: 20.0, kernel: 6.0, idle: 74.0 });
        assert_eq!(before.since(before), None);
        assert_eq!(ProcessorTime::parse("intr 1 2"), None);
        // As old kernels have it.
        assert!(ProcessorTime::parse("cpu 1 2 3 4").is_some());
    }

    #[test]
    fn this_kernel_tells() {
        assert!(ProcessorTime::now().is_some_and(|time| time.idle > 0));
    }
}
