// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FlowBlaze's Figure 7: forwarding rates of a bare engine, hand-written C and a function.

use flowloom_lab::{Load, Packets, Rate, rate};
use serde_json::{Value as Json, json};

use super::super::chart::Panel;
use super::flow_rates::frame_bytes;
use super::setup::{BIG_FLOW, Form, Ready, Twins, UDP_FIREWALL, require_kernel};
use super::spread::{Spread, ratio};
use super::{Figure, Lab};
use crate::args::LabEngine;
use crate::failure::Failure;
use crate::output::table;

const ENGINES: [LabEngine; 5] = [LabEngine::Kernel, LabEngine::AfXdp, LabEngine::Raw, LabEngine::Tap, LabEngine::Dpdk];
const FUNCTIONS: [Twins; 2] = [UDP_FIREWALL, BIG_FLOW];
const PORTS: u32 = 2;
/// The paper's number of flows, and of bytes.
const FLOWS: u64 = 4;
const SIZES: [u16; 1] = [64];

/// A bar of the figure.
struct Bar {
    engine: LabEngine,
    cores: u32,
    function: &'static str,
    form: Form,
    size: u16,
    rates: Vec<Rate>,
}

impl Bar {
    fn mpps(&self) -> Vec<f64> {
        self.rates.iter().map(|rate| rate.per_second / 1e6).collect()
    }

    fn cpu_ns(&self) -> Option<Spread> {
        Spread::of(&self.rates.iter().filter_map(|rate| rate.cpu_ns).collect::<Vec<_>>())
    }

    fn sender_ns(&self) -> Option<Spread> {
        Spread::of(&self.rates.iter().map(|rate| rate.sender_ns).collect::<Vec<_>>())
    }

    /// Nanoseconds of the CPU on which the function runs: in the kernel the sender's.
    fn busy_ns(&self) -> Vec<f64> {
        self.rates.iter().map(|rate| rate.cpu_ns.unwrap_or(rate.sender_ns)).collect()
    }

    /// The share of packets that were sent and did not arrive: the sender does not wait for the function.
    fn lost(&self) -> f64 {
        let (sent, arrived) = self.rates.iter().fold((0, 0), |(s, a), rate| (s + rate.sent, a + rate.arrived));
        1.0 - arrived.min(sent) as f64 / sent.max(1) as f64
    }

    fn is_of(&self, other: &Bar) -> bool {
        (self.engine, self.cores, self.size) == (other.engine, other.cores, other.size)
    }
}

/// The forms of all functions that can be compiled here.
pub(super) fn forms(lab: &mut Lab<'_>, engine: LabEngine, functions: &[Twins]) -> Result<Vec<Ready>, Failure> {
    let folder = lab.args.functions.clone();
    let mut all = vec![Ready::new(&folder, engine, None, Form::Bare)?];
    for twins in functions {
        for form in [Form::C, Form::Function] {
            match Ready::new(&folder, engine, Some(*twins), form) {
                Ok(ready) => all.push(ready),
                Err(Failure::Environment(reason)) if form == Form::C => {
                    lab.note(format!("{} without hand-written C: {reason}", engine.name()));
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(all)
}

pub(super) fn measure(lab: &mut Lab<'_>) -> Result<Figure, Failure> {
    let engines = lab.engines(&ENGINES)?;
    let cores = Lab::list(&lab.options().cores, &[1, 2]);
    let sizes = Lab::list(&lab.options().sizes, &SIZES);
    let time = lab.options().time.unwrap_or(std::time::Duration::from_millis(500));
    if engines.iter().any(|engine| matches!(engine, LabEngine::Kernel | LabEngine::AfXdp)) {
        require_kernel()?;
    }
    let rounds = lab.rounds();
    let steps = (rounds + 1) as usize * engines.len() * (1 + 2 * FUNCTIONS.len()) * cores.len() * sizes.len();
    lab.bar.set_length(steps as u64);
    let mut bars: Vec<Bar> = Vec::new();
    for engine in engines {
        let ready = forms(lab, engine, &FUNCTIONS)?;
        for &cores in &cores {
            if cores > 1 && engine != LabEngine::Kernel {
                lab.note(format!(
                    "{} on {cores} cores: threads share CPUs with the sender; one runs all packets where it is faster",
                    engine.name()
                ));
            }
            let bed = engine.bed(PORTS, cores)?;
            for &size in &sizes {
                let first = bars.len();
                bars.extend(ready.iter().map(|ready| Bar {
                    engine,
                    cores,
                    function: ready.function(),
                    form: ready.form,
                    size,
                    rates: Vec::new(),
                }));
                // In the kernel, a program runs on the CPU of its sender.
                let senders = if engine == LabEngine::Kernel { cores as usize } else { 1 };
                let load = Load { packets: Packets::Udp, bytes: frame_bytes(size), flows: FLOWS, senders };
                // The first round warms up.
                for round in 0..=rounds {
                    for (ready, bar) in ready.iter().zip(&mut bars[first..]) {
                        let (function, form) = (ready.function(), ready.form.name());
                        lab.step(format!("{}, {cores} cores, {function} {form}", engine.name()));
                        let found =
                            ready.on(engine, (PORTS, cores), |station| rate(&bed, station, load, time, lab.stop))?;
                        if round > 0 {
                            bar.rates.push(found);
                        }
                    }
                }
            }
        }
    }
    Ok(figure(&bars))
}

fn json(bar: &Bar) -> Json {
    json!({
        "engine": bar.engine.name(), "cores": bar.cores, "function": bar.function, "form": bar.form.name(),
        "bytes": bar.size, "mpps": Spread::of(&bar.mpps()).map(Spread::json), "rounds_mpps": bar.mpps(),
        "cpu_ns": bar.cpu_ns().map(Spread::json), "sender_ns": bar.sender_ns().map(Spread::json), "lost": bar.lost(),
    })
}

fn figure(bars: &[Bar]) -> Figure {
    let header =
        ["engine", "cores", "bytes", "function", "form", "Mpps", "of bare", "of C", "CPU ns", "sender ns", "not taken"];
    let rows = bars.iter().map(|bar| {
        let bare = bars.iter().find(|other| bar.is_of(other) && other.form == Form::Bare);
        let c = bars.iter().find(|other| bar.is_of(other) && other.form == Form::C && other.function == bar.function);
        let of = |other: Option<&Bar>| {
            let other = other.filter(|other| other.form < bar.form)?;
            Some(format!("{:.2}", ratio(&bar.mpps(), &other.mpps())?.median))
        };
        vec![
            bar.engine.name().to_owned(),
            bar.cores.to_string(),
            bar.size.to_string(),
            bar.function.to_owned(),
            bar.form.name().to_owned(),
            Spread::of(&bar.mpps()).map_or("-".to_owned(), |mpps| mpps.text(3)),
            of(bare).unwrap_or_default(),
            of(c).unwrap_or_default(),
            bar.cpu_ns().map_or_else(String::new, |ns| format!("{:.0}", ns.median)),
            bar.sender_ns().map_or_else(String::new, |ns| format!("{:.0}", ns.median)),
            format!("{:.0}%", 100.0 * bar.lost()),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut tables = format!("\n{}", table(&header, &rows, &[1, 2, 5, 6, 7, 8, 9, 10]));
    tables.push_str("`not taken`: packets of the sender, which does not wait, beyond the rate\n");
    let mut panels: Vec<Panel> = Vec::new();
    for bar in bars {
        let title = format!("{} bytes, {FLOWS} flows, Mpps", bar.size);
        if !panels.iter().any(|panel| panel.title == title) {
            panels.push(Panel { title: title.clone(), ..Panel::default() });
        }
        let Some(panel) = panels.iter_mut().find(|panel| panel.title == title) else { continue };
        let group =
            if bar.cores > 1 { format!("{} ({})", bar.engine.name(), bar.cores) } else { bar.engine.name().to_owned() };
        let number = panel.groups.iter().position(|known| *known == group).unwrap_or_else(|| {
            panel.groups.push(group);
            panel.groups.len() - 1
        });
        let name =
            if bar.form == Form::Bare { "bare".to_owned() } else { format!("{} {}", bar.function, bar.form.name()) };
        let at = panel.series.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            panel.series.push((name, Vec::new()));
            panel.series.len() - 1
        });
        let values = &mut panel.series[at].1;
        values.resize(values.len().max(number + 1), None);
        values[number] = Spread::of(&bar.mpps()).map(|mpps| mpps.median);
    }
    Figure {
        tables,
        found: claims(bars),
        values: json!({ "bars": bars.iter().map(json).collect::<Vec<_>>(), "flows": FLOWS }),
        panels,
        is_off: false,
    }
}

/// What the measurements say to the paper's statements.
fn claims(bars: &[Bar]) -> Vec<(&'static str, String)> {
    let of = |engine: LabEngine, cores: u32, form: Form, function: &str| {
        let found = bars.iter().find(|bar| {
            (bar.engine, bar.cores, bar.form) == (engine, cores, form)
                && (form == Form::Bare || bar.function == function)
        });
        found.map(Bar::mpps)
    };
    let busy = |engine: LabEngine, form: Form, function: &str| {
        let found =
            bars.iter().find(|bar| (bar.engine, bar.cores, bar.form, bar.function) == (engine, 1, form, function));
        found.map(Bar::busy_ns)
    };
    let mut found = Vec::new();
    let (mut overhead, mut cores, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for engine in ENGINES {
        for Twins { name, .. } in FUNCTIONS {
            let function = of(engine, 1, Form::Function, name);
            let c = busy(engine, Form::Function, name).zip(busy(engine, Form::C, name));
            if let Some(of_c) = c.and_then(|(function, c)| ratio(&function, &c)) {
                overhead.push(format!("{} {name} {}", engine.name(), of_c.text(2)));
            }
            let two = of(engine, 2, Form::Function, name).zip(function);
            if let Some(of_one) = two.and_then(|(two, one)| ratio(&two, &one)) {
                cores.push(format!("{} {name} {}", engine.name(), of_one.text(2)));
            }
        }
        if let Some(rate) = of(engine, 1, Form::Bare, "").and_then(|rates| Spread::of(&rates)) {
            bare.push(format!("{} {:.2} Mpps", engine.name(), rate.median));
        }
    }
    let mut claim = |name, what: &str, values: Vec<String>| {
        if !values.is_empty() {
            found.push((name, format!("{what}: {}", values.join(", "))));
        }
    };
    claim("overhead", "CPU time of a packet with the function, times that with C", overhead);
    claim("cores", "rate on 2 cores, times that on 1, senders included", cores);
    claim("bare", "on one core, over veth", bare);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(form: Form, cores: u32, mpps: f64) -> Bar {
        let rate = Rate { per_second: 1e6 * mpps, sent: 10, arrived: 5, cpu_ns: None, sender_ns: 1000.0 / mpps };
        let function = if form == Form::Bare { "-" } else { "big_flow" };
        Bar { engine: LabEngine::Kernel, cores, function, form, size: 64, rates: vec![rate; 3] }
    }

    #[test]
    fn rows_and_claims_compare_forms_and_cores() {
        let bars =
            [bar(Form::Bare, 1, 2.0), bar(Form::C, 1, 1.0), bar(Form::Function, 1, 0.9), bar(Form::Function, 2, 1.8)];
        let found = figure(&bars);
        let lines: Vec<&str> = found.tables.lines().filter(|line| line.contains("function  0.9")).collect();
        assert!(
            lines.len() == 1 && lines[0].contains("0.45") && lines[0].contains("0.90") && lines[0].contains("50%"),
            "{}",
            found.tables
        );
        let claims: Vec<&str> = found.found.iter().map(|(_, text)| text.as_str()).collect();
        assert!(claims[0].ends_with("kernel big_flow 1.11 (1.11 to 1.11)"), "{claims:?}");
        assert!(claims[1].ends_with("kernel big_flow 2.00 (2.00 to 2.00)"), "{claims:?}");
        assert_eq!(found.panels[0].groups, ["kernel", "kernel (2)"]);
        assert_eq!(found.panels[0].series[2].1, [Some(0.9), Some(1.8)]);
    }
}
