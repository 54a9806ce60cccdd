//! The status as Prometheus reads it: the text exposition format, version 0.0.4.

use std::fmt::Write;

use crate::report::{DatabaseStatus, ServedStatus, Status, UserStatus};

impl Status {
    /// As metrics. Names of heaps need no escaping: they are letters, digits and a few signs; paths
    /// of databases do.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} {kind}\nholdfast_{name} {value}\n"
            );
        };
        let counters = &self.counters;
        metric("keeper_up_seconds", "gauge", "How long the keeper runs.", self.up_s);
        metric("pool_bytes", "gauge", "What images take in the pool.", self.pool_bytes);
        for (name, help, value) in [
            ("pool_limit_bytes", "What images may take in the pool.", self.pool_limit_bytes),
            (
                "store_bytes_per_second",
                "Measured write bandwidth of the store.",
                self.bandwidth_bytes_per_s,
            ),
            ("emergency_bytes", "What an emergency can save.", self.emergency_bytes),
        ] {
            value.into_iter().for_each(|value| metric(name, "gauge", help, value));
        }
        metric(
            "last_flush_milliseconds",
            "gauge",
            "Time of the last flush.",
            counters.last_flush_ms,
        );
        for (name, help, value) in [
            ("flushes_total", "Flushes of all heaps and databases.", counters.flushes),
            ("flushed_heaps_total", "Heaps saved by flushes.", counters.flushed_heaps),
            ("flushed_databases_total", "Databases saved by flushes.", counters.flushed_databases),
            ("flushed_bytes_total", "Bytes written by flushes.", counters.flushed_bytes),
            ("flush_left_heaps_total", "Heaps that a flush could not save.", counters.left_heaps),
            (
                "flush_left_databases_total",
                "Databases that a flush could not save.",
                counters.left_databases,
            ),
            (
                "checkpointed_heaps_total",
                "Checkpoints in the background.",
                counters.checkpointed_heaps,
            ),
            (
                "copied_heaps_total",
                "Copies of open heaps in the background.",
                counters.copied_heaps,
            ),
            (
                "copied_databases_total",
                "Copies of databases in the background.",
                counters.copied_databases,
            ),
            (
                "background_bytes_total",
                "Bytes written in the background.",
                counters.background_bytes,
            ),
            ("put_off_total", "Saves that had to wait for the write rate.", counters.put_off),
            (
                "evicted_heaps_total",
                "Images of heaps taken out of the pool.",
                counters.evicted_heaps,
            ),
            (
                "evicted_databases_total",
                "Images of databases taken out of the pool.",
                counters.evicted_databases,
            ),
            ("evicted_bytes_total", "Bytes freed in the pool.", counters.evicted_bytes),
            ("failures_total", "Failures with single heaps and databases.", counters.failures),
            ("requests_total", "Requests answered.", counters.requests),
            (
                "refused_requests_total",
                "Requests refused or not understood.",
                counters.refused_requests,
            ),
        ] {
            metric(name, "counter", help, value);
        }
        for (name, help) in [
            ("heap_image_bytes", "What the image of a heap takes."),
            ("heap_unsaved_seconds", "Time since a heap was saved last."),
        ] {
            let _ = write!(text, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} gauge\n");
            for heap in &self.heaps {
                let value =
                    if name == "heap_image_bytes" { heap.image_bytes } else { heap.unsaved_s };
                let _ = writeln!(text, "holdfast_{name}{{heap=\"{}\"}} {value}", heap.name);
            }
        }
        type Value = fn(&DatabaseStatus) -> u64;
        let of_databases: [(&str, &str, Value); 3] = [
            ("database_image_bytes", "What the image of a database takes.", |found| {
                found.image_bytes
            }),
            ("database_unsaved_bytes", "What only the image of a database has.", |found| {
                found.unsaved_bytes
            }),
            (
                "database_unsaved_seconds",
                "Time since a database was flushed or saved last.",
                |found| found.unsaved_s,
            ),
        ];
        for (name, help, value) in of_databases {
            let _ = write!(text, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} gauge\n");
            for database in &self.databases {
                let (path, value) = (escaped(&database.path), value(database));
                let _ = writeln!(text, "holdfast_{name}{{database=\"{path}\"}} {value}");
            }
        }
        if let Some(served) = &self.served {
            served.metrics(&mut text);
        }
        text
    }
}

/// As the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl ServedStatus {
    fn metrics(&self, text: &mut String) {
        for (name, help, value) in [
            ("served_bytes", "Limits of all served regions.", self.bytes),
            ("served_limit_bytes", "What these may be.", self.total_bytes),
        ] {
            let _ = write!(text, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} gauge\n");
            let _ = writeln!(text, "holdfast_{name} {value}");
        }
        type Value = fn(&UserStatus) -> u64;
        let of_users: [(&str, &str, &str, Value); 8] = [
            ("served_user_regions", "gauge", "Regions of a user.", |user| user.regions),
            ("served_user_bytes", "gauge", "Limits of a user's regions.", |user| user.bytes),
            ("served_user_backed_bytes", "gauge", "What is allocated of them.", |user| {
                user.backed_bytes
            }),
            ("served_user_lent", "gauge", "Regions that a program has.", |user| user.lent),
            ("served_user_connections", "gauge", "Open connections.", |user| user.connections),
            ("served_user_requests_total", "counter", "Requests answered.", |user| user.requests),
            ("served_user_quota_refusals_total", "counter", "Refused for a quota.", |user| {
                user.quota_refusals
            }),
            ("served_user_refusals_total", "counter", "All that was refused.", |user| {
                user.refusals
            }),
        ];
        for (name, kind, help, value) in of_users {
            let _ = write!(text, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} {kind}\n");
            for user in &self.users {
                let _ = writeln!(text, "holdfast_{name}{{uid=\"{}\"}} {}", user.user, value(user));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Counters, HeapStatus};

    /// Guarantee: keeper/status
    #[test]
    fn every_metric_has_a_help_a_type_and_a_value() {
        let heap = HeapStatus {
            name: "jobs+w1".to_owned(),
            state: "held".to_owned(),
            image_bytes: 4096,
            unsaved_s: 7,
            holder: Some(1),
            rescued: true,
        };
        let database = DatabaseStatus {
            path: "/home/a \"b\"\\\n.db".to_owned(),
            state: "open".to_owned(),
            image_bytes: 8192,
            unsaved_bytes: 4096,
            unsaved_s: 3,
            holders: vec![1],
            saved: false,
        };
        let user = UserStatus { user: 1000, quota_refusals: 4, ..UserStatus::default() };
        let status = Status {
            keeper: Some(1),
            up_s: 2,
            pool_bytes: 4096,
            pool_limit_bytes: Some(20_000_000),
            pool_limit_reason: None,
            bandwidth_bytes_per_s: None,
            emergency_bytes: None,
            heaps: vec![heap],
            databases: vec![database],
            counters: Counters { flushes: 3, ..Counters::default() },
            served: Some(ServedStatus { users: vec![user], ..ServedStatus::default() }),
        };
        let text = status.metrics();
        for line in [
            "holdfast_flushes_total 3",
            "holdfast_pool_limit_bytes 20000000",
            "holdfast_served_user_quota_refusals_total{uid=\"1000\"} 4",
            "holdfast_heap_image_bytes{heap=\"jobs+w1\"} 4096",
            "holdfast_heap_unsaved_seconds{heap=\"jobs+w1\"} 7",
            r#"holdfast_database_unsaved_bytes{database="/home/a \"b\"\\\n.db"} 4096"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("store_bytes_per_second"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(
                text.contains(&format!("# HELP {name} "))
                    && text.contains(&format!("# TYPE {name} "))
            );
        }
    }
}
