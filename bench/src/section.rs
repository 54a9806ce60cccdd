//! A suite is made of sections, each with a name; one of them is run, or all.

use std::io::{self, Error};

use crate::report::Outcome;

/// The sections that are meant: the one with the name `only`, or all.
///
/// # Errors
/// When there is no such section.
pub(crate) fn chosen<Section: Copy>(
    sections: &[(&'static str, Section)],
    only: Option<&str>,
) -> io::Result<Vec<(&'static str, Section)>> {
    let chosen: Vec<_> = sections
        .iter()
        .copied()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = sections.iter().map(|(name, _)| *name).collect();
        return Err(Error::other(format!(
            "there is no such section; there are: {}",
            names.join(", ")
        )));
    }
    Ok(chosen)
}

/// Runs sections; `progress` gets the name of each step.
///
/// # Errors
/// What a section reports.
pub(crate) fn run<Section>(
    chosen: Vec<(&'static str, Section)>,
    progress: &mut dyn FnMut(&str),
    work: impl Fn(Section, &mut Outcome) -> io::Result<()>,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, section) in chosen {
        progress(name);
        work(section, &mut outcome)?;
    }
    outcome.missing.sort();
    outcome.missing.dedup();
    Ok(outcome)
}
