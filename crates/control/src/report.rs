// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statistics of a run, as `top`, scripts and Prometheus see them.

use std::collections::BTreeMap;

use flowloom_efsm::Coverage;
use flowloom_efsm::model::Function;
use flowloom_engine::Verdict;
use flowloom_ports::{Histogram, Statistics};
use serde::{Deserialize, Serialize};

/// The statistics of a run. All counters are those since its beginning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The name of the function.
    pub function: String,
    /// Its source or object.
    pub source: String,
    /// The way in which packets are received.
    pub mode: String,
    /// The engine.
    pub engine: String,
    /// The process.
    pub pid: u32,
    /// The number of threads that run packets.
    pub workers: u32,
    /// The time since the beginning.
    pub elapsed_s: f64,
    /// The time of the function's clock.
    pub now_ns: u64,
    /// The number of programs that have replaced another one.
    pub reloads: u64,
    /// The packets; `None` if they are not counted.
    pub packets: Option<u64>,
    /// Their bytes; `None` if they are not counted.
    pub bytes: Option<u64>,
    /// The packets by verdict; empty if they are not counted.
    pub verdicts: BTreeMap<String, u64>,
    /// Losses and other counters of the packet loop, by name.
    pub counters: BTreeMap<String, u64>,
    /// By port; empty in the kernel.
    pub ports: Vec<PortReport>,
    /// The load of each map.
    pub maps: Vec<MapLoad>,
    /// The hits of rows; empty for an object, or without counters.
    pub rows: Vec<RowHits>,
    /// Times of batches; `None` in the kernel.
    pub service: Option<ServiceTimes>,
    /// The flows with the most packets; `None` in the kernel.
    pub top: Option<TopFlows>,
}

/// The counters of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortReport {
    /// The port.
    pub port: u32,
    /// Its interface.
    pub interface: String,
    /// The packets received, and their bytes.
    pub received: u64,
    #[allow(missing_docs, reason = "see above")]
    pub received_bytes: u64,
    /// The packets sent, and their bytes.
    pub sent: u64,
    #[allow(missing_docs, reason = "see above")]
    pub sent_bytes: u64,
    /// The packets received by verdict.
    pub verdicts: BTreeMap<String, u64>,
}

/// The load of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapLoad {
    /// The name.
    pub name: String,
    /// The kind in bpftool's words.
    pub kind: String,
    /// The entries.
    pub entries: u64,
    /// The capacity.
    pub max_entries: u64,
}

/// The hits of a row, or of another counter of an element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowHits {
    /// The element.
    pub element: String,
    /// `row`, `no_match`, `no_key`, `created`, `removed`, `rejected` or `evicted`.
    pub event: String,
    /// The line of the row.
    pub line: Option<u32>,
    /// The state, if the element has states.
    pub state: Option<String>,
    /// The text of the row.
    pub text: String,
    /// The number of packets, or of contexts.
    pub hits: u64,
}

/// Times from the receipt of a batch to the fates of its packets, each counted for all packets of the batch. One batch
/// in [`flowloom_ports::TIMED_BATCHES`] is timed. What a packet waits in the driver's ring is not included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// The packets of timed batches.
    pub packets: u64,
    /// The sum of their times.
    pub sum_ns: u64,
    /// Quantiles, rounded up by at most 1/16: half of the packets, nine of ten, and so on.
    pub p50_ns: u64,
    #[allow(missing_docs, reason = "see above")]
    pub p90_ns: u64,
    #[allow(missing_docs, reason = "see above")]
    pub p99_ns: u64,
    #[allow(missing_docs, reason = "see above")]
    pub p999_ns: u64,
    #[allow(missing_docs, reason = "see above")]
    pub max_ns: u64,
    /// Cumulative: times less than a power of two, and the packets.
    pub below: Vec<(u64, u64)>,
}

/// The flows with the most packets, estimated from samples of packets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopFlows {
    /// The way in which they are found.
    pub method: String,
    /// The number of samples.
    pub samples: u64,
    /// The packets that they stand for.
    pub packets: u64,
    /// The time that they cover.
    pub span_s: f64,
    /// The distinct flows among the samples.
    pub distinct: u64,
    /// The flows, most packets first.
    pub flows: Vec<FlowShare>,
}

/// A flow with many packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowShare {
    /// Its addresses and ports.
    pub flow: String,
    /// The ingress port.
    pub port: u32,
    /// The samples.
    pub samples: u64,
    /// Its share of all packets.
    pub share: f64,
    /// Its packets, estimated.
    pub packets: u64,
    /// Their bytes, estimated.
    pub bytes: u64,
}

/// The times for which [`ServiceTimes::below`] has counts: 2^7 to 2^30 ns.
const POWERS: std::ops::RangeInclusive<u32> = 7..=30;

impl ServiceTimes {
    pub(crate) fn of(histogram: &Histogram) -> ServiceTimes {
        let quantile = |share| histogram.quantile_ns(share).unwrap_or(0);
        ServiceTimes {
            packets: histogram.total(),
            sum_ns: histogram.sum_ns(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: histogram.max_ns(),
            below: POWERS.map(|power| (1 << power, histogram.at_most((1 << power) - 1))).collect(),
        }
    }
}

/// Counts by verdict.
pub(crate) fn by_verdict(verdicts: &[u64; Verdict::ALL.len()]) -> BTreeMap<String, u64> {
    Verdict::ALL.iter().map(|v| (v.name().to_owned(), verdicts[v.number() as usize])).collect()
}

impl Report {
    /// Adds the counters of packet loops.
    pub(crate) fn count(&mut self, workers: &[Statistics], interfaces: &BTreeMap<u32, String>) {
        let mut service = Histogram::default();
        let mut verdicts = [0; Verdict::ALL.len()];
        let (mut packets, mut bytes) = (0, 0);
        let mut ports: BTreeMap<u32, (PortReport, [u64; Verdict::ALL.len()])> = BTreeMap::new();
        for worker in workers {
            packets += worker.packets;
            bytes += worker.bytes;
            verdicts.iter_mut().zip(worker.verdicts).for_each(|(sum, own)| *sum += own);
            service.merge(&worker.service);
            self.elapsed_s = self.elapsed_s.max(worker.elapsed.as_secs_f64());
            let devices = worker.devices;
            for (name, number) in [
                ("passed", worker.passed),
                ("pass_lost", worker.pass_lost),
                ("unbound", worker.unbound),
                ("further_outputs", worker.extra),
                ("batches", worker.batches),
                ("events", worker.events),
                ("sweeps", worker.sweeps),
                ("sent", devices.sent),
                ("sent_bytes", devices.sent_bytes),
                ("tx_full", devices.tx_full),
                ("tx_refused", devices.tx_refused),
                ("rx_missed", devices.rx_missed),
            ] {
                *self.counters.entry(name.to_owned()).or_default() += number;
            }
            for own in &worker.ports {
                let (port, verdicts) = ports.entry(own.port.0).or_default();
                port.received += own.received;
                port.received_bytes += own.received_bytes;
                port.sent += own.sent;
                port.sent_bytes += own.sent_bytes;
                verdicts.iter_mut().zip(own.verdicts).for_each(|(sum, own)| *sum += own);
            }
        }
        (self.packets, self.bytes) = (Some(packets), Some(bytes));
        self.verdicts = by_verdict(&verdicts);
        self.service = Some(ServiceTimes::of(&service));
        self.ports = ports
            .into_iter()
            .map(|(port, (report, verdicts))| {
                let interface = interfaces.get(&port).cloned().unwrap_or_default();
                PortReport { port, interface, verdicts: by_verdict(&verdicts), ..report }
            })
            .collect();
    }
}

impl RowHits {
    /// The counters of a function, without the rows that were not hit.
    pub fn of(function: &Function, coverage: &Coverage) -> Vec<RowHits> {
        let mut all = Vec::new();
        for (element, reached) in function.elements.iter().zip(&coverage.elements) {
            let state_name =
                |state: u16| element.stateful.as_ref().and_then(|s| s.states.get(usize::from(state)).cloned());
            for (row, states) in element.rows.iter().zip(&reached.rows) {
                let (line, _, text) = function.source.locate(row.span.start);
                for (&state, &hits) in states.iter().filter(|(_, hits)| **hits > 0) {
                    all.push(RowHits {
                        element: element.name.clone(),
                        event: "row".to_owned(),
                        line: Some(line),
                        state: state_name(state),
                        text: text.trim().to_owned(),
                        hits,
                    });
                }
            }
            let others = [
                ("no_match", "otherwise: no row matched", reached.no_match),
                ("no_key", "otherwise: no key", reached.no_key),
                ("created", "contexts created", reached.created),
                ("removed", "contexts removed", reached.removed),
                ("rejected", "contexts rejected: table full", reached.rejected),
                ("evicted", "contexts evicted", reached.evicted),
            ];
            for (event, text, hits) in others.into_iter().filter(|(.., hits)| *hits > 0) {
                let (element, event, text) = (element.name.clone(), event.to_owned(), text.to_owned());
                all.push(RowHits { element, event, line: None, state: None, text, hits });
            }
        }
        all
    }
}
