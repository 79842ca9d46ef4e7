// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FB5G's experiment: three functions over packet sizes and numbers of flows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use flowloom_engine::InPlace;
use flowloom_exec::SweepClock;
use flowloom_isa::Program;
use flowloom_lab::{EGRESS, Forward, LabError, Load, MakeEngine, Memory, Order, Packets, Station, from_memory, rate};
use flowloom_session::{FunctionFile, Loaded};
use serde_json::{Value as Json, json};

use super::super::chart::Panel;
use super::setup::{machine_code, opener, require_kernel};
use super::spread::Spread;
use super::{Figure, Lab};
use crate::args::LabEngine;
use crate::failure::Failure;
use crate::output::{grouped, table};

/// Greatest relative difference of the rates of a series that counts as flat.
const FLAT: f64 = 0.2;
const FLOWS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const SIZES: [u16; 3] = [64, 512, 1024];
const ENGINES: [LabEngine; 4] = [LabEngine::Memory, LabEngine::AfXdp, LabEngine::Raw, LabEngine::Dpdk];
/// The ports of the functions: the one where packets arrive, the one where they leave, and the core's.
const PORTS: u32 = 3;
const INGRESS: u32 = 1;
/// The flows whose first packets follow each other.
const CHUNK: u64 = 4096;
/// The bytes of a check sequence.
const FCS_BYTES: usize = 4;

/// A function of the experiment.
struct Function {
    title: &'static str,
    name: &'static str,
    params: &'static [(&'static str, &'static str)],
    packets: Packets,
    /// The first packets of each flow, with their ports.
    first: &'static [(Packets, u32)],
}

const FUNCTIONS: [Function; 3] = [
    Function {
        title: "load balancer",
        name: "server_load_balancer",
        params: &[],
        packets: Packets::Tcp,
        first: &[(Packets::Tcp, INGRESS)],
    },
    Function {
        title: "policer",
        name: "policer",
        params: &[("out", "2"), ("interval", "1us")],
        packets: Packets::Udp,
        first: &[(Packets::Udp, INGRESS)],
    },
    Function {
        title: "offloading",
        name: "gtpu_offload",
        params: &[("edge", "2"), ("core", "3")],
        packets: Packets::Gtpu,
        // One that the function's echo request follows, the reply, and the packet that begins the connection: one that
        // begins earlier would stay with the core.
        first: &[(Packets::GtpuElsewhere, INGRESS), (Packets::GtpuReply, 3), (Packets::Gtpu, INGRESS)],
    },
];

/// A program whose tables have room for the flows.
fn program(lab: &Lab<'_>, function: &Function, flows: u64) -> Result<Program, Failure> {
    let path = lab.args.functions.join(function.name).join(format!("{}.efsm", function.name));
    let params = function.params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let loaded = Loaded::open(&FunctionFile { path, params, ..FunctionFile::default() })?;
    let mut program = loaded.program()?.as_ref().clone();
    for map in program.maps.iter_mut().filter(|map| map.layout.is_some() && map.max_entries > 1) {
        map.max_entries = (flows + flows / 4) as u32;
    }
    Ok(program)
}

/// Machine code whose tables hold all flows.
fn filled(program: &Program, function: &Function, flows: u64, stop: &AtomicBool) -> Result<Box<dyn InPlace>, LabError> {
    let (mut engine, _) = machine_code(&Loaded::of_program(program.clone()))?;
    let never = SweepClock::new(0);
    for from in (0..flows).step_by(CHUNK as usize) {
        for (packets, port) in function.first {
            let order = Order::Once { from, to: flows.min(from + CHUNK) };
            from_memory(engine.as_mut(), Memory::new(*packets, 0, *port, PORTS, order), &never, stop)?;
        }
    }
    Ok(engine)
}

/// A measured series: the rates of a function on an engine, by the number of flows.
struct Series {
    engine: LabEngine,
    title: &'static str,
    size: u16,
    /// By flows: millions of packets a second by round, and nanoseconds of the function's CPU a packet.
    points: BTreeMap<u64, (Vec<f64>, Vec<f64>)>,
}

impl Series {
    fn rate(&self, flows: u64) -> Option<Spread> {
        self.points.get(&flows).and_then(|(rates, _)| Spread::of(rates))
    }

    /// The least of the median rates, relative to the greatest one.
    fn least(&self) -> Option<f64> {
        let medians = || self.points.keys().filter_map(|flows| self.rate(*flows)).map(|spread| spread.median);
        let (least, most) = (medians().reduce(f64::min)?, medians().reduce(f64::max)?);
        (self.points.len() > 1).then(|| least / most)
    }

    fn json(&self) -> Json {
        let points = self.points.iter().map(|(flows, (rates, cpu))| {
            json!({
                "flows": flows, "mpps": Spread::of(rates).map(Spread::json),
                "cpu_ns": Spread::of(cpu).map(Spread::json), "rounds_mpps": rates,
            })
        });
        json!({
            "engine": self.engine.name(), "function": self.title, "bytes": self.size,
            "points": points.collect::<Vec<_>>(), "least_of_most": self.least(),
        })
    }
}

/// A size without the check sequence, which no engine sees.
pub(super) fn frame_bytes(size: u16) -> usize {
    usize::from(size) - FCS_BYTES
}

pub(super) fn measure(lab: &mut Lab<'_>) -> Result<Figure, Failure> {
    let engines = lab.engines(&ENGINES)?;
    let mut flows = Lab::list(&lab.options().flows, &FLOWS);
    flows.sort_unstable();
    let sizes = Lab::list(&lab.options().sizes, &SIZES);
    if engines.contains(&LabEngine::AfXdp) {
        require_kernel()?;
    }
    let rounds = u64::from(lab.rounds()) + 1;
    lab.bar.set_length(rounds * (engines.len() * FUNCTIONS.len() * sizes.len() * flows.len()) as u64);
    let mut series = Vec::new();
    let mut bare = BTreeMap::new();
    for engine in engines {
        for function in &FUNCTIONS {
            for &size in &sizes {
                series.push(match engine {
                    LabEngine::Memory => in_memory(lab, function, size, &flows, &mut bare)?,
                    engine => over_wires(lab, engine, function, size, &flows)?,
                });
            }
        }
    }
    Ok(figure(&flows, &series, &bare))
}

/// Rates from memory. The rounds of all numbers of flows, and of a bare forwarder, alternate.
fn in_memory(
    lab: &Lab<'_>,
    function: &Function,
    size: u16,
    flows: &[u64],
    bare: &mut BTreeMap<u16, Vec<f64>>,
) -> Result<Series, Failure> {
    let packets = u64::from(lab.options().packets.unwrap_or(1 << 20));
    let mut engines = Vec::new();
    for &flows in flows {
        let program = program(lab, function, flows)?;
        let (_, sweep) = machine_code(&Loaded::of_program(program.clone()))?;
        engines.push((flows, filled(&program, function, flows, lab.stop)?, sweep));
    }
    let mut series = Series { engine: LabEngine::Memory, title: function.title, size, points: BTreeMap::new() };
    for round in 0..=lab.rounds() {
        let memory = |flows, seed| {
            let order = Order::Random { flows, packets, seed };
            Memory::new(function.packets, frame_bytes(size), INGRESS, PORTS, order)
        };
        let ran = from_memory(&mut Forward, memory(1, 0), &SweepClock::new(0), lab.stop)?;
        if round > 0 {
            bare.entry(size).or_default().push(ran.packet_ns());
        }
        for (flows, engine, sweep) in &mut engines {
            lab.step(format!("memory, {}, {size} bytes, {} flows", function.title, grouped(*flows)));
            let ran = from_memory(engine.as_mut(), memory(*flows, round.into()), sweep, lab.stop)?;
            if lab.stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            let (all, forwarded) = (ran.found.packets, ran.found.devices.sent);
            if all != forwarded {
                let what =
                    format!("{}: {forwarded} of {all} packets left by port {EGRESS}, expected all", function.title);
                return Err(Failure::Found(what));
            }
            if round > 0 {
                let (rates, cpu) = series.points.entry(*flows).or_default();
                rates.push(1000.0 / ran.packet_ns());
                cpu.push(ran.packet_ns());
            }
        }
    }
    Ok(series)
}

/// Rates between two veth pairs.
fn over_wires(
    lab: &Lab<'_>,
    engine: LabEngine,
    function: &Function,
    size: u16,
    flows: &[u64],
) -> Result<Series, Failure> {
    let time = lab.options().time.unwrap_or(std::time::Duration::from_millis(500));
    let bed = engine.bed(PORTS, 1)?;
    let open = opener(engine, PORTS);
    let mut series = Series { engine, title: function.title, size, points: BTreeMap::new() };
    for round in 0..=lab.rounds() {
        for &flows in flows {
            lab.step(format!("{}, {}, {size} bytes, {} flows", engine.name(), function.title, grouped(flows)));
            let program = program(lab, function, flows)?;
            let (_, sweep) = machine_code(&Loaded::of_program(program.clone()))?;
            let make: &MakeEngine<'_> = &{
                let (program, stop) = (&program, lab.stop);
                move || filled(program, function, flows, stop)
            };
            let station = Station::User { open: &*open, engine: make, sweep: &sweep, cores: 1 };
            let load = Load { packets: function.packets, bytes: frame_bytes(size), flows, senders: 1 };
            let found = rate(&bed, &station, load, time, lab.stop)?;
            if round > 0 {
                let (rates, cpu) = series.points.entry(flows).or_default();
                rates.push(found.per_second / 1e6);
                cpu.extend(found.cpu_ns);
            }
        }
    }
    Ok(series)
}

fn figure(flows: &[u64], series: &[Series], bare: &BTreeMap<u16, Vec<f64>>) -> Figure {
    let mut tables = String::new();
    let mut panels: Vec<Panel> = Vec::new();
    let mut last = None;
    let counts: Vec<String> = flows.iter().map(|flows| grouped(*flows)).collect();
    let header: Vec<&str> = ["function", "bytes"].into_iter().chain(counts.iter().map(String::as_str)).collect();
    let header: Vec<&str> = header.into_iter().chain(["least/most", "CPU ns, first and last"]).collect();
    let right: Vec<usize> = (1..header.len()).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut close = |engine: Option<LabEngine>, rows: &mut Vec<Vec<String>>| {
        let Some(engine) = engine else { return };
        let unit = if engine == LabEngine::Memory { "Mpps of processor time" } else { "Mpps" };
        tables.push_str(&format!("\n{}, by flows, {unit}:\n{}", engine.name(), table(&header, rows, &right)));
        rows.clear();
    };
    for one in series {
        if last != Some(one.engine) {
            close(last, &mut rows);
            last = Some(one.engine);
        }
        let mut row = vec![one.title.to_owned(), one.size.to_string()];
        row.extend(flows.iter().map(|flows| one.rate(*flows).map_or("-".to_owned(), |rate| rate.text(2))));
        let is_off = one.least().is_some_and(|least| least < 1.0 - FLAT);
        let mark = if is_off { "!" } else { "" };
        row.push(one.least().map_or("-".to_owned(), |least| format!("{least:.2}{mark}")));
        let cpu = |flows: Option<&u64>| {
            let (_, cpu) = one.points.get(flows?)?;
            Some(format!("{:.0}", Spread::of(cpu)?.median))
        };
        row.push([cpu(flows.first()), cpu(flows.last())].into_iter().flatten().collect::<Vec<_>>().join(", "));
        rows.push(row);
        let title = format!("{} on {}, Mpps by flows", one.title, one.engine.name());
        if panels.last().is_none_or(|panel| panel.title != title) {
            panels.push(Panel { title, groups: counts.clone(), series: Vec::new() });
        }
        let values = flows.iter().map(|flows| one.rate(*flows).map(|rate| rate.median)).collect();
        if let Some(panel) = panels.last_mut() {
            panel.series.push((format!("{} bytes", one.size), values));
        }
    }
    close(last, &mut rows);
    for (size, ns) in bare {
        if let Some(ns) = Spread::of(ns) {
            let text = ns.text(1);
            tables.push_str(&format!("{size} bytes from memory without a function: {text} ns, in all numbers above\n"));
        }
    }
    let is_off = series.iter().any(|one| one.least().is_some_and(|least| least < 1.0 - FLAT));
    Figure {
        tables,
        found: claims(series),
        values: json!({
            "series": series.iter().map(Series::json).collect::<Vec<_>>(),
            "without_function_ns": bare.iter().map(|(size, ns)| json!({ "bytes": size, "ns": Spread::of(ns).map(Spread::json) })).collect::<Vec<_>>(),
            "flat_within": FLAT,
        }),
        panels,
        is_off,
    }
}

/// What the measurements say to the paper's statements.
fn claims(series: &[Series]) -> Vec<(&'static str, String)> {
    let mut engines: Vec<LabEngine> = series.iter().map(|one| one.engine).collect();
    engines.dedup();
    let of = |engine: LabEngine| series.iter().filter(move |one| one.engine == engine);
    let flat = engines.iter().filter_map(|&engine| {
        let (least, one) =
            of(engine).filter_map(|one| Some((one.least()?, one))).min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        let all = of(engine).count();
        let flat = of(engine).filter(|one| one.least().is_some_and(|least| least >= 1.0 - FLAT)).count();
        Some(format!(
            "{}: flat within {:.0}% in {flat} of {all} series; least/most is {least:.2} for {}, {} bytes",
            engine.name(),
            100.0 * FLAT,
            one.title,
            one.size
        ))
    });
    let flat: Vec<String> = flat.collect();
    let mut found = Vec::new();
    if !flat.is_empty() {
        found.push(("flat", flat.join("; ")));
    }
    let link = engines.iter().filter_map(|&engine| {
        let of_size =
            of(engine).filter(|one| one.size == 1024).flat_map(|one| one.points.keys().filter_map(|f| one.rate(*f)));
        let most = of_size.map(|rate| rate.median).reduce(f64::max)?;
        let bits = 1024.0 * 8.0 / 1000.0;
        Some(format!("{} {most:.2} Mpps at most, {:.1} Gb/s", engine.name(), most * bits))
    });
    let link: Vec<String> = link.collect();
    if !link.is_empty() {
        found.push(("link", link.join("; ")));
    }
    // The mean over functions and numbers of flows, with the shortest packets.
    let mean = |engine: LabEngine, title: Option<&str>| {
        let size = of(engine).map(|one| one.size).min()?;
        let of_size = of(engine).filter(|one| one.size == size && title.is_none_or(|title| one.title == title));
        let rates = of_size.flat_map(|one| one.points.keys().filter_map(|flows| one.rate(*flows)));
        let rates: Vec<f64> = rates.map(|rate| rate.median).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    };
    if let Some(raw) = mean(LabEngine::Raw, None) {
        let others = engines.iter().filter(|engine| **engine != LabEngine::Raw);
        let others: Vec<String> =
            others.filter_map(|engine| Some(format!("{} {:.1}", engine.name(), mean(*engine, None)? / raw))).collect();
        if !others.is_empty() {
            found.push(("raw", format!("times the rate of raw sockets, shortest packets: {}", others.join(", "))));
        }
    }
    let slower = engines.iter().filter_map(|&engine| {
        let [balancer, policer, offloading] = FUNCTIONS.each_ref().map(|function| mean(engine, Some(function.title)));
        let share = offloading? / f64::midpoint(balancer?, policer?);
        Some(format!("{}: {:.0}% of the mean of the two others", engine.name(), 100.0 * share))
    });
    let slower: Vec<String> = slower.collect();
    if !slower.is_empty() {
        found.push(("offloading", slower.join("; ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(engine: LabEngine, rates: &[f64]) -> Series {
        let points = (1u64..).zip(rates).map(|(flows, rate)| (flows, (vec![*rate; 3], vec![1000.0 / rate; 3])));
        Series { engine, title: "policer", size: 64, points: points.collect() }
    }

    #[test]
    fn a_series_is_flat_if_its_least_rate_is_near_the_greatest() {
        let is_off = |rates: &[f64]| figure(&[1, 2, 3], &[series(LabEngine::Memory, rates)], &BTreeMap::new()).is_off;
        assert!(!is_off(&[10.0, 8.1, 9.0]) && is_off(&[10.0, 7.9, 9.0]) && is_off(&[5.0, 9.0, 9.0]));
        assert!(!is_off(&[3.0]), "one number of flows shows nothing");
    }

    #[test]
    fn claims_compare_engines() {
        let all = [series(LabEngine::Memory, &[20.0, 10.0]), series(LabEngine::Raw, &[0.2, 0.2])];
        let found: BTreeMap<&str, String> = claims(&all).into_iter().collect();
        assert!(found["flat"].contains("memory: flat within 20% in 0 of 1 series; least/most is 0.50"), "{found:?}");
        assert!(found["flat"].contains("raw: flat within 20% in 1 of 1"), "{found:?}");
        assert!(found["raw"].contains("memory 75.0"), "{found:?}");
        assert!(!found.contains_key("offloading") && !found.contains_key("link"), "{found:?}");
    }
}
