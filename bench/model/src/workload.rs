//! One computation over sizes of its input, in an applet and in the interface's language: the lines
//! of the paper's figure 9.

use serde::{Deserialize, Serialize};

use crate::time::Microseconds;

/// What something takes for `n` bytes: a fixed part, and a part for each byte.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Whatever the size.
    pub fixed_us: Microseconds,
    /// For each byte.
    pub per_byte_us: Microseconds,
}

impl Cost {
    /// For this many bytes.
    pub fn of(&self, bytes: u64) -> f64 {
        self.fixed_us.get() + self.per_byte_us.get() * bytes as f64
    }
}

/// A computation whose cost grows with its input. The three costs are to be measured apart from
/// each other: the call on one that computes nothing, the applet's code without a call, the
/// interface's code in its own process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// What is computed, for people.
    pub name: String,
    /// A call that computes nothing; per byte, what it takes to get the input there (0 with a
    /// shared buffer).
    pub call: Cost,
    /// The computation in the applet, without the call.
    pub applet: Cost,
    /// The computation in the interface's language.
    pub interface: Cost,
}

impl Workload {
    /// Predicted: call and computation, in microseconds.
    pub fn applet_us(&self, bytes: u64) -> f64 {
        self.call.of(bytes) + self.applet.of(bytes)
    }

    /// Predicted: in the interface's language, in microseconds.
    pub fn interface_us(&self, bytes: u64) -> f64 {
        self.interface.of(bytes)
    }

    /// How many times as fast a byte is computed in the applet; `None` if it costs nothing there.
    pub fn speedup(&self) -> Option<f64> {
        let applet = self.applet.per_byte_us.get();
        (applet > 0.0).then(|| self.interface.per_byte_us.get() / applet)
    }

    /// The smallest input for which the applet is at least as fast: 0 if it always is, `None` if it
    /// is for none, or for small ones only.
    pub fn break_even_bytes(&self) -> Option<u64> {
        let fixed =
            self.call.fixed_us.get() + self.applet.fixed_us.get() - self.interface.fixed_us.get();
        let per_byte = self.interface.per_byte_us.get()
            - self.call.per_byte_us.get()
            - self.applet.per_byte_us.get();
        if fixed <= 0.0 {
            return (per_byte >= 0.0).then_some(0);
        }
        let bytes = (fixed / per_byte).ceil();
        (per_byte > 0.0 && bytes < u64::MAX as f64).then_some(bytes as u64)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn cost(fixed_us: f64, per_byte_us: f64) -> Cost {
        Cost {
            fixed_us: Microseconds::new(fixed_us).unwrap(),
            per_byte_us: Microseconds::new(per_byte_us).unwrap(),
        }
    }

    /// Section 5.2.1: MD5 takes 142.6 us a KB, a message there and back 550 us, and Java is 71
    /// times as slow as C.
    pub(crate) fn paper() -> Workload {
        let per_byte_us = 142.6 / 1024.0;
        Workload {
            name: "MD5 on the Sparc20".to_owned(),
            call: cost(550.0, 0.0),
            applet: cost(0.0, per_byte_us),
            interface: cost(0.0, 71.0 * per_byte_us),
        }
    }

    /// Figure 9 of the paper is predicted from its three numbers.
    #[test]
    fn figure_9_is_predicted_from_three_numbers() {
        let workload = paper();
        assert!((workload.speedup().unwrap() - 71.0).abs() < 1e-9);
        assert!((workload.applet_us(1 << 20) - (550.0 + 142.6 * 1024.0)).abs() < 1e-6);
        // Table 3: 146 ms for 1 MB in C, 158 ms with the call, 10368 ms in Java.
        assert!((workload.applet_us(1 << 20) / 158e3 - 1.0).abs() < 0.08);
        assert!((workload.interface_us(1 << 20) / 10_368e3 - 1.0).abs() < 0.01);
    }

    /// The smallest input that pays is where the two lines cross.
    #[test]
    fn smallest_paying_input_is_where_lines_cross() {
        let workload = paper();
        let bytes = workload.break_even_bytes().unwrap();
        assert_eq!(bytes, 57, "550 / (70 * 142.6 / 1024) = 56.4");
        assert!(workload.applet_us(bytes) <= workload.interface_us(bytes));
        assert!(workload.applet_us(bytes - 1) > workload.interface_us(bytes - 1));
    }

    /// An input that costs more to transfer than to compute never pays.
    #[test]
    fn input_with_costly_transfer_never_pays() {
        let mut workload = paper();
        workload.call = cost(1.0, 20.0);
        assert_eq!(workload.break_even_bytes(), None);
        workload.call = cost(0.0, 20.0);
        assert_eq!(workload.break_even_bytes(), None);
        workload.call = cost(0.0, 0.0);
        assert_eq!(workload.break_even_bytes(), Some(0));
        workload.interface = workload.applet;
        assert_eq!(workload.break_even_bytes(), Some(0), "equal for every size");
        workload.call = cost(1.0, 0.0);
        assert_eq!(workload.break_even_bytes(), None, "no speed-up, and a call");
    }
}
