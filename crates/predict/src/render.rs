// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders reports as text.

use std::fmt::Write as _;

use super::known::Known;
use super::report::{MapReport, ModelKind, Report};
use flowloom_report::grouped;

impl Report {
    /// The report as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let share = if self.packets_in == 0 { 0.0 } else { self.packets_lost as f64 * 100.0 / self.packets_in as f64 };
        let _ = writeln!(
            text,
            "{} packets in {:.6} s at {} MHz\n  offered     {:>9.2} Mpps\n  throughput  {:>9.2} Mpps  {:.2} Gb/s on the wire",
            grouped(self.packets_in),
            self.seconds,
            self.clock_mhz,
            self.offered_mpps,
            self.throughput_mpps,
            self.throughput_gbps,
        );
        let all_leave = match self.known_verdict {
            Known::Flows | Known::Unasked | Known::Assumed => " (all assumed to leave)",
            Known::Packet | Known::Run => "",
        };
        let _ = writeln!(
            text,
            "  lost        {:>9} packets ({share:.4}%)\n  dropped     {:>9} packets, by the program{}\n  stalled     {:>9} cycles at the input",
            grouped(self.packets_lost),
            grouped(self.packets_dropped),
            all_leave,
            grouped(self.stalled_cycles),
        );
        let _ = writeln!(
            text,
            "  buffers     {:>9} bytes at most at the input, {} at the output",
            grouped(self.input_buffer_bytes),
            grouped(self.output_buffer_bytes)
        );
        let _ = match (self.model, &self.model_reason) {
            (ModelKind::Pipeline, _) => writeln!(text, "  cycles      those of the rendered pipeline"),
            (ModelKind::Plan, Some(reason)) => writeln!(text, "  cycles      a model of the plan: {reason}"),
            (ModelKind::Plan, None) => Ok(()),
        };
        let latency = &self.latency;
        text.push_str("\nlatency       p50      p90      p99    p99.9      max\n");
        let _ = writeln!(
            text,
            "  cycles {:>8} {:>8} {:>8} {:>8} {:>8}",
            latency.p50_cycles, latency.p90_cycles, latency.p99_cycles, latency.p999_cycles, latency.max_cycles
        );
        let _ = writeln!(
            text,
            "  ns     {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0}",
            latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns, latency.max_ns
        );
        self.maps.iter().for_each(|map| map.render(self.model, &mut text));
        if !self.formulas.is_empty() {
            text.push_str("\nformulas for Zipf-distributed flows, Mpps\n");
        }
        for row in &self.formulas {
            let _ = writeln!(
                text,
                "  {}: K {}, L {}, {} flows: as printed {:.1}, with the harmonic number {:.1}, of one packet and later \
                 ones {:.1}; simulated {:.1}",
                row.map,
                row.flush_cycles,
                row.window,
                row.flows,
                row.printed_mpps,
                row.harmonic_mpps,
                row.conflict_mpps,
                self.throughput_mpps
            );
        }
        text
    }
}

impl MapReport {
    fn render(&self, model: ModelKind, text: &mut String) {
        let _ = writeln!(
            text,
            "\nmap {}: {}, hold {} cycles, keys {}",
            self.name,
            self.scheme,
            self.hold_cycles,
            self.known.as_str()
        );
        if self.room_cycles > 0 {
            let _ = writeln!(text, "  {} cycles without room for new keys", grouped(self.room_cycles));
        }
        match self.scheme {
            "schedule" if model == ModelKind::Pipeline => {
                let longest = self.longest_queues.iter().max().unwrap_or(&0);
                let waited = grouped(self.stalled_cycles);
                let _ = writeln!(text, "  {waited} cycles in which a packet waited, at most {longest} in the queue");
            }
            "schedule" => {
                let longest: Vec<String> = self.longest_queues.iter().map(u64::to_string).collect();
                let _ = writeln!(
                    text,
                    "  {} overtakings, {} cycles of stall, longest queues {} (the last without a key)",
                    grouped(self.overtakings),
                    grouped(self.stalled_cycles),
                    longest.join(" ")
                );
            }
            "flush" => {
                let _ = writeln!(
                    text,
                    "  {} flushes ({} a second), {:.1} cycles each, {} packets replayed, at most {} buffered",
                    grouped(self.flushes),
                    grouped(self.flushes_per_s.round() as u64),
                    self.mean_flush_cycles,
                    grouped(self.replayed),
                    self.longest_queues.iter().max().unwrap_or(&0)
                );
            }
            _ => {}
        }
    }
}
