//! What the machine has.

#![forbid(unsafe_code)]

/// Bytes of memory that the kernel manages, taken or free; a control group may allow less.
#[must_use]
pub fn memory_bytes() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram.saturating_mul(found.mem_unit.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_is_that_of_meminfo() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        assert_eq!(super::memory_bytes(), kib * 1024);
    }
}
