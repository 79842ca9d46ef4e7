// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times over the number of flows, drawn as SVG: both axes are logarithmic.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::error::BenchError;
use crate::measure::Comparison;
use crate::tool;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// The room for labels around the curves.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// The colours of contenders, ours first.
const COLOURS: [&str; 8] = ["#1b6ca8", "#d1495b", "#edae49", "#5a9367", "#7a5195", "#444444", "#00838f", "#8d6e63"];

/// Points of a contender: flows and nanoseconds.
type Curve = BTreeMap<u64, f64>;

/// The curves of one name.
#[derive(Default)]
struct Chart(Vec<(String, Curve)>);

impl Chart {
    fn add(&mut self, contender: &str, flows: u64, ns: f64) {
        let at = self.0.iter().position(|(name, _)| name == contender).unwrap_or_else(|| {
            self.0.push((contender.to_owned(), Curve::new()));
            self.0.len() - 1
        });
        self.0[at].1.insert(flows, ns);
    }

    fn render(&self, name: &str) -> String {
        let points = || self.0.iter().flat_map(|(_, curve)| curve);
        let flows: BTreeSet<u64> = points().map(|(flows, _)| *flows).collect();
        let (least, most) =
            points().fold((f64::MAX, f64::MIN), |(least, most), (_, ns)| (least.min(*ns), most.max(*ns)));
        let decades = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
        let ends =
            (flows.first().map_or(0.0, |n| (*n as f64).log10()), flows.last().map_or(1.0, |n| (*n as f64).log10()));
        let x = |flows: u64| LEFT + ((flows as f64).log10() - ends.0) / (ends.1 - ends.0) * (WIDTH - LEFT - RIGHT);
        let y =
            |ns: f64| HEIGHT - BOTTOM - (ns.log10() - decades.0) / (decades.1 - decades.0) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"{LEFT}\" y=\"20\" \
             font-size=\"14\">{name}: nanoseconds by flows</text>\n"
        );
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut line = |text: std::fmt::Arguments<'_>| svg.write_fmt(format_args!("{text}\n")).unwrap_or_default();
        for decade in decades.0 as i32..=decades.1 as i32 {
            let ns = 10f64.powi(decade);
            let at = y(ns);
            line(format_args!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#dddddd\"/>"));
            line(format_args!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ns}</text>", LEFT - 6.0, at + 4.0));
        }
        for flows in &flows {
            let at = x(*flows);
            line(format_args!("<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#dddddd\"/>"));
            line(format_args!("<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{flows}</text>", bottom + 18.0));
        }
        for (number, (contender, curve)) in self.0.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points: Vec<String> =
                curve.iter().map(|(flows, ns)| format!("{:.1},{:.1}", x(*flows), y(*ns))).collect();
            let points = points.join(" ");
            line(format_args!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
            let at = TOP + 16.0 * number as f64 + 8.0;
            line(format_args!("<text x=\"{:.1}\" y=\"{at:.1}\" fill=\"{colour}\">{contender}</text>", right + 10.0));
        }
        svg + "</svg>\n"
    }
}

/// Writes a drawing for each name that has several numbers of flows.
pub(crate) fn write(comparisons: &[Comparison], folder: &Path) -> Result<(), BenchError> {
    let mut charts: BTreeMap<&str, Chart> = BTreeMap::new();
    for comparison in comparisons {
        let chart = charts.entry(&comparison.name).or_default();
        chart.add(&comparison.ours, comparison.flows, comparison.ours_ns);
        chart.add(&comparison.peer, comparison.flows, comparison.peer_ns);
    }
    for (name, chart) in charts {
        if chart.0.iter().any(|(_, curve)| curve.len() > 1) {
            tool::write(&folder.join(format!("{name}.svg")), &chart.render(name))?;
        }
    }
    Ok(())
}
