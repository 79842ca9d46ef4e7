// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where blocks and compiled models are, and what a block's header promises.

use std::path::{Path, PathBuf};

use flowloom_cosim::{CosimError, Design, Model, Port, Simulation};
use flowloom_state::RowHash;

/// The folder of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The file of a block of `hdl/`, such as `prim/fl_fifo`.
pub(crate) fn block_path(name: &str) -> PathBuf {
    top().join("hdl").join(name).with_extension("sv")
}

/// A block that instantiates no other one, as a design.
pub(crate) fn block(name: &str) -> Design {
    Design::new(name.rsplit('/').next().unwrap(), &[&block_path(name)])
}

/// The columns of a hash as a literal: `{right, left}` of each bit of the key, the highest one first.
pub(crate) fn columns(hash: &RowHash, key_bytes: usize) -> String {
    let width = 2 * hash.hash_bits() as usize;
    let bit = |half: u64, at: usize| if half >> at & 1 == 1 { '1' } else { '0' };
    let mut bits = String::new();
    for at in (0..8 * key_bytes).rev() {
        let (left, right) = hash.column(at);
        bits.extend((0..width).rev().map(|at| bit(right, at)));
        bits.extend((0..width).rev().map(|at| bit(left, at)));
    }
    let digits =
        bits.as_bytes().chunks(4).map(|four| u8::from_str_radix(std::str::from_utf8(four).unwrap(), 2).unwrap());
    format!("{}'h{}", bits.len(), digits.map(|digit| format!("{digit:x}")).collect::<String>())
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

/// One simulation whose inputs are set by name, cycle by cycle.
pub(crate) struct Bench {
    model: Model,
    simulation: Simulation,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
}

impl Bench {
    pub(crate) fn new(model: Model, seed: u32) -> Bench {
        let simulation = model.start(seed).unwrap();
        Bench { inputs: vec![0; model.input_bytes()], outputs: vec![0; model.output_bytes()], model, simulation }
    }

    /// A table in simulation, reset and cleared.
    pub(crate) fn of_table(model: &Model, seed: u32) -> Bench {
        let mut bench = Bench::new(model.clone(), seed);
        bench.reset();
        bench.cycle();
        while bench.get("ready_o") == 0 {
            bench.cycle();
        }
        bench
    }

    pub(crate) fn set_all<const N: usize>(&mut self, inputs: [(&str, u64); N]) {
        inputs.into_iter().for_each(|(input, value)| self.set(input, value));
    }

    pub(crate) fn set(&mut self, input: &str, value: u64) {
        self.port(self.model.input(input)).set(&mut self.inputs, value);
    }

    /// Simulates a cycle; outputs are those before its rising edge.
    pub(crate) fn cycle(&mut self) {
        self.outputs = self.simulation.run(&self.inputs).unwrap();
    }

    pub(crate) fn get(&self, output: &str) -> u64 {
        self.port(self.model.output(output)).get(&self.outputs)
    }

    /// A value that is there if another output is high.
    pub(crate) fn found(&self, present: &str, value: &str) -> Option<u64> {
        (self.get(present) == 1).then(|| self.get(value))
    }

    /// Keys and values of the rows of a map with keys, as the host lists them; none of rows without an entry.
    pub(crate) fn list(&mut self, rows: impl IntoIterator<Item = u64>) -> Vec<Option<(u64, u64)>> {
        const READ_ROW: u64 = 3;
        let rows: Vec<u64> = rows.into_iter().collect();
        let (mut asked, mut entries) = (0, Vec::new());
        while entries.len() < rows.len() {
            self.set_all([
                ("host_valid_i", u64::from(asked < rows.len())),
                ("host_operation_i", READ_ROW),
                ("host_key_i", rows.get(asked).copied().unwrap_or(0)),
                ("host_value_i", 0),
            ]);
            self.cycle();
            asked += usize::from(asked < rows.len() && self.get("host_ready_o") == 1);
            if self.get("host_valid_o") == 1 {
                let key = self.get("host_key_o");
                entries.push(self.found("host_present_o", "host_value_o").map(|value| (key, value)));
            }
        }
        entries
    }

    pub(crate) fn reset(&mut self) {
        self.set("rst_i", 1);
        self.cycle();
        self.set("rst_i", 0);
    }

    fn port(&self, port: Result<Port, CosimError>) -> Port {
        port.unwrap()
    }
}
