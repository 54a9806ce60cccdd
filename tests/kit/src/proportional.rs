//! The memory of this process and of those that it started, each page shared out among the
//! processes that map it.

/// The longest line of parents that is followed.
const GENERATIONS_MAX: usize = 16;

/// Proportional set size of this process and its descendants, in bytes. Reads `/proc`; what ends
/// meanwhile is not counted.
#[must_use]
pub fn proportional_bytes() -> u64 {
    let own = std::process::id();
    let parent_of = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let is_ours = |pid: u32| {
        let mut line =
            std::iter::successors(Some(pid), |pid| parent_of(*pid)).take(GENERATIONS_MAX);
        line.any(|pid| pid == own)
    };
    let bytes_of = |pid: u32| -> Option<u64> {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_ours(*pid)).filter_map(bytes_of).sum()
}
