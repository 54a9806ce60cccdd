//! Why a snapshot cannot be had under a tag.

#![forbid(unsafe_code)]

use holdfast_types::Remedy;

/// Why a snapshot cannot be had under a tag.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is no such snapshot.
    #[error("the heap {name:?} has no snapshot {tag:?}{}", tags_text(name, tags))]
    Missing {
        /// Name of the region.
        name: String,
        /// The tag asked for.
        tag: String,
        /// Tags that there are.
        tags: Vec<String>,
    },
    /// There is one already, and snapshots never change.
    #[error(
        "the heap {name:?} has a snapshot {tag:?} already; choose another tag, or {}",
        Remedy::RemoveSnapshot { heap: name, tag }
    )]
    Exists {
        /// Name of the region.
        name: String,
        /// The tag asked for.
        tag: String,
    },
}

fn tags_text(name: &str, tags: &[String]) -> String {
    match tags {
        [] => format!("; {}", Remedy::TakeSnapshot { heap: name }),
        tags => format!("; there are: {}", tags.join(", ")),
    }
}
