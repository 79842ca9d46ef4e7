// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cores side by side on one stream of packets.
//!
//! ```text
//!  reset ─► arrays are cleared ─► packets, their words without gaps ─► the last one leaves ─► the host reads all maps
//!  1 cycle
//! ```
//!
//! Registers start with random values, and between packets the bus has random ones: a missing reset or mask is seen.

use std::fmt::Write as _;

use flowloom_cosim::Model;
use flowloom_rtl::{Access, Core, MapPort};
use flowloom_testkit::Rng;

use crate::common::build_model;

pub(crate) const WORD_BYTES: usize = 64;

/// A packet, after a number of idle cycles.
#[derive(Debug, Clone)]
pub(crate) struct Stimulus {
    pub(crate) gap_cycles: usize,
    pub(crate) port: u32,
    pub(crate) now_ns: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Packets of random bytes, many of them at the ends of words.
pub(crate) fn packets(rng: &mut Rng, count: usize) -> Vec<Stimulus> {
    let lengths = [1, 14, 60, 63, 64, 65, 100, 127, 128, 129, 1500];
    let packet = |rng: &mut Rng| {
        let len = if rng.chance(1, 2) { *rng.pick(&lengths) } else { 1 + rng.below(200) };
        let bytes = if rng.chance(1, 3) { (0..len).map(|_| rng.below(3) as u8).collect() } else { rng.bytes(len) };
        let gap_cycles = if rng.chance(1, 8) { rng.below(4) } else { 0 };
        Stimulus { gap_cycles, port: rng.below(4) as u32, now_ns: rng.next_u64() >> 8, bytes }
    };
    (0..count).map(|_| packet(rng)).collect()
}

/// The outputs for a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: u32,
    /// The target of a redirect.
    pub(crate) target: Option<u32>,
    /// Whether the packet leaves for the slow path.
    pub(crate) is_slow: bool,
    pub(crate) head: i32,
    pub(crate) tail: i32,
    pub(crate) edits: Vec<u8>,
}

/// What a core gives for a stream: the outputs for each packet, and at the end the entries of its maps.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) answers: Vec<Answer>,
    /// In the order of [`Core::maps`].
    pub(crate) maps: Vec<Vec<Vec<u8>>>,
}

/// The compiled model of several cores.
pub(crate) struct Bench<'a> {
    model: Model,
    cores: &'a [Core],
}

impl<'a> Bench<'a> {
    /// Compiles a bench; `blocks` are modules that the cores instantiate, besides those of `hdl`. None, with the reason
    /// printed, where Verilator is not installed.
    pub(crate) fn new(test: &str, cores: &'a [Core], blocks: &[(String, String)]) -> Option<Bench<'a>> {
        let mut modules = blocks.to_vec();
        modules.extend(cores.iter().map(|core| (core.module.clone(), core.text.clone())));
        modules.push(("fl_bench".to_owned(), module(cores)));
        Some(Bench { model: build_model(test, &modules)?, cores })
    }

    /// The results of each core, or the first cycle in which a packet leaves that should not, or does not.
    pub(crate) fn run(&self, packets: &[Stimulus], seed: u64) -> Vec<Result<Results, String>> {
        let (inputs, starts) = self.inputs(packets, seed);
        let outputs = self.model.start(seed as u32).unwrap().run(&inputs).unwrap();
        let cycles: Vec<&[u8]> = outputs.chunks(self.model.output_bytes()).collect();
        (0..self.cores.len()).map(|core| self.results(core, &cycles, &starts)).collect()
    }

    /// The inputs of all cycles, and the cycles in which packets begin.
    fn inputs(&self, packets: &[Stimulus], seed: u64) -> (Vec<u8>, Vec<usize>) {
        let [reset, valid, length, port, now, word, host, index] =
            ["rst_i", "valid_i", "length_i", "port_i", "now_i", "word_i", "host_valid_i", "host_index_i"]
                .map(|name| self.model.input(name).unwrap());
        let len = self.model.input_bytes();
        let (mut rng, mut all, mut starts) = (Rng::new(seed), Vec::new(), Vec::new());
        let mut cycle = |all: &mut Vec<u8>, set: &dyn Fn(&mut [u8])| {
            let first = all.len();
            all.resize(first + len, 0);
            let values = &mut all[first..];
            word.set_bytes(values, &rng.bytes(WORD_BYTES));
            [&length, &port, &now].iter().for_each(|input| input.set(values, rng.next_u64()));
            set(values);
        };
        let entries = self.cores.iter().flat_map(|core| &core.maps).map(|map| map.entries).max().unwrap_or(1);
        // A packet that enters in the cycle of the reset is lost.
        cycle(&mut all, &|values| [&reset, &valid].iter().for_each(|input| input.set(values, 1)));
        (0..entries + 2).for_each(|_| cycle(&mut all, &|_| {}));
        for packet in packets {
            (0..packet.gap_cycles).for_each(|_| cycle(&mut all, &|_| {}));
            starts.push(all.len() / len);
            for (number, chunk) in packet.bytes.chunks(WORD_BYTES).enumerate() {
                cycle(&mut all, &|values| {
                    if number == 0 {
                        valid.set(values, 1);
                        length.set(values, packet.bytes.len() as u64);
                        port.set(values, packet.port.into());
                        now.set(values, packet.now_ns);
                    }
                    word.set_bytes(values, chunk);
                });
            }
        }
        let latest = self.cores.iter().map(|core| core.latency_cycles).max().unwrap();
        (0..latest + 2).for_each(|_| cycle(&mut all, &|_| {}));
        for entry in 0..entries {
            cycle(&mut all, &|values| {
                host.set(values, 1);
                index.set(values, entry.into());
            });
        }
        (0..4).for_each(|_| cycle(&mut all, &|_| {}));
        (all, starts)
    }

    fn results(&self, number: usize, cycles: &[&[u8]], starts: &[usize]) -> Result<Results, String> {
        let core = &self.cores[number];
        let output = |name: &str| self.model.output(&format!("{name}{number}_o")).unwrap();
        let [valid, verdict, head, tail] = ["valid", "verdict", "head", "tail"].map(output);
        let [has_target, target, slow] = ["has_target", "target", "slow"].map(output);
        // Before the reset all registers are random.
        let ends = (1..cycles.len()).filter(|cycle| valid.get(cycles[*cycle]) == 1);
        let expected: Vec<usize> = starts.iter().map(|start| start + core.latency_cycles as usize).collect();
        if !ends.clone().eq(expected.iter().copied()) {
            let both = ends.map(Some).chain([None]).zip(expected.iter().copied().map(Some).chain([None]));
            let (found, expected) = both.into_iter().find(|(found, expected)| found != expected).unwrap();
            let cycle = |cycle: Option<usize>| cycle.map_or("never".to_owned(), |cycle| format!("in cycle {cycle}"));
            return Err(format!("a packet leaves {}, expected {}", cycle(found), cycle(expected)));
        }
        let edits = (core.edits.bits() > 0).then(|| output("edits"));
        let answer = |cycle: usize| {
            let values = cycles[cycle];
            Answer {
                verdict: verdict.get(values) as u32,
                target: (has_target.get(values) == 1).then(|| target.get(values) as u32),
                is_slow: slow.get(values) == 1,
                head: head.get(values) as i32,
                tail: tail.get(values) as i32,
                edits: edits.as_ref().map_or(Vec::new(), |port| port.bytes(values).to_vec()),
            }
        };
        let map = |map: &MapPort| -> Vec<Vec<u8>> {
            let [found, value] = ["found", "value"].map(|port| output(&format!("map{}_{port}", map.map)));
            let answers = cycles.iter().skip(1).filter(|values| found.get(values) == 1);
            let entries = if map.access == Access::Single { 1 } else { map.entries as usize };
            answers.take(entries).map(|values| value.bytes(values).to_vec()).collect()
        };
        Ok(Results { answers: expected.into_iter().map(answer).collect(), maps: core.maps.iter().map(map).collect() })
    }
}

/// The module of a bench.
fn module(cores: &[Core]) -> String {
    let shared = [("clk_i", 1), ("rst_i", 1), ("valid_i", 1), ("length_i", 16), ("port_i", 32), ("now_i", 64)];
    let shared: Vec<(&str, usize)> = shared.into_iter().chain([("word_i", 8 * WORD_BYTES)]).collect();
    let mut ports: Vec<String> = Vec::new();
    for (name, bits) in shared.iter().chain(&[("host_valid_i", 1), ("host_index_i", 32)]) {
        ports.push(format!("input  logic [{}:0] {name}", bits - 1));
    }
    let mut instances = String::new();
    for (number, core) in cores.iter().enumerate() {
        let mut pins: Vec<String> = shared.iter().map(|(pin, _)| format!(".{pin}")).collect();
        let mut outputs = [
            ("ready", 1),
            ("accept", 1),
            ("room", 1),
            ("valid", 1),
            ("verdict", 32),
            ("has_target", 1),
            ("target", 32),
            ("spread", 2),
            ("slow", 1),
        ]
        .map(|(name, bits)| (format!("{name}_o"), name.to_owned(), bits))
        .to_vec();
        outputs.extend(["head", "tail"].map(|name| (format!("{name}_o"), name.to_owned(), 32)));
        let edits = core.edits.bits() as usize;
        outputs.extend((edits > 0).then(|| ("edits_o".to_owned(), "edits".to_owned(), edits)));
        for MapPort { map, value_bytes, access, .. } in &core.maps {
            outputs.push((format!("map{map}_valid_o"), format!("map{map}_found"), 1));
            outputs.push((format!("map{map}_value_o"), format!("map{map}_value"), 8 * *value_bytes as usize));
            outputs.push((format!("map{map}_ready_o"), format!("map{map}_ready"), 1));
            pins.push(format!(".map{map}_valid_i(host_valid_i)"));
            pins.push(format!(".map{map}_value_i('0)"));
            match access {
                Access::Single => pins.push(format!(".map{map}_write_i(1'b0)")),
                Access::Index { bits } | Access::Ports { bits } => {
                    pins.push(format!(".map{map}_write_i(1'b0)"));
                    pins.push(format!(".map{map}_index_i(host_index_i[{}:0])", bits - 1));
                }
                Access::Key { bytes, .. } => {
                    pins.push(format!(".map{map}_operation_i(3'd3)"));
                    pins.push(format!(".map{map}_key_i({}'(host_index_i))", 8 * bytes));
                    let bits = [("present", 1), ("full", 1), ("key", 8 * *bytes as usize), ("count", 32)];
                    outputs.extend(
                        bits.map(|(port, bits)| (format!("map{map}_{port}_o"), format!("map{map}_{port}"), bits)),
                    );
                }
            }
        }
        for (pin, name, bits) in outputs {
            ports.push(format!("output logic [{}:0] {name}{number}_o", bits - 1));
            pins.push(format!(".{pin}({name}{number}_o)"));
        }
        _ = writeln!(instances, "  {} u_core{number} (\n      {}\n  );", core.module, pins.join(",\n      "));
    }
    // A bench may have no map.
    let ports = ports.join(",\n    ");
    let unused = "  logic unused;\n  assign unused = ^{host_valid_i, host_index_i};\n";
    format!("module fl_bench (\n    {ports}\n);\n{unused}{instances}endmodule\n")
}
