//! The results of the race against browsers, as keys.

use super::Times;
use crate::report::{Goal, Outcome};
use crate::stats::Series;

/// Keys, who is slower, who is quicker, and what the ratio should come to.
const RATIOS: [(&str, &str, &str, Option<Goal>); 15] = [
    ("reopen_vs_dillo_cold", "dillo", "ours_warm", Some(Goal::AtLeast(3.0))),
    ("reopen_on_disk_vs_dillo_cold", "dillo", "ours_warm_on_disk", Some(Goal::AtLeast(3.0))),
    ("reopen_asked_vs_dillo_cold", "dillo", "ours_warm_asked", Some(Goal::AtLeast(3.0))),
    ("reopen_window_vs_dillo_cold", "dillo", "ours_window_warm", Some(Goal::AtLeast(3.0))),
    ("cold_window_vs_dillo_cold", "dillo", "ours_window_cold", None),
    ("reopen_window_vs_chromium_window_warm", "chromium_window_warm", "ours_window_warm", None),
    ("reopen_vs_dillo_whole", "dillo_whole", "ours_warm", None),
    ("cold_vs_dillo_cold", "dillo", "ours_cold", None),
    ("reopen_vs_chromium_cold", "chromium_cold", "ours_warm", None),
    ("reopen_vs_chromium_warm", "chromium_warm", "ours_warm", None),
    ("reopen_on_disk_vs_chromium_warm_on_disk", "chromium_warm_on_disk", "ours_warm_on_disk", None),
    ("reopen_vs_chromium_window_warm", "chromium_window_warm", "ours_warm", None),
    ("cold_vs_chromium_cold", "chromium_cold", "ours_cold", None),
    ("cold_vs_chromium_window_cold", "chromium_window_cold", "ours_cold", None),
    ("dillo_vs_chromium_window_cold", "chromium_window_cold", "dillo", None),
];
/// Those that are told of each page.
const OF_PAGES: [&str; 2] = ["reopen_vs_dillo_cold", "reopen_window_vs_dillo_cold"];
const SIDES: [&str; 14] = [
    "ours_cold",
    "ours_warm",
    "ours_warm_on_disk",
    "ours_warm_asked",
    "ours_window_cold",
    "ours_window_warm",
    "dillo",
    "dillo_whole",
    "chromium_cold",
    "chromium_warm",
    "chromium_cold_on_disk",
    "chromium_warm_on_disk",
    "chromium_window_cold",
    "chromium_window_warm",
];

pub(super) fn tell(all: &[(&str, Times)], outcome: &mut Outcome) {
    for (key, slower, quicker, goal) in RATIOS {
        let ratio = |times: &Times| Some(times.of(slower)?.over(times.of(quicker)?));
        let of_page: Vec<(&str, Series)> =
            all.iter().filter_map(|(name, times)| Some((*name, ratio(times)?))).collect();
        let medians = of_page.iter().map(|(_, series)| series.median()).collect::<Series>();
        outcome.add(key, (medians.count() > 0).then_some(medians), "x", goal);
        for (name, series) in of_page.into_iter().filter(|_| OF_PAGES.contains(&key)) {
            outcome.add(format!("{key}/{name}"), Some(series), "x", goal);
        }
    }
    let saving = |times: &Times| {
        let ratio = times.of("ours_window_warm")?.over(times.of("ours_window_cold")?);
        Some(ratio.map(|ratio| (1.0 - ratio) * 100.0))
    };
    let savings: Series =
        all.iter().filter_map(|(_, times)| Some(saving(times)?.median())).collect();
    outcome.add(
        "reopen_saving_in_window_pct",
        (savings.count() > 0).then_some(savings),
        "%",
        Some(Goal::AtLeast(85.0)),
    );
    for side in SIDES {
        let of_page: Vec<(&str, &Series)> =
            all.iter().filter_map(|(name, times)| Some((*name, times.of(side)?))).collect();
        let medians = of_page.iter().map(|(_, series)| series.median()).collect::<Series>();
        outcome.add(
            format!("browser_ms/{side}"),
            (medians.count() > 0).then_some(medians),
            "ms",
            None,
        );
        for (name, series) in of_page {
            outcome.add(format!("browser_ms/{side}/{name}"), Some(series.clone()), "ms", None);
        }
    }
}
