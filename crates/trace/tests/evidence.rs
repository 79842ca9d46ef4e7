// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long-running checks of this crate, run and recorded by `make evidence`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::{NETWORKS, census};
use flowloom_trace::{TrafficOptions, Unit};

/// Ten seconds of each generated network, compared with the paper's row for the trace it models. Mean length and flows
/// active in 10 s match within 5% for all three keys. The maximum of new flows per millisecond matches within 15% and
/// never exceeds the paper's. For CAIDA 2019 and MAWI 2021 the paper prints mean length and number of flows only.
#[test]
#[ignore = "a proof"]
fn evidence_profiles() {
    println!("profile    figure                               here      paper    deviation  limit");
    for profile in NETWORKS {
        let info = census(&TrafficOptions::new(profile));
        assert!(info.covers_window() && info.steps_back_in_time == 0, "{}", profile.name());
        for figure in info.compare(profile.row().unwrap()) {
            let show = |value: f64| match figure.unit {
                Unit::Bytes => format!("{value:.1} B"),
                Unit::Flows => format!("{value:.0}"),
                Unit::Share => format!("{:.1}%", value * 100.0),
            };
            let (name, deviation) = (profile.name(), figure.deviation * 100.0);
            let deviation = format!("{deviation:+.1}{}", if figure.unit == Unit::Share { " points" } else { "%" });
            let limit = figure.limit.map_or_else(|| "-".to_owned(), |limit| format!("{:.0}%", limit * 100.0));
            let (words, here, paper) = (&figure.figure, figure.measured, figure.paper);
            println!("{name:9}  {words:30}  {:>9}  {:>9}  {deviation:>11}  {limit:>5}", show(here), show(paper));
            assert!(figure.is_within_tolerance(), "{name}: {figure:?}");
            assert!(!words.starts_with("new") || here <= paper, "{name}: {figure:?}");
        }
    }
}
