//! Compares two outputs, apart from what differs from run to run and from machine to machine.
//!
//! Both sides pass through the same rules, so a document shows real values, not place-holders. What
//! differs is: addresses, dates, points in time (seconds since 1970), durations, fingerprints and
//! file sums, and how wide the columns of a table are because of these.

use regex_lite::Regex;

/// The rules. Compiled once for all comparisons of a test.
pub(crate) struct Rules {
    rules: Vec<(Regex, &'static str)>,
    number: Regex,
}

impl Rules {
    pub(crate) fn new() -> Rules {
        let rules = [
            (r"\b[0-9a-f]{64}\b", "SUM"),
            (r"\b[0-9a-f]{16}\b", "SUM"),
            (r"0x[0-9a-f]{7,16}\b", "ADDRESS"),
            (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?", "DATE"),
            (r"\b1[0-9]{9}\b", "TIME"),
            (r"\b[0-9]+(\.[0-9]+)? ?(ns|us|ms|s)\b", "DURATION"),
            // Of data with a point in time in it.
            (r"differ in [0-9]+ bytes", "differ in BYTES"),
            (r"[ \t]+", " "),
            // Rules of tables, which are as long as their columns.
            (r"-{3,}", "---"),
            (r" $", ""),
        ];
        let compile = |text: &str| Regex::new(text).expect("the rule is a regular expression");
        Rules {
            rules: rules.map(|(text, with)| (compile(&format!("(?m){text}")), with)).into(),
            number: compile(r"[0-9]+([.,][0-9]+)*"),
        }
    }

    /// What is compared of an output.
    pub(crate) fn essence(&self, output: &str, numbers_vary: bool) -> String {
        let mut text = output.trim_end().to_owned();
        for (rule, with) in &self.rules {
            text = rule.replace_all(&text, *with).into_owned();
        }
        if numbers_vary {
            text = self.number.replace_all(&text, "N").into_owned();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_run_are_the_same_and_words_are_not() {
        let rules = Rules::new();
        let same = |a, b| assert_eq!(rules.essence(a, false), rules.essence(b, false));
        let other = |a, b| assert_ne!(rules.essence(a, false), rules.essence(b, false));
        same("at 0x7f9e64ebb310", "at 0x7ffd64ebb310");
        same("before-restore-1795276084", "before-restore-1795279999");
        same("2026-11-21 15:58  Ada", "2026-12-01 09:00  Ada");
        same("in 3.2 ms", "in 41 us");
        same("NAME    SIZE\n", "NAME SIZE\n\n");
        other("at 0x800: no head", "at 0x900: no head");
        other("3 objects", "4 objects");
        other("a limit of 5", "the limit of 5");
        assert_eq!(rules.essence("3 of 4,096", true), rules.essence("17 of 1", true));
        assert_ne!(rules.essence("3 of 4", true), rules.essence("3 in 4", true));
    }
}
