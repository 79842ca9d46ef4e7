// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The register map and the shell: transactions on maps while packets pass, on a bus with stalls on all channels.

mod document;
mod faults;
mod prefixes;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use flowloom_cosim::{Design, Model, Port, Simulation};
use flowloom_isa::asm;
use flowloom_rtl::registers::{COUNTERS, MAP, MAP_KEY, SHELL, SHELL_COUNTERS};
use flowloom_rtl::{Entry, EntryField, MapBlock, Order, Pipeline, Shell};
use flowloom_testkit::Rng;

pub(crate) use faults::proof;
use transactions::run;

use crate::common::{block_path, planned};
use crate::stream::WORD_BYTES;

/// Counts packets by a key of four bytes, in an array by another byte, and leads them to a port of a map by a third
/// one.
const SOURCE: &str = r#".program shell
.license "GPL"
.map known hash key 4 value 8 entries 16
.map classes array key 4 value 11 entries 5
.map all array key 4 value 8 entries 1
.map ports devmap key 4 value 4 entries 6
        r6 = r1
        r2 = *(u32 *)(r6 + 4)
        r7 = *(u32 *)(r6 + 0)
        r0 = 1
        r3 = r7
        r3 += 8
        if r3 > r2 goto out
        r5 = map[all][0]+0 ll
        r4 = 1
        lock *(u64 *)(r5 + 0) += r4
        r4 = *(u8 *)(r7 + 4)
        *(u32 *)(r10 - 8) = r4
        r1 = map[classes] ll
        r2 = r10
        r2 += -8
        call map_lookup_elem
        if r0 == 0 goto known
        r4 = 1
        lock *(u64 *)(r0 + 0) += r4
known:  r4 = *(u32 *)(r7 + 0)
        *(u32 *)(r10 - 4) = r4
        r1 = map[known] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto insert
        r4 = 1
        lock *(u64 *)(r0 + 0) += r4
        goto send
insert: r4 = 1
        *(u64 *)(r10 - 16) = r4
        r1 = map[known] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call map_update_elem
send:   r1 = map[ports] ll
        r2 = *(u8 *)(r7 + 5)
        r3 = 2
        call redirect_map
out:    exit
"#;

/// The responses of AXI.
const OKAY: u64 = 0;
const SLVERR: u64 = 2;
const DECERR: u64 = 3;

/// Operations, flags and errors as the kernel numbers them.
const LOOKUP: u32 = 0;
const UPDATE: u32 = 1;
const DELETE: u32 = 2;
const NEXT: u32 = 3;
const ENOENT: u32 = 2;
const E2BIG: u32 = 7;
const EAGAIN: u32 = 11;
const EEXIST: u32 = 17;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// Cycles after which an access or a transaction has no answer.
const STUCK: u32 = 5000;
/// Cycles of a run at most, several times what it takes.
const MAX_CYCLES: u32 = 200_000;

/// Reads of a status while an update waits, at most.
const MAX_READS: u32 = 60_000;

/// The package of SystemVerilog is that of the register map.
#[test]
fn the_package_has_the_register_map() {
    flowloom_testkit::golden(block_path("shell/fl_registers_pkg"), &flowloom_rtl::registers::package());
}

/// The offset of a register in its block.
fn offset(name: &str) -> u32 {
    SHELL.iter().chain(&MAP).find(|register| register.name == name && MAP.contains(register)).unwrap().offset
}

fn pipeline(source: &str) -> Pipeline {
    let program = asm::program("shell.bpf", source).unwrap_or_else(|errors| panic!("{errors}"));
    let plan = planned(&program).unwrap_or_else(|error| panic!("{error}"));
    let core = flowloom_rtl::Core::of(&plan, &program).unwrap_or_else(|error| panic!("{error}"));
    Pipeline::around(core, WORD_BYTES as u16)
}

/// A module whose clock has the name that simulations drive.
fn with_own_clock(text: &str) -> String {
    let parts = [("input  logic aclk,", "input  logic clk_i,"), ("logic clk_i, rst_i;", "logic rst_i;")];
    let renamed = parts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    renamed.replace("  assign clk_i = aclk;\n", "")
}

/// The compiled shell, whose files may be changed before; none where Verilator is not installed.
pub(crate) fn build(test: &str, change: impl Fn(&str, String) -> String) -> Option<(Model, Shell)> {
    build_around(test, &pipeline(SOURCE), change)
}

fn build_around(test: &str, pipeline: &Pipeline, change: impl Fn(&str, String) -> String) -> Option<(Model, Shell)> {
    let shell = pipeline.shell();
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for file in shell.files.iter().chain(&pipeline.files) {
        let path = folder.path().join(&file.name);
        std::fs::write(&path, change(&file.name, with_own_clock(&file.text))).unwrap();
        files.push(path);
    }
    // Packages first, and the top module after all others.
    files.sort_by_key(|path| !path.to_string_lossy().ends_with("_pkg.sv"));
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("target/cosim");
    match Model::build(&Design::new(&shell.module, &files), &cache) {
        Ok(model) => Some((model, shell)),
        Err(error) if error.is_missing_tool() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A channel whose payload must not change while it waits.
struct Channel {
    name: &'static str,
    waits: Option<Vec<u8>>,
}

impl Channel {
    fn check(&mut self, is_valid: bool, is_ready: bool, payload: Vec<u8>) {
        if let Some(before) = &self.waits {
            assert!(is_valid, "{}: valid falls before ready", self.name);
            assert_eq!(*before, payload, "{}: the payload changes before ready", self.name);
        }
        self.waits = (is_valid && !is_ready).then_some(payload);
    }
}

/// A shell in simulation, a bus with random stalls, and packets that pass meanwhile.
pub(crate) struct Bench {
    model: Model,
    simulation: Simulation,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    rng: Rng,
    /// Words that wait at the input, with last and the number of bytes, and those of packets that left.
    words: VecDeque<(Vec<u8>, bool)>,
    received: Vec<Vec<u8>>,
    /// The ports and verdicts of packets that left.
    users: Vec<(u32, u8)>,
    partial: Vec<u8>,
    /// Of eight cycles, those with a stall.
    stalls: usize,
    channels: [Channel; 3],
    blocks: Vec<MapBlock>,
    offers: bool,
    /// Cycles so far.
    cycles: u32,
}

impl Bench {
    pub(crate) fn new(model: &Model, shell: &Shell, seed: u64) -> Bench {
        let channels = ["b", "r", "m_axis"].map(|name| Channel { name, waits: None });
        let mut bench = Bench {
            simulation: model.start(seed as u32).unwrap(),
            inputs: vec![0; model.input_bytes()],
            outputs: vec![0; model.output_bytes()],
            model: model.clone(),
            rng: Rng::new(seed),
            words: VecDeque::new(),
            received: Vec::new(),
            users: Vec::new(),
            partial: Vec::new(),
            stalls: 0,
            channels,
            blocks: shell.blocks.clone(),
            offers: false,
            cycles: 0,
        };
        bench.set("aresetn", 0);
        bench.outputs = bench.simulation.run(&bench.inputs).unwrap();
        bench.set("aresetn", 1);
        bench
    }

    fn port(&self, name: &str) -> Port {
        self.model.input(name).or_else(|_| self.model.output(name)).unwrap()
    }

    fn set(&mut self, name: &str, value: u64) {
        self.port(name).set(&mut self.inputs, value);
    }

    fn get(&self, name: &str) -> u64 {
        self.port(name).get(&self.outputs)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.port(name).bytes(&self.outputs).to_vec()
    }

    fn stalls(&mut self) -> bool {
        self.rng.below(8) < self.stalls
    }

    /// A cycle: words at the streams, checks of all channels.
    fn cycle(&mut self) {
        self.cycles += 1;
        assert!(self.cycles < MAX_CYCLES, "no end after {MAX_CYCLES} cycles, several times what a run takes");
        self.offers = !self.words.is_empty() && (self.offers || !self.stalls());
        self.set("s_axis_tvalid", self.offers.into());
        if let (true, Some((bytes, last))) = (self.offers, self.words.front().cloned()) {
            self.port("s_axis_tdata").set_bytes(&mut self.inputs, &bytes);
            let keep = if bytes.len() == 64 { u64::MAX } else { (1 << bytes.len()) - 1 };
            self.set("s_axis_tkeep", keep);
            self.set("s_axis_tlast", last.into());
        }
        let takes = !self.stalls();
        self.set("m_axis_tready", takes.into());
        self.outputs = self.simulation.run(&self.inputs).unwrap();
        if self.offers && self.get("s_axis_tready") == 1 {
            self.words.pop_front();
            self.offers = false;
        }
        let payload = [self.bytes("m_axis_tdata"), self.bytes("m_axis_tkeep"), self.bytes("m_axis_tuser")].concat();
        let (gives, is_last) = (self.get("m_axis_tvalid") == 1, self.get("m_axis_tlast") == 1);
        self.channels[2].check(gives, takes, [payload, vec![u8::from(is_last)]].concat());
        if gives && takes {
            let len = self.get("m_axis_tkeep").count_ones() as usize;
            self.partial.extend(&self.bytes("m_axis_tdata")[..len]);
            if is_last {
                self.received.push(std::mem::take(&mut self.partial));
                let user = self.get("m_axis_tuser");
                self.users.push((user as u32, (user >> 32) as u8));
            }
        }
        let (b, r) = (self.get("s_axil_bresp"), self.get("s_axil_rresp"));
        let data = self.get("s_axil_rdata");
        let ready = |name: &str| self.port(name).get(&self.inputs) == 1;
        let [b_ready, r_ready] = ["s_axil_bready", "s_axil_rready"].map(ready);
        let [b_valid, r_valid] = ["s_axil_bvalid", "s_axil_rvalid"].map(|name| self.get(name) == 1);
        self.channels[0].check(b_valid, b_ready, vec![b as u8]);
        self.channels[1].check(r_valid, r_ready, [vec![r as u8], data.to_le_bytes().to_vec()].concat());
    }

    /// A write; the address and the data come in any order, and the response is taken late.
    fn write(&mut self, address: u32, data: u32, strobe: u8) -> u64 {
        self.set("s_axil_awaddr", address.into());
        self.set("s_axil_wdata", data.into());
        self.set("s_axil_wstrb", strobe.into());
        let (mut sent_address, mut sent_data, mut offers) = (false, false, [false; 2]);
        for _ in 0..STUCK {
            offers[0] |= !sent_address && !self.stalls();
            offers[1] |= !sent_data && !self.stalls();
            let takes = sent_address && sent_data && !self.stalls();
            self.set("s_axil_awvalid", offers[0].into());
            self.set("s_axil_wvalid", offers[1].into());
            self.set("s_axil_bready", takes.into());
            self.cycle();
            assert!(sent_address && sent_data || self.get("s_axil_bvalid") == 0, "a response before its write");
            if offers[0] && self.get("s_axil_awready") == 1 {
                (sent_address, offers[0]) = (true, false);
            }
            if offers[1] && self.get("s_axil_wready") == 1 {
                (sent_data, offers[1]) = (true, false);
            }
            if takes && self.get("s_axil_bvalid") == 1 {
                self.set("s_axil_bready", 0);
                return self.get("s_axil_bresp");
            }
        }
        panic!("a write to {address:#x} has no response");
    }

    fn read(&mut self, address: u32) -> (u32, u64) {
        self.set("s_axil_araddr", address.into());
        let (mut sent, mut offers) = (false, false);
        for _ in 0..STUCK {
            offers |= !sent && !self.stalls();
            let takes = sent && !self.stalls();
            self.set("s_axil_arvalid", offers.into());
            self.set("s_axil_rready", takes.into());
            self.cycle();
            assert!(sent || self.get("s_axil_rvalid") == 0, "a response before its read");
            if offers && self.get("s_axil_arready") == 1 {
                (sent, offers) = (true, false);
            }
            if takes && self.get("s_axil_rvalid") == 1 {
                self.set("s_axil_rready", 0);
                return (self.get("s_axil_rdata") as u32, self.get("s_axil_rresp"));
            }
        }
        panic!("a read of {address:#x} has no response");
    }

    fn register(&mut self, address: u32) -> u32 {
        let (data, response) = self.read(address);
        assert_eq!(response, OKAY, "{address:#x}");
        data
    }

    fn put(&mut self, address: u32, bytes: &[u8]) {
        for (number, word) in bytes.chunks(4).enumerate() {
            let mut four = [0; 4];
            four[..word.len()].copy_from_slice(word);
            let strobe = ((1u16 << word.len()) - 1) as u8;
            let address = address + 4 * number as u32;
            assert_eq!(self.write(address, u32::from_le_bytes(four), strobe), OKAY, "{address:#x}");
        }
    }

    fn take(&mut self, address: u32, len: u32) -> Vec<u8> {
        let words = (0..len.div_ceil(4)).flat_map(|word| self.register(address + 4 * word).to_le_bytes());
        let mut bytes: Vec<u8> = words.collect();
        bytes.truncate(len as usize);
        bytes
    }

    /// A transaction; its error.
    fn command(&mut self, map: usize, operation: u32, flags: u32) -> u32 {
        let base = self.blocks[map].address;
        assert_eq!(self.write(base + offset("COMMAND"), operation | flags << 8, 0xf), OKAY);
        for _ in 0..STUCK {
            let status = self.register(base + MAP[1].offset);
            if status & 1 == 0 {
                return status >> 8;
            }
        }
        panic!("map {map} stays busy");
    }

    /// An update; its error.
    fn update(&mut self, map: usize, key: u32, value: &[u8], flags: u32) -> u32 {
        let (key_address, value_address) = (self.blocks[map].key_address(), self.blocks[map].value_address());
        self.put(key_address, &key.to_le_bytes());
        self.put(value_address, value);
        self.command(map, UPDATE, flags)
    }

    /// A lookup: the value, or an error.
    fn lookup(&mut self, map: usize, key: u32) -> Result<Vec<u8>, u32> {
        let block = self.blocks[map].clone();
        self.put(block.key_address(), &key.to_le_bytes());
        match self.command(map, LOOKUP, 0) {
            0 => Ok(self.take(block.value_address(), block.value_bytes)),
            error => Err(error),
        }
    }

    fn delete(&mut self, map: usize, key: u32) -> u32 {
        let address = self.blocks[map].key_address();
        self.put(address, &key.to_le_bytes());
        self.command(map, DELETE, 0)
    }

    /// All entries.
    fn list(&mut self, map: usize) -> BTreeMap<u32, Vec<u8>> {
        let block = self.blocks[map].clone();
        self.put(block.address + MAP[2].offset, &[0; 4]);
        let mut entries = BTreeMap::new();
        loop {
            match self.command(map, NEXT, 0) {
                0 => {
                    let key = self.take(block.key_address(), block.key_bytes);
                    let value = self.take(block.value_address(), block.value_bytes);
                    entries.insert(u32::from_le_bytes(key.try_into().unwrap()), value);
                }
                error => {
                    assert_eq!(error, ENOENT);
                    return entries;
                }
            }
        }
    }

    fn counter(&mut self, name: &str) -> u64 {
        let number = COUNTERS.iter().find(|counter| counter.name == name).unwrap().value;
        let address = SHELL_COUNTERS + 8 * number;
        let low = self.register(address);
        u64::from(self.register(address + 4)) << 32 | u64::from(low)
    }

    fn send(&mut self, bytes: &[u8]) {
        let count = bytes.len().div_ceil(WORD_BYTES);
        let words = bytes.chunks(WORD_BYTES).enumerate();
        self.words.extend(words.map(|(number, word)| (word.to_vec(), number + 1 == count)));
    }

    fn until_ready(&mut self) {
        for _ in 0..STUCK {
            if self.register(SHELL[2].offset) == 1 {
                return;
            }
        }
        panic!("the maps are not ready after a reset");
    }

    /// Until all packets have left.
    fn drain(&mut self) {
        while !self.words.is_empty() {
            self.cycle();
        }
        (0..400).for_each(|_| self.cycle());
    }
}

/// A packet with a key, a class and an index of a port.
fn packet(key: u32, class: u8, port: u8, len: usize) -> Vec<u8> {
    let mut bytes = [&key.to_le_bytes()[..], &[class, port]].concat();
    bytes.resize(len, 0xa5);
    bytes
}

const KNOWN: usize = 0;
const CLASSES: usize = 1;
const ALL: usize = 2;
const PORTS: usize = 3;

#[test]
fn transactions_are_those_of_the_kernel() {
    let Some((model, shell)) = build("transactions_are_those_of_the_kernel", |_, text| text) else { return };
    let first = Rng::from_env(1).next_u64() % 1000;
    for seed in first..first + 3 {
        println!("seed {seed}");
        run(&model, &shell, seed, 40);
    }
}

/// A map that has no room for new keys says so, until a key is deleted. The pin of this test's map is low while the map
/// is full.
#[test]
fn a_map_without_room_says_so() {
    let place = "assign map0_room_o = map0_room;";
    let takes = "assign map0_ready_o = ";
    let full = "assign map0_room_o = map0_room && map0_count_o != 32'd16;";
    let model = build("a_map_without_room_says_so", |name, text| {
        let is_core = name == "fl_core_shell.sv";
        assert!(!is_core || (text.contains(place) && text.contains(takes)), "no `{place}` or `{takes}` in {name}");
        text.replace(place, full).replace(takes, &format!("{takes}(map0_room_o || map0_operation_i != 3'd1) && "))
    });
    let Some((model, shell)) = model else { return };
    let mut bench = Bench::new(&model, &shell, 1);
    bench.until_ready();
    let status = shell.blocks[KNOWN].address + offset("STATUS");
    for key in 0..16 {
        assert_eq!(bench.register(status), 0, "key {key}");
        assert_eq!(bench.update(KNOWN, key, &[1; 8], 0), 0);
    }
    assert_eq!(bench.register(status), 2);
    // An update waits for room, and gives up; a deletion makes room.
    let block = shell.blocks[KNOWN].address;
    bench.put(block + MAP_KEY, &16_u32.to_le_bytes());
    assert_eq!(bench.write(block + offset("COMMAND"), UPDATE, 0b1111), OKAY);
    let waited = (0..MAX_READS).find(|_| bench.register(status) & 1 == 0);
    println!("{waited:?} reads of the status while an update waited");
    assert!(waited.is_some_and(|reads| reads > 1000), "{waited:?}");
    assert_eq!(bench.register(status), 2 | EAGAIN << 8);
    assert_eq!(bench.delete(KNOWN, 7), 0);
    assert_eq!(bench.register(status), 0);
}

/// A transaction gets its turn while packets enter in every cycle, and delays them by less than a few hundred cycles.
fn between_packets(model: &Model, shell: &Shell, seed: u64) {
    let mut bench = Bench::new(model, shell, seed);
    bench.until_ready();
    (0..4000).for_each(|number| bench.send(&packet(number % 3, 1, 5, 60)));
    // The pipeline fills.
    (0..50).for_each(|_| bench.cycle());
    assert_eq!(bench.counter("INPUT_STALLS"), 0);
    assert_eq!(bench.update(KNOWN, 500, &[5; 8], 1), 0);
    assert!(!bench.words.is_empty(), "the packets ended before the transaction");
    assert_eq!(bench.lookup(KNOWN, 500), Ok(vec![5; 8]));
    let left = bench.words.len();
    assert!(left > 2000, "{left} of 4000 packets are left after two transactions");
    let stalls = bench.counter("INPUT_STALLS");
    assert!(stalls < 400, "the input waited {stalls} cycles");
    bench.drain();
    assert_eq!(bench.received.len(), 4000);
    assert_eq!(bench.list(KNOWN).len(), 4);
}

#[test]
fn transactions_get_their_turn_at_full_load() {
    let Some((model, shell)) = build("transactions_get_their_turn_at_full_load", |_, text| text) else { return };
    between_packets(&model, &shell, 1);
}

/// AXI4-Stream allows words without a byte: they take no place, at the end of packets, within them and alone.
#[test]
fn words_without_a_byte_take_no_place() {
    let Some((model, shell)) = build("words_without_a_byte_take_no_place", |_, text| text) else { return };
    let mut bench = Bench::new(&model, &shell, 1);
    bench.until_ready();
    // More than the body RAM has words.
    for number in 0..600_u32 {
        let bytes = packet(number % 3, 1, 5, 64 + 64 * (number as usize % 2));
        let mut words: Vec<(Vec<u8>, bool)> = bytes.chunks(WORD_BYTES).map(|word| (word.to_vec(), false)).collect();
        if number % 3 == 0 {
            words.insert(number as usize % words.len(), (Vec::new(), false));
        }
        words.push((Vec::new(), true));
        bench.words.extend(words);
    }
    bench.words.extend((0..600).map(|_| (Vec::new(), true)));
    let ordinary: Vec<Vec<u8>> = (0..200).map(|number| packet(number % 3, 1, 5, 60 + number as usize)).collect();
    ordinary.iter().for_each(|bytes| bench.send(bytes));
    for _ in 0..20_000 {
        bench.cycle();
    }
    assert!(bench.words.is_empty(), "{} words still wait", bench.words.len());
    assert_eq!(bench.received.len(), 800);
    let lens: Vec<usize> = bench.received.iter().map(Vec::len).collect();
    let expected = (0..600).map(|number| 64 + 64 * (number % 2)).chain((0..200).map(|number| 60 + number));
    assert!(lens.iter().copied().eq(expected), "{lens:?}");
    assert_eq!(bench.counter("DISCARDED"), 600);
}
