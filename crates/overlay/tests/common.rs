// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Designs, and simulations that take one packet a cycle.

use std::path::{Path, PathBuf};

use flowloom_cosim::{Design, Model, Port, Simulation};
use flowloom_overlay::ConfigWrite;

/// The folder of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The file of a block of `hdl/`.
pub(crate) fn block_path(name: &str) -> PathBuf {
    top().join("hdl").join(name).with_extension("sv")
}

/// A fault: its name, the block, a text and its replacement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) block: &'static str,
    pub(crate) text: &'static str,
    pub(crate) replacement: &'static str,
}

/// A design of blocks, the last of which is the top module. A faulty block is written to a folder of its own.
pub(crate) fn design(blocks: &[&str], fault: Option<&Fault>) -> Design {
    let paths: Vec<PathBuf> = blocks
        .iter()
        .map(|block| match fault.filter(|fault| fault.block == *block) {
            None => block_path(block),
            Some(fault) => {
                let text = std::fs::read_to_string(block_path(block)).unwrap();
                assert!(text.contains(fault.text), "`{}` is not in `{block}`", fault.text);
                let folder = top().join("target/cosim/faults").join(fault.name.replace(' ', "-"));
                std::fs::create_dir_all(&folder).unwrap();
                let path = folder.join(block_path(block).file_name().unwrap());
                std::fs::write(&path, text.replace(fault.text, fault.replacement)).unwrap();
                path
            }
        })
        .collect();
    let top = blocks.last().unwrap().rsplit('/').next().unwrap();
    Design::new(top, &paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// The compiled model of a design; none, with the reason printed, where Verilator is not installed.
pub(crate) fn build(test: &str, design: &Design) -> Option<Model> {
    match Model::build(design, &top().join("target/cosim")) {
        Ok(model) => Some(model),
        Err(error) if error.is_missing_tool() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The latency in cycles that the header of a block states.
pub(crate) fn stated_latency(name: &str) -> usize {
    let text = std::fs::read_to_string(block_path(name)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("// Latency: ")).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

/// The values of a cycle's inputs, by name.
pub(crate) type Inputs = Vec<(&'static str, Vec<u8>)>;

/// A simulation of a block that takes inputs every cycle.
pub(crate) struct Bench {
    model: Model,
    simulation: Simulation,
    latency_cycles: usize,
    outputs: Vec<Port>,
}

/// The outputs that belong to the inputs of a cycle.
pub(crate) struct Outputs<'b> {
    ports: &'b [Port],
    cycle: &'b [u8],
}

impl Outputs<'_> {
    fn port(&self, name: &str) -> &Port {
        self.ports.iter().find(|port| port.name() == name).unwrap()
    }

    /// The low 64 bits of an output.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.port(name).get(self.cycle)
    }

    /// An output, the lowest byte first.
    pub(crate) fn bytes(&self, name: &str) -> &[u8] {
        self.port(name).bytes(self.cycle)
    }

    /// Word number `index` of an output of 32-bit words.
    pub(crate) fn word(&self, name: &str, index: usize) -> u32 {
        u32::from_le_bytes(self.bytes(name)[4 * index..4 * index + 4].try_into().unwrap())
    }
}

impl Bench {
    /// A simulation; `block` states the latency, and these outputs are read.
    pub(crate) fn new(model: &Model, block: &str, outputs: &[&str]) -> Bench {
        let simulation = model.start(1).unwrap();
        let outputs = outputs.iter().map(|name| model.output(name).unwrap()).collect();
        Bench { model: model.clone(), simulation, latency_cycles: stated_latency(block), outputs }
    }

    /// Writes configuration words to a bank.
    pub(crate) fn configure(&mut self, bank: u8, writes: &[ConfigWrite]) {
        let port = self.model.input("config_i").unwrap();
        let mut inputs = vec![0; self.model.input_bytes() * (writes.len() + 1)];
        for (cycle, write) in inputs.chunks_mut(self.model.input_bytes()).zip(writes) {
            let word = 1 << 57
                | u64::from(bank) << 56
                | u64::from(write.unit) << 48
                | u64::from(write.index) << 32
                | u64::from(write.data);
            port.set(cycle, word);
        }
        self.simulation.run(&inputs).unwrap();
    }

    /// Runs a packet in each cycle, and calls `check` with its number and outputs.
    pub(crate) fn run(&mut self, packets: &[Inputs], mut check: impl FnMut(usize, &Outputs<'_>)) {
        let ports: Vec<(&str, _)> = packets.first().map_or_else(Vec::new, |inputs| {
            inputs.iter().map(|(name, _)| (*name, self.model.input(name).unwrap())).collect()
        });
        const BATCH: usize = 4096;
        for (batch, packets) in packets.chunks(BATCH).enumerate() {
            let bytes = self.model.input_bytes();
            let mut inputs = vec![0; bytes * (packets.len() + self.latency_cycles)];
            for (cycle, packet) in inputs.chunks_mut(bytes).zip(packets) {
                for ((name, port), (given, value)) in ports.iter().zip(packet) {
                    assert_eq!(name, given);
                    port.set_bytes(cycle, value);
                }
            }
            let outputs = self.simulation.run(&inputs).unwrap();
            let cycles = outputs.chunks(self.model.output_bytes()).skip(self.latency_cycles);
            for (at, cycle) in cycles.take(packets.len()).enumerate() {
                check(batch * BATCH + at, &Outputs { ports: &self.outputs, cycle });
            }
        }
    }
}
