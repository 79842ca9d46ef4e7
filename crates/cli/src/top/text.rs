// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports of `flowloom top` as text.

use super::Look;
use crate::output::{grouped, table};

/// A rate with three digits: `1.23 M`.
pub(super) fn rate(value: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    for (unit, name) in UNITS {
        if value >= unit {
            let scaled = value / unit;
            let digits = if scaled >= 100.0 {
                0
            } else if scaled >= 10.0 {
                1
            } else {
                2
            };
            return format!("{scaled:.digits$}{name}");
        }
    }
    format!("{value:.0}")
}

/// A time with three digits.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// The first line: what runs, how long, and how fast.
pub(super) fn headline(look: &Look) -> String {
    let now = &look.now;
    let workers = if now.workers > 1 { format!(", {} workers", now.workers) } else { String::new() };
    let rates = match now.packets {
        Some(packets) => format!(
            "{} packets, {} packets/s, {}bit/s",
            grouped(packets),
            rate(look.packets_per_s()),
            rate(look.bits_per_s())
        ),
        None => "packets are not counted".to_owned(),
    };
    format!(
        "{} ({}, pid {}), {}, engine {}{workers}: {:.1} s, {rates}",
        now.function, now.source, now.pid, now.mode, now.engine, now.elapsed_s
    )
}

/// The cells of the rows that were hit, most hits first.
pub(super) fn rows(look: &Look) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = look.now.rows.iter().zip(look.row_rates()).collect();
    rows.sort_by_key(|(row, _)| std::cmp::Reverse(row.hits));
    let cells = |(row, own): (&flowloom_control::RowHits, f64)| {
        let line = row.line.map_or_else(|| "-".to_owned(), |line| line.to_string());
        let state = row.state.clone().unwrap_or_else(|| "-".to_owned());
        vec![row.element.clone(), line, state, grouped(row.hits), rate(own), row.text.chars().take(48).collect()]
    };
    rows.into_iter().map(cells).collect()
}

pub(super) fn ports(look: &Look) -> Vec<Vec<String>> {
    let cells = |port: &flowloom_control::PortReport| {
        let (received, sent) = look.port_rates(port.port);
        vec![
            port.port.to_string(),
            port.interface.clone(),
            grouped(port.received),
            rate(received),
            grouped(port.sent),
            rate(sent),
        ]
    };
    look.now.ports.iter().map(cells).collect()
}

pub(super) fn maps(look: &Look) -> Vec<Vec<String>> {
    let cells = |map: &flowloom_control::MapLoad| {
        let load = 100.0 * map.entries as f64 / map.max_entries.max(1) as f64;
        vec![map.name.clone(), map.kind.clone(), grouped(map.entries), grouped(map.max_entries), format!("{load:.1}%")]
    };
    look.now.maps.iter().map(cells).collect()
}

pub(super) fn verdicts(look: &Look) -> Vec<Vec<String>> {
    let cells = |(name, number, own): (&str, u64, f64)| vec![name.to_owned(), grouped(number), rate(own)];
    look.verdicts().into_iter().chain(look.losses()).map(cells).collect()
}

/// The times of batches in one line.
pub(super) fn service(look: &Look) -> Option<String> {
    let service = look.now.service.as_ref().filter(|service| service.packets > 0)?;
    Some(format!(
        "50% {}, 90% {}, 99% {}, 99.9% {}, longest {} ({} timed packets)",
        time(service.p50_ns),
        time(service.p90_ns),
        time(service.p99_ns),
        time(service.p999_ns),
        time(service.max_ns),
        grouped(service.packets)
    ))
}

/// The histogram of times: the buckets that are not empty, with the share of packets.
pub(super) fn histogram(look: &Look) -> Vec<(String, f64)> {
    let Some(service) = look.now.service.as_ref().filter(|service| service.packets > 0) else { return Vec::new() };
    let mut before = 0;
    let mut bars = Vec::new();
    for (below_ns, count) in &service.below {
        if *count > before {
            bars.push((format!("< {}", time(*below_ns)), (count - before) as f64 / service.packets as f64));
        }
        before = *count;
    }
    bars
}

pub(super) fn flows(look: &Look) -> Vec<Vec<String>> {
    let Some(top) = &look.now.top else { return Vec::new() };
    let cells = |flow: &flowloom_control::FlowShare| {
        let share = format!("{:.1}%", 100.0 * flow.share);
        let own = flow.packets as f64 / top.span_s.max(1e-3);
        vec![flow.flow.clone(), flow.port.to_string(), share, rate(own), grouped(flow.samples)]
    };
    top.flows.iter().map(cells).collect()
}

pub(super) const VERDICTS: [&str; 3] = ["verdict", "packets", "/s"];
pub(super) const PORTS: [&str; 6] = ["port", "interface", "received", "/s", "sent", "/s"];
pub(super) const MAPS: [&str; 5] = ["map", "kind", "entries", "capacity", "load"];
pub(super) const ROWS: [&str; 6] = ["element", "line", "state", "hits", "/s", "row"];
pub(super) const FLOWS: [&str; 5] = ["flow", "port", "share", "/s", "samples"];

/// The caption of the flows.
pub(super) fn flows_caption(look: &Look) -> Option<String> {
    let top = look.now.top.as_ref().filter(|top| top.samples > 0)?;
    Some(format!(
        "largest flows of {:.1} s, estimated from {} samples of {} packets",
        top.span_s,
        grouped(top.samples),
        grouped(top.packets)
    ))
}

/// A whole report.
pub(super) fn report(look: &Look) -> String {
    let mut text = format!("{}\n\n", headline(look));
    if !look.now.verdicts.is_empty() {
        text.push_str(&table(&VERDICTS, &verdicts(look), &[1, 2]));
    }
    let mut section = |title: &str, header: &[&str], rows: Vec<Vec<String>>, right: &[usize]| {
        if !rows.is_empty() {
            text.push_str(&format!("\n{title}{}", table(header, &rows, right)));
        }
    };
    section("", &PORTS, ports(look), &[0, 2, 3, 4, 5]);
    section("", &MAPS, maps(look), &[2, 3, 4]);
    section("", &ROWS, rows(look), &[1, 3, 4]);
    if let Some(caption) = flows_caption(look) {
        section(&format!("{caption}\n"), &FLOWS, flows(look), &[1, 2, 3, 4]);
    }
    if let Some(service) = service(look) {
        text.push_str(&format!("\ntimes in batches: {service}\n"));
    }
    text.push('\n');
    text
}

/// A report with the histogram of times.
pub(super) fn screen(look: &Look) -> String {
    const BAR: usize = 40;
    let mut text = report(look);
    for (name, share) in histogram(look) {
        let bar = "#".repeat((share * BAR as f64).ceil() as usize);
        text.push_str(&format!("{name:>12} {:5.1}% {bar}\n", 100.0 * share));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let rates: Vec<String> = [0.4, 999.0, 1234.0, 56_789.0, 1e6, 123e6, 4.5e9].into_iter().map(rate).collect();
        assert_eq!(rates, ["0", "999", "1.23 k", "56.8 k", "1.00 M", "123 M", "4.50 G"]);
        let times: Vec<String> = [7, 1500, 2_500_000, 3_000_000_000].into_iter().map(time).collect();
        assert_eq!(times, ["7 ns", "1.5 us", "2.5 ms", "3.0 s"]);
    }
}
