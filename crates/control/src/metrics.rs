// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statistics of a run in the text format of Prometheus.
//!
//! Names follow its rules: counters end in `_total`, units are seconds and bytes.

use std::fmt::Write;

use crate::report::Report;

/// The text of one metric family after the other.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if number == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }
}

const NANOSECONDS: f64 = 1e-9;

/// Counters of the packet loop: name, metric, help.
const COUNTERS: [(&str, &str, &str); 11] = [
    ("passed", "flowloom_passed_packets_total", "Passed packets that were delivered."),
    ("pass_lost", "flowloom_pass_lost_packets_total", "Passed packets that no receiver took."),
    ("unbound", "flowloom_unbound_packets_total", "Packets for ports without an interface."),
    ("further_outputs", "flowloom_further_outputs_total", "Clones and broadcasts."),
    ("tx_full", "flowloom_transmit_full_packets_total", "Packets lost because a transmission queue was full."),
    ("tx_refused", "flowloom_transmit_refused_packets_total", "Packets that the interface refused to transmit."),
    ("rx_missed", "flowloom_receive_missed_packets_total", "Packets lost before the function."),
    ("not_run", "flowloom_not_run_packets_total", "Packets that the engine cannot run."),
    ("logs_lost", "flowloom_lost_log_lines_total", "Log lines lost because their buffer was full."),
    ("batches", "flowloom_batches_total", "Batches of packets."),
    ("sweeps", "flowloom_sweeps_total", "Sweeps of expired contexts."),
];

/// The metrics of a run.
pub fn metrics(report: &Report) -> String {
    let mut text = Text(String::new());
    text.family("flowloom_run_info", "gauge", "The function and the engine that runs it.");
    text.sample(
        "flowloom_run_info",
        &[
            ("function", &report.function),
            ("source", &report.source),
            ("mode", &report.mode),
            ("engine", &report.engine),
        ],
        1,
    );
    text.family("flowloom_uptime_seconds", "gauge", "The time since the beginning of the run.");
    text.sample("flowloom_uptime_seconds", &[], report.elapsed_s);
    text.family("flowloom_workers", "gauge", "Threads that run packets.");
    text.sample("flowloom_workers", &[], report.workers);
    text.counter("flowloom_reloads_total", "Programs that have replaced another one.", report.reloads);
    if let Some(bytes) = report.bytes {
        text.counter("flowloom_received_bytes_total", "Bytes of packets that the function got.", bytes);
    }
    text.family("flowloom_packets_total", "counter", "Packets by verdict.");
    for (verdict, number) in &report.verdicts {
        text.sample("flowloom_packets_total", &[("verdict", &verdict.to_ascii_lowercase())], number);
    }
    ports(&mut text, report);
    for (name, metric, help) in COUNTERS {
        if let Some(number) = report.counters.get(name) {
            text.counter(metric, help, *number);
        }
    }
    if !report.maps.is_empty() {
        text.family("flowloom_map_entries", "gauge", "Entries of a map.");
        for map in &report.maps {
            text.sample("flowloom_map_entries", &[("map", &map.name), ("kind", &map.kind)], map.entries);
        }
        text.family("flowloom_map_max_entries", "gauge", "The capacity of a map.");
        for map in &report.maps {
            text.sample("flowloom_map_max_entries", &[("map", &map.name), ("kind", &map.kind)], map.max_entries);
        }
    }
    rows(&mut text, report);
    if let Some(service) = &report.service {
        let name = "flowloom_service_seconds";
        text.family(
            name,
            "histogram",
            "Time from the receipt of a batch to the fates of its packets, of timed batches.",
        );
        for (bound_ns, count) in &service.below {
            // Less than a power of two of whole nanoseconds.
            let bound_ns = bound_ns - 1;
            let bound = format!("{}.{:09}", bound_ns / 1_000_000_000, bound_ns % 1_000_000_000);
            text.sample("flowloom_service_seconds_bucket", &[("le", &bound)], count);
        }
        text.sample("flowloom_service_seconds_bucket", &[("le", "+Inf")], service.packets);
        text.sample("flowloom_service_seconds_sum", &[], service.sum_ns as f64 * NANOSECONDS);
        text.sample("flowloom_service_seconds_count", &[], service.packets);
    }
    text.0
}

fn ports(text: &mut Text, report: &Report) {
    type Value = fn(&crate::PortReport) -> u64;
    let families: [(&str, &str, Value); 4] = [
        ("flowloom_port_received_packets_total", "Packets received on a port.", |port| port.received),
        ("flowloom_port_received_bytes_total", "Bytes received on a port.", |port| port.received_bytes),
        ("flowloom_port_sent_packets_total", "Packets handed to a port.", |port| port.sent),
        ("flowloom_port_sent_bytes_total", "Bytes handed to a port.", |port| port.sent_bytes),
    ];
    for (name, help, value) in families {
        if report.ports.is_empty() {
            return;
        }
        text.family(name, "counter", help);
        for port in &report.ports {
            let labels = [("port", port.port.to_string()), ("interface", port.interface.clone())];
            let labels = [(labels[0].0, &*labels[0].1), (labels[1].0, &*labels[1].1)];
            text.sample(name, &labels, value(port));
        }
    }
}

fn rows(text: &mut Text, report: &Report) {
    if report.rows.is_empty() {
        return;
    }
    text.family("flowloom_row_hits_total", "counter", "Packets that a row of the function ran, by state.");
    for row in report.rows.iter().filter(|row| row.event == "row") {
        let line = row.line.map_or_else(String::new, |line| line.to_string());
        let state = row.state.clone().unwrap_or_default();
        text.sample(
            "flowloom_row_hits_total",
            &[("element", &row.element), ("line", &line), ("state", &state)],
            row.hits,
        );
    }
    text.family("flowloom_element_events_total", "counter", "Packets without a row, and fates of contexts.");
    for row in report.rows.iter().filter(|row| row.event != "row") {
        text.sample("flowloom_element_events_total", &[("element", &row.element), ("event", &row.event)], row.hits);
    }
}
