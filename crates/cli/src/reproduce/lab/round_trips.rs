// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FlowBlaze's Figure 9: round-trip times.

use flowloom_lab::{Bed, RoundTrips, Station, Wires, round_trips};
use serde_json::{Value as Json, json};

use super::super::chart::Panel;
use super::flow_rates::frame_bytes;
use super::live_rates::forms;
use super::setup::{Form, UDP_FIREWALL, require_kernel};
use super::{Figure, Lab};
use crate::args::LabEngine;
use crate::failure::Failure;
use crate::output::table;

const ENGINES: [LabEngine; 5] = [LabEngine::Kernel, LabEngine::AfXdp, LabEngine::Raw, LabEngine::Tap, LabEngine::Dpdk];
const PORTS: u32 = 2;
const SIZES: [u16; 3] = [64, 512, 1518];
const CABLE: &str = "cable";

/// A bar of the figure.
struct Bar {
    engine: &'static str,
    /// None for the cable.
    form: Option<Form>,
    size: u16,
    found: RoundTrips,
}

impl Bar {
    fn new(engine: &'static str, form: Option<Form>, size: u16) -> Bar {
        Bar { engine, form, size, found: RoundTrips { ns: Vec::new(), lost: 0 } }
    }

    fn add(&mut self, found: RoundTrips) {
        self.found.ns.extend(found.ns);
        self.found.ns.sort_unstable();
        self.found.lost += found.lost;
    }

    fn median_us(&self) -> f64 {
        self.found.quantile_us(0.5)
    }
}

pub(super) fn measure(lab: &mut Lab<'_>) -> Result<Figure, Failure> {
    let engines = lab.engines(&ENGINES)?;
    let sizes = Lab::list(&lab.options().sizes, &SIZES);
    let packets = lab.options().packets.unwrap_or(1000);
    if engines.iter().any(|engine| matches!(engine, LabEngine::Kernel | LabEngine::AfXdp)) {
        require_kernel()?;
    }
    let rounds = lab.rounds();
    lab.bar.set_length(u64::from(rounds) * (engines.len() * Form::ALL.len() * sizes.len() + sizes.len()) as u64);
    let cable = Bed::new(Wires::Cable, PORTS)?;
    let mut beds = Vec::new();
    for engine in engines {
        let ready = forms(lab, engine, &[UDP_FIREWALL])?;
        beds.push((engine, engine.bed(PORTS, 1)?, ready));
    }
    let mut bars: Vec<Bar> = Vec::new();
    for &size in &sizes {
        bars.push(Bar::new(CABLE, None, size));
        for (engine, _, ready) in &beds {
            bars.extend(ready.iter().map(|ready| Bar::new(engine.name(), Some(ready.form), size)));
        }
    }
    for _ in 0..rounds {
        let mut bars = bars.iter_mut();
        for &size in &sizes {
            let bytes = frame_bytes(size);
            lab.step(format!("{CABLE}, {size} bytes"));
            let found = round_trips(&cable, &Station::Cable, bytes, packets, lab.stop)?;
            bars.next().into_iter().for_each(|bar| bar.add(found.clone()));
            for (engine, bed, ready) in &beds {
                for ready in ready {
                    lab.step(format!("{}, {}, {size} bytes", engine.name(), ready.form.name()));
                    let found =
                        ready.on(*engine, (PORTS, 1), |station| round_trips(bed, station, bytes, packets, lab.stop))?;
                    bars.next().into_iter().for_each(|bar| bar.add(found.clone()));
                }
            }
        }
    }
    Ok(figure(&bars))
}

/// The bar of the same size.
fn beside<'a>(bars: &'a [Bar], bar: &Bar, engine: &str, form: Option<Form>) -> Option<&'a Bar> {
    bars.iter().find(|other| (other.engine, other.form, other.size) == (engine, form, bar.size))
}

/// The times over the cable and over the bare engine, in microseconds.
fn over(bars: &[Bar], bar: &Bar) -> (Option<f64>, Option<f64>) {
    let over = |other: Option<&Bar>| other.map(|other| bar.median_us() - other.median_us());
    let form = bar.form.filter(|form| *form != Form::Bare);
    let bare = form.and_then(|_| beside(bars, bar, bar.engine, Some(Form::Bare)));
    (bar.form.and_then(|_| over(beside(bars, bar, CABLE, None))), over(bare))
}

fn json(bars: &[Bar], bar: &Bar) -> Json {
    let (over_cable, over_bare) = over(bars, bar);
    json!({
        "engine": bar.engine, "form": bar.form.map(Form::name), "bytes": bar.size, "round_trips": bar.found.ns.len(),
        "lost": bar.found.lost, "median_us": bar.median_us(), "p99_us": bar.found.quantile_us(0.99),
        "low_us": bar.found.quantile_us(0.25), "high_us": bar.found.quantile_us(0.75),
        "over_cable_us": over_cable, "over_bare_us": over_bare,
    })
}

fn figure(bars: &[Bar]) -> Figure {
    let header = ["engine", "form", "bytes", "median us", "99% us", "over cable", "over bare", "lost"];
    let row = |bar: &Bar| {
        let (over_cable, over_bare) = over(bars, bar);
        let signed = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{us:+.1}"));
        vec![
            bar.engine.to_owned(),
            bar.form.map_or("-", Form::name).to_owned(),
            bar.size.to_string(),
            format!(
                "{:.1} ({:.1} to {:.1})",
                bar.median_us(),
                bar.found.quantile_us(0.25),
                bar.found.quantile_us(0.75)
            ),
            format!("{:.1}", bar.found.quantile_us(0.99)),
            signed(over_cable),
            signed(over_bare),
            bar.found.lost.to_string(),
        ]
    };
    // By engine and form, as the paper draws them.
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut panels: Vec<Panel> = Vec::new();
    let mut sizes: Vec<u16> = bars.iter().map(|bar| bar.size).collect();
    sizes.dedup();
    sizes.sort_unstable();
    sizes.dedup();
    for first in bars.iter().filter(|bar| Some(&bar.size) == bars.first().map(|bar| &bar.size)) {
        let of_sizes = || {
            sizes.iter().map(|size| {
                bars.iter().find(|bar| (bar.engine, bar.form, bar.size) == (first.engine, first.form, *size))
            })
        };
        rows.extend(of_sizes().flatten().map(row));
        let values: Vec<Option<f64>> = of_sizes().map(|bar| bar.map(Bar::median_us)).collect();
        let title = format!("{}, median of round trips in us by bytes", first.engine);
        if first.form.is_none() {
            continue;
        }
        if panels.last().is_none_or(|panel| panel.title != title) {
            let cable = sizes
                .iter()
                .map(|size| bars.iter().find(|bar| bar.form.is_none() && bar.size == *size).map(Bar::median_us));
            panels.push(Panel {
                title,
                groups: sizes.iter().map(u16::to_string).collect(),
                series: vec![(CABLE.to_owned(), cable.collect())],
            });
        }
        if let Some(panel) = panels.last_mut() {
            panel.series.push((first.form.map_or(CABLE, Form::name).to_owned(), values));
        }
    }
    Figure {
        tables: format!("\n{}", table(&header, &rows, &[2, 3, 4, 5, 6, 7])),
        found: claims(bars),
        values: json!({ "bars": bars.iter().map(|bar| json(bars, bar)).collect::<Vec<_>>() }),
        panels,
        is_off: false,
    }
}

/// What the measurements say to the paper's statements.
fn claims(bars: &[Bar]) -> Vec<(&'static str, String)> {
    let functions =
        |engine: &'static str| bars.iter().filter(move |bar| bar.engine == engine && bar.form == Some(Form::Function));
    let range = |values: Vec<f64>| {
        let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(format!("{least:+.1} to {most:+.1} us"))
    };
    let mut overhead = Vec::new();
    let mut over_cable = Vec::new();
    for engine in ENGINES.map(LabEngine::name) {
        let (cable, bare): (Vec<_>, Vec<_>) = functions(engine).map(|bar| over(bars, bar)).unzip();
        overhead.extend(range(bare.into_iter().flatten().collect()).map(|text| format!("{engine} {text}")));
        over_cable.extend(range(cable.into_iter().flatten().collect()).map(|text| (engine, text)));
    }
    let mut found = Vec::new();
    if !overhead.is_empty() {
        found.push(("overhead", format!("median of the function over the bare engine: {}", overhead.join(", "))));
    }
    let texts = |is_kernel: bool| {
        let texts = over_cable.iter().filter(|(engine, _)| (*engine == LabEngine::Kernel.name()) == is_kernel);
        texts.map(|(engine, text)| format!("{engine} {text}")).collect::<Vec<_>>().join(", ")
    };
    for (name, text) in [("mswitch", texts(false)), ("xdp", texts(true))] {
        if !text.is_empty() {
            found.push((name, format!("median of the function over the cable: {text}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(engine: &'static str, form: Option<Form>, size: u16, us: u64) -> Bar {
        let ns = (0..101).map(|number| 1000 * us + number).collect();
        Bar { engine, form, size, found: RoundTrips { ns, lost: 0 } }
    }

    #[test]
    fn times_are_compared_with_the_cable_and_the_bare_engine_of_the_same_size() {
        let all = |size: u16, us: u64| {
            [
                bar(CABLE, None, size, us),
                bar("raw", Some(Form::Bare), size, us + 20),
                bar("raw", Some(Form::Function), size, us + 21),
            ]
        };
        let bars: Vec<Bar> = all(64, 10).into_iter().chain(all(512, 30)).collect();
        let found = figure(&bars);
        let claims: std::collections::BTreeMap<&str, String> = found.found.into_iter().collect();
        assert!(claims["overhead"].ends_with("raw +1.0 to +1.0 us"), "{claims:?}");
        assert!(claims["mswitch"].ends_with("raw +21.0 to +21.0 us"), "{claims:?}");
        assert!(!claims.contains_key("xdp"), "the kernel was not measured");
        assert!(found.tables.contains("51.1"), "the 99th percentile: {}", found.tables);
        assert_eq!(found.panels[0].series[2].1.len(), 2);
    }
}
