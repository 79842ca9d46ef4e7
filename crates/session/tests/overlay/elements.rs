// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The elements of the FlowBlaze machine in simulation against its software model: header vectors in, header vectors
//! out, contexts at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowloom_cosim::{Design, Model, Simulation};
use flowloom_efsm::model::Function;
use flowloom_engine::Packet;
use flowloom_overlay::{ConfigWrite, HeaderVector, Image, Overlay, Parameters, compile, encode, rtl};
use flowloom_testkit::{Rng, skip};
use flowloom_verify::Arrival;

use crate::verified::shipped;

/// Contexts of a table.
pub(crate) const SIZE: u32 = 700;
/// Packets that traces of few flows repeat.
const FEW_FLOWS: usize = 16;
/// Cycles without a packet that leaves, after which packets are lost.
const MAX_IDLE_CYCLES: u32 = 20_000;
/// The number of the terminal action `forward`.
const FORWARD: u8 = 5;
/// Cycles of a reset.
const RESET_CYCLES: usize = 4;
/// Places of the stash.
const STASH: u32 = 8;

/// The elements in simulation.
struct Chain {
    model: Model,
    simulation: Simulation,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    parameters: Parameters,
}

impl Chain {
    fn start(test: &str, parameters: &Parameters) -> Option<Chain> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let cache = top.join("target/cosim");
        let folder = cache.join("overlay_sources");
        std::fs::create_dir_all(&folder).unwrap();
        let files: Vec<_> = rtl::files_of(rtl::CHAIN)
            .into_iter()
            .map(|rtl::File { module, text }| {
                let path = folder.join(module).with_extension("sv");
                std::fs::write(&path, text).unwrap();
                path
            })
            .collect();
        let paths: Vec<&Path> = files.iter().map(|path| path.as_path()).collect();
        let mut design = Design::new(rtl::CHAIN, &paths);
        for (name, value) in rtl::module_parameters(parameters) {
            design = design.parameter(name, value);
        }
        let model = match Model::build(&design, &cache) {
            Ok(model) => model,
            Err(error) if error.is_missing_tool() => {
                skip(test, &error.to_string());
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let simulation = model.start(1).unwrap();
        let (inputs, outputs) = (vec![0; model.input_bytes()], vec![0; model.output_bytes()]);
        let mut chain = Chain { model, simulation, inputs, outputs, parameters: parameters.clone() };
        chain.set("rst_i", 1);
        (0..RESET_CYCLES).for_each(|_| chain.cycle());
        chain.set("rst_i", 0);
        chain.cycle();
        while chain.get("ready_o") == 0 {
            chain.cycle();
        }
        Some(chain)
    }

    fn set(&mut self, port: &str, value: u64) {
        self.model.input(port).unwrap().set(&mut self.inputs, value);
    }

    fn set_bytes(&mut self, port: &str, value: &[u8]) {
        self.model.input(port).unwrap().set_bytes(&mut self.inputs, value);
    }

    fn get(&self, port: &str) -> u64 {
        self.model.output(port).unwrap().get(&self.outputs)
    }

    fn get_bytes(&self, port: &str) -> Vec<u8> {
        self.model.output(port).unwrap().bytes(&self.outputs).to_vec()
    }

    fn cycle(&mut self) {
        self.outputs = self.simulation.run(&self.inputs).unwrap();
    }

    fn load(&mut self, bank: u8, writes: &[ConfigWrite]) {
        self.set("config_valid_i", 1);
        self.set("config_bank_i", bank.into());
        for write in writes {
            self.set("config_unit_i", write.unit.into());
            self.set("config_index_i", write.index.into());
            self.set("config_data_i", write.data.into());
            self.cycle();
        }
        self.set("config_valid_i", 0);
        self.cycle();
    }

    /// The contexts of an element: words of the key, and the context as it is stored.
    fn contexts(&mut self, stage: u8) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut found = BTreeMap::new();
        let rows = self.parameters.contexts.div_ceil(4);
        let row_bits = u32::BITS - (rows - 1).leading_zeros();
        self.set("host_stage_i", stage.into());
        self.set("read_valid_i", 1);
        for way in 0..4 + STASH {
            for row in 0..if way < 4 { rows } else { 1 } {
                self.set("read_place_i", u64::from(way) << row_bits | u64::from(row));
                self.cycle();
                while self.get("read_valid_o") == 0 {
                    self.cycle();
                }
                if self.get("read_found_o") == 1 {
                    let old = found.insert(self.get_bytes("read_key_o"), self.get_bytes("read_context_o"));
                    assert!(old.is_none(), "a key is stored twice");
                }
            }
        }
        self.set("read_valid_i", 0);
        found
    }

    /// Sends a header vector.
    fn send(&mut self, number: u32, header: &HeaderVector, entry: u8, bank: u8) {
        let words: Vec<u8> =
            header.words[..self.parameters.words as usize].iter().flat_map(|word| word.to_le_bytes()).collect();
        self.set("in_valid_i", 1);
        self.set("in_side_i", number.into());
        self.set("in_now_i", header.now_ns);
        self.set("in_bank_i", bank.into());
        self.set("in_ipv4_i", header.is_ipv4.into());
        self.set("in_presence_i", header.presence.into());
        self.set_bytes("in_words_i", &words);
        self.set("in_stage_i", entry.into());
    }
}

/// What leaves the elements: words, written words, terminal action, port.
type Left = (Vec<u32>, u64, u8, u32);

/// A shipped function with small tables, and its image.
pub(crate) fn image_of(name: &str, parameters: &Parameters, size: u32) -> Option<(Arc<Function>, Arc<Image>)> {
    let mut function = (*shipped::function(name, &[])).clone();
    for stateful in function.elements.iter_mut().filter_map(|element| element.stateful.as_mut()) {
        stateful.size = stateful.size.min(size);
    }
    let function = Arc::new(function);
    let compilation = compile(&function, parameters);
    compilation.fits().then(|| (function, Arc::new(compilation.image)))
}

/// The traces of a function: its own packets, and `of_few` packets of few flows without a cycle between them.
fn traces(function: &Arc<Function>, seed: u64, count: usize, of_few: usize) -> Vec<(&'static str, Vec<Arrival>)> {
    let own = shipped::made(function, seed, count);
    let mut rng = Rng::new(seed);
    let samples: Vec<Arrival> = (0..FEW_FLOWS).map(|_| rng.pick(&own).clone()).collect();
    let repeated = |flows: usize| -> Vec<Arrival> {
        let groups =
            samples.chunks(flows).flat_map(|flows| flows.iter().cycle().take(of_few / FEW_FLOWS * flows.len()));
        groups.enumerate().map(|(number, packet)| Arrival { time_ns: 100 * number as u64, ..packet.clone() }).collect()
    };
    vec![("own packets", own), ("one flow", repeated(1)), ("two flows", repeated(2))]
}

/// Compares the elements in simulation with the software model: every header vector that leaves, and the contexts at
/// the end.
///
/// `overlays` are the functions of both banks; each packet is of one of them.
fn is_equal(chain: &mut Chain, overlays: &mut [Overlay], packets: &[(usize, Arrival)], of: &str) {
    let words = chain.parameters.words as usize;
    let mut expected: Vec<Left> = Vec::new();
    let mut found: Vec<Option<Left>> = vec![None; packets.len()];
    let (mut missing, mut latest_ns, mut idle_cycles) = (packets.len(), 0, 0);
    while missing > 0 && idle_cycles < MAX_IDLE_CYCLES {
        let sent = expected.len();
        if sent < packets.len() && chain.get("room_o") == 1 {
            let (bank, arrival) = &packets[sent];
            let overlay = &mut overlays[*bank];
            latest_ns = arrival.time_ns.max(latest_ns);
            let packet = Packet { bytes: &arrival.bytes, port: arrival.port };
            let mut header = overlay.arrive(&packet, latest_ns);
            chain.send(sent as u32, &header, overlay.image().entry, *bank as u8);
            let departed = overlay.run_header(&mut header);
            expected.push((header.words[..words].to_vec(), header.written, departed.terminal, departed.port));
        } else {
            chain.set("in_valid_i", 0);
        }
        chain.cycle();
        idle_cycles += 1;
        if chain.get("out_valid_o") == 1 {
            idle_cycles = 0;
            let number = chain.get("out_side_o") as usize;
            let bytes = chain.get_bytes("out_words_o");
            let left: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let terminal = chain.get("out_terminal_o") as u8;
            let port = if terminal == FORWARD { chain.get("out_port_o") as u32 } else { 0 };
            let record = (left, chain.get("out_written_o"), terminal, port);
            assert!(found[number].replace(record).is_none(), "{of}: packet {number} left twice");
            missing -= 1;
        }
    }
    chain.set("in_valid_i", 0);
    assert_eq!(missing, 0, "{of}: packets that did not leave, of {} sent", expected.len());
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.as_ref(), Some(expected), "{of}: packet {number}, port {}", packets[number].1.port);
    }
    let mut expected: BTreeMap<u8, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
    for (bank, overlay) in overlays.iter().enumerate() {
        for (stage, contexts) in overlay.contexts() {
            // The last byte of a key is its bank.
            let key = |key: &[u32]| key.iter().flat_map(|word| word.to_le_bytes()).chain([bank as u8]).collect();
            let of_bank = contexts.iter().map(|(words, context)| (key(words), context.to_bytes()));
            expected.entry(stage).or_default().extend(of_bank);
        }
    }
    for (stage, contexts) in expected {
        assert_eq!(chain.contexts(stage), contexts, "{of}: contexts of stage {stage}");
    }
}

/// Runs a function on its traces, each from a reset on; returns the number of packets.
pub(crate) fn run(test: &str, name: &str, parameters: &Parameters, (count, of_few): (usize, usize)) -> Option<usize> {
    let seed = Rng::from_env(1).next_u64();
    let (function, image) = image_of(name, parameters, SIZE)?;
    let mut packets_run = 0;
    for (of, packets) in traces(&function, seed, count, of_few) {
        let mut chain = Chain::start(test, parameters)?;
        chain.load(0, &encode(&image));
        let mut overlays = [Overlay::new(Arc::clone(&function), Arc::clone(&image))];
        let packets: Vec<(usize, Arrival)> = packets.into_iter().map(|packet| (0, packet)).collect();
        is_equal(&mut chain, &mut overlays, &packets, &format!("{name}, {of}"));
        packets_run += packets.len();
    }
    Some(packets_run)
}

/// Machines with small tables, which packets fill.
pub(crate) const SMALL: Parameters = Parameters { elements: 2, contexts: 1024, ..Parameters::PAPER };
pub(crate) const LARGE: Parameters = Parameters { elements: 2, contexts: 1024, ..Parameters::DUAL_STACK };
