// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memories of a plan and of the blocks in `hdl`: both have the same RAMs.
//!
//! A block is read as text: its parameters and constants are evaluated for the sizes of a map, its types are measured,
//! and its instances of RAMs are listed. The number of instances in loops is given by the test, with the heads of the
//! loops.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{on_packet, planned};
use flowloom_isa::asm;
use flowloom_plan::{Memory, Options, Resources, prefix_fanout};

/// A module of `hdl` with values of its parameters.
struct Module {
    text: String,
    values: BTreeMap<String, u64>,
}

/// A RAM: rows and bits.
type Ram = (u64, u64);

impl Module {
    /// Reads a module; parameters take these values in place of their defaults.
    fn read(file: &str, given: &[(&str, u64)]) -> Module {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hdl").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
        let mut module = Module { text: lines.join("\n"), values: BTreeMap::new() };
        for line in lines {
            let line = line.trim().trim_end_matches([',', ';']);
            let Some((left, right)) = line.split_once(" = ") else { continue };
            if !left.starts_with("parameter") && !left.starts_with("localparam") {
                continue;
            }
            let name = left.split_whitespace().last().unwrap();
            let given = given.iter().find(|(parameter, _)| *parameter == name).map(|(_, value)| *value);
            // Constants of other kinds than numbers are not needed.
            if let Some(value) = given.or_else(|| module.value(right)) {
                module.values.insert(name.to_owned(), value);
            }
        }
        for (parameter, _) in given {
            assert!(module.values.contains_key(*parameter), "{file}: no parameter `{parameter}`");
        }
        module
    }

    /// A constant by name.
    fn of(&self, name: &str) -> u64 {
        *self.values.get(name).unwrap_or_else(|| panic!("no constant `{name}`"))
    }

    /// The value of an expression.
    fn value(&self, text: &str) -> Option<u64> {
        let mut parser = Parser { module: self, rest: text.trim() };
        let value = parser.choice()?;
        parser.rest.is_empty().then_some(value)
    }

    /// The bits of a packed structure.
    fn bits(&self, name: &str) -> Option<u64> {
        let body = self.text.split(&format!("}} {name};")).next().filter(|body| body.len() < self.text.len())?;
        let body = body.rsplit("struct packed {").next()?;
        body.split(';').map(str::trim).filter(|field| !field.is_empty()).map(|field| self.field(field)).sum()
    }

    fn field(&self, field: &str) -> Option<u64> {
        let kind = field.rsplit_once(char::is_whitespace)?.0.trim();
        match kind.strip_prefix("logic") {
            Some("") => Some(1),
            Some(range) => {
                let range = range.trim().strip_prefix('[')?.strip_suffix(":0]")?;
                Some(self.value(range)? + 1)
            }
            None => self.bits(kind),
        }
    }

    /// The instances of a kind of RAM, in the order of the text; each stands for as many as the loops around it make.
    fn rams(&self, kind: &str) -> Vec<Ram> {
        let start = format!(" {kind} #(");
        let instances = self.text.split(&start).skip(1);
        instances
            .map(|instance| {
                let parameter = |name: &str| {
                    let value = instance.split(&format!(".{name}")).nth(1).unwrap().trim_start();
                    let value = self.value(enclosed(value).unwrap());
                    value.unwrap_or_else(|| panic!("no value of {name}: {instance:.200}"))
                };
                (parameter("Depth"), parameter("Width"))
            })
            .collect()
    }

    /// Checks that the text has these parts.
    fn has(&self, parts: &[&str]) {
        parts.iter().for_each(|part| assert!(self.text.contains(part), "`{part}` is not in the module"));
    }
}

/// What is between the first parenthesis of a text and its counterpart.
fn enclosed(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (at, character) in text.strip_prefix('(')?.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(&text[1..=at]),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Expressions of constants: numbers, names, `$clog2`, `$bits`, sums, products, comparisons, choices.
struct Parser<'a> {
    module: &'a Module,
    rest: &'a str,
}

impl Parser<'_> {
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest).trim_start();
        rest.is_some()
    }

    fn choice(&mut self) -> Option<u64> {
        let condition = self.comparison()?;
        if !self.takes("?") {
            return Some(condition);
        }
        let yes = self.choice()?;
        let no = self.takes(":").then(|| self.choice())??;
        Some(if condition != 0 { yes } else { no })
    }

    fn comparison(&mut self) -> Option<u64> {
        let left = self.sum()?;
        Some(match () {
            () if self.takes("<") => u64::from(left < self.sum()?),
            () if self.takes(">") => u64::from(left > self.sum()?),
            () => left,
        })
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.product()?;
        loop {
            value = match () {
                () if self.takes("+") => value + self.product()?,
                () if self.takes("-") => value.checked_sub(self.product()?)?,
                () => return Some(value),
            };
        }
    }

    fn product(&mut self) -> Option<u64> {
        let mut value = self.term()?;
        loop {
            value = match () {
                () if self.takes("*") => value * self.term()?,
                () if self.takes("/") => value.checked_div(self.term()?)?,
                () => return Some(value),
            };
        }
    }

    fn term(&mut self) -> Option<u64> {
        let is_log = self.takes("$clog2");
        if self.takes("$bits") {
            let name = enclosed(self.rest)?;
            self.rest = self.rest[name.len() + 2..].trim_start();
            return self.module.bits(name);
        }
        if self.takes("(") {
            let value = self.choice()?;
            let value = if is_log { log(value) } else { value };
            return self.takes(")").then_some(value);
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word.parse().ok().or_else(|| self.module.values.get(word).copied())
    }
}

fn log(value: u64) -> u64 {
    (0..64).find(|bits| 1 << bits >= value).unwrap()
}

/// The memories of a program that looks up a key in a map, but for those of the bodies of packets.
fn memories(kind: &str, key_bytes: u64, value_bytes: u64, entries: u64, body: &str) -> Vec<Memory> {
    let text = format!(
        ".program one\n.license \"GPL\"\n.map one {kind} key {key_bytes} value {value_bytes} entries {entries} flags {}\n\
         r6 = *(u32 *)(r1 + 0)\nr2 = *(u32 *)(r1 + 4)\nr3 = r6\nr3 += 60\nr0 = 1\nif r3 > r2 goto out\n{}\
         r1 = map[one] ll\nr2 = r10\nr2 += -{}\ncall map_lookup_elem\nif r0 == 0 goto pass\n{body}\npass: r0 = 2\nout: exit\n",
        u8::from(kind == "lpm_trie"),
        (0..key_bytes / 4).map(|word| word_of(kind, key_bytes, word)).collect::<String>(),
        key_bytes.next_multiple_of(8),
    );
    let program = asm::program("one", &text).unwrap_or_else(|errors| panic!("{errors}"));
    let resources = Resources::of(&planned(&program, &Options::default()));
    resources.memories.into_iter().filter(|memory| memory.map.is_some()).collect()
}

/// A word of the key comes from the packet; the length of a prefix is that of whole addresses.
fn word_of(kind: &str, key_bytes: u64, word: u64) -> String {
    let place = 4 * word as i64 - key_bytes.next_multiple_of(8) as i64;
    match (kind, word) {
        ("lpm_trie", 0) => format!("r3 = {}\n*(u32 *)(r10 - {}) = r3\n", 8 * (key_bytes - 4), -place),
        _ => format!("r3 = *(u32 *)(r6 + {})\n*(u32 *)(r10 - {}) = r3\n", 4 * word, -place),
    }
}

/// RAMs and their numbers, those of one shape taken together.
fn sorted(rams: impl IntoIterator<Item = (u64, Ram)>) -> Vec<(Ram, u64)> {
    let mut all = BTreeMap::new();
    rams.into_iter().for_each(|(count, ram)| *all.entry(ram).or_insert(0) += count);
    all.into_iter().collect()
}

fn of_plan(memories: &[Memory]) -> Vec<(Ram, u64)> {
    sorted(memories.iter().map(|memory| (memory.count, (memory.rows, memory.row_bits))))
}

const COUNTS: &str = "r1 = 1\nlock *(u64 *)(r0 + 0) += r1";
const SIZES: [u64; 7] = [1, 2, 40, 1000, 3952, 4096, 60_000];

#[test]
fn arrays_have_the_rams_of_their_block() {
    for entries in SIZES.into_iter().filter(|entries| *entries > 1) {
        let array = Module::read("table/fl_array.sv", &[("Entries", entries), ("ValueBits", 64)]);
        array.has(&["logic [ValueBits-1:0] values_q[Entries];"]);
        let expected = [((array.of("Entries"), array.of("ValueBits")), 1)];
        assert_eq!(of_plan(&memories("array", 4, 8, entries, COUNTS)), expected, "{entries} entries");
    }
}

#[test]
fn hash_maps_have_the_rams_of_their_blocks() {
    for (kind, is_lru) in [("hash", false), ("lru_hash", true)] {
        for (entries, (key_bytes, value_bytes)) in SIZES.into_iter().zip([(4, 8), (8, 8), (12, 24)].into_iter().cycle())
        {
            let (key, value) = (("KeyBits", 8 * key_bytes), ("ValueBits", 8 * value_bytes));
            let map = Module::read("table/fl_hash_map.sv", &[key, value, ("Entries", entries)]);
            map.has(&[
                ".Entries  (ArrayRows)",
                ".ValueBits($bits(row_t))",
                ".Entries    (Keys)",
                ".RestCycles (RestCycles)",
            ]);
            // The rows of the banks are a parameter: places of which 95% are used.
            let keys = map.of("Keys");
            let banks = [key, ("Rows", (100 * keys).div_ceil(4 * 95)), ("Entries", keys)];
            let cuckoo =
                Module::read("table/fl_cuckoo.sv", &[&banks[..], &[("RestCycles", map.of("RestCycles"))]].concat());
            cuckoo.has(&["for (genvar way = 0; way < 4; way++)"]);
            let slots = [("Slots", cuckoo.of("Slots")), ("RestCycles", map.of("RestCycles"))];
            let slots = Module::read("table/fl_slots.sv", &slots);
            let mut expected = vec![(1, (map.of("ArrayRows"), map.bits("row_t").unwrap()))];
            expected.extend(cuckoo.rams("fl_ram_dual").into_iter().map(|ram| (4, ram)));
            expected.extend(slots.rams("fl_fifo_ram").into_iter().map(|ram| (1, ram)));
            if is_lru {
                let order = Module::read("table/fl_lru.sv", &[("Rows", map.of("ArrayRows"))]);
                expected.extend(order.rams("fl_ram_forward").into_iter().map(|ram| (1, ram)));
            }
            let found = memories(kind, key_bytes, value_bytes, entries, COUNTS);
            assert_eq!(of_plan(&found), sorted(expected), "{kind}, {entries} entries");
        }
    }
}

#[test]
fn maps_of_prefixes_have_the_rams_of_their_blocks() {
    for (entries, key_bytes) in SIZES.into_iter().zip([8, 20].into_iter().cycle()) {
        let fanout = u64::from(prefix_fanout(entries as u32).unwrap());
        let sizes = [("KeyBits", 8 * key_bytes), ("ValueBits", 64), ("Entries", entries), ("Fanout", fanout)];
        let map = Module::read("table/fl_lpm.sv", &sizes);
        map.has(&[".Width     (Width)", ".ResultBits($bits(owner_t))", ".Ranges    (Ranges)", ".Entries  (Slots)"]);
        let (width, result) = (("Width", map.of("Width")), ("ResultBits", map.bits("owner_t").unwrap()));
        let sizes = [width, result, ("Ranges", map.of("Ranges")), ("Fanout", fanout)];
        let ranges = Module::read("table/fl_lpm_ranges.sv", &sizes);
        ranges.has(&[
            "for (genvar lane = 0; lane < Fanout; lane++) begin : gen_leaf",
            "for (genvar bank = 0; bank < 2; bank++)",
            ".Rows  (Roots)",
            ".Rows  (MiddleRows)",
            "if (Roots > 64)",
        ]);
        assert!(ranges.of("Roots") <= 64);
        let mut expected = vec![(1, (map.of("Slots"), map.of("ValueBits")))];
        expected.extend(map.rams("fl_ram").into_iter().map(|ram| (1, ram)));
        expected.extend(ranges.rams("fl_ram_dual").into_iter().map(|ram| (2 * fanout, ram)));
        for rows in ["Roots", "MiddleRows"] {
            let sizes = [width, ("Rows", ranges.of(rows)), ("Fanout", fanout)];
            let level = Module::read("table/fl_lpm_level.sv", &sizes);
            level.has(&[
                "for (genvar lane = 1; lane < Fanout; lane++) begin : gen_lane",
                "for (genvar bank = 0; bank < 2; bank++)",
            ]);
            expected.extend(level.rams("fl_ram").into_iter().map(|ram| (2 * (fanout - 1), ram)));
        }
        let found = memories("lpm_trie", key_bytes, 8, entries, COUNTS);
        assert_eq!(of_plan(&found), sorted(expected), "{entries} entries");
    }
}

/// The bodies of packets, and the limbs of multipliers.
#[test]
fn bodies_and_multipliers_are_those_of_their_blocks() {
    let body = Module::read("edit/fl_body.sv", &[]);
    let program = asm::program("none", ".program none\n.license \"GPL\"\nr0 = 2\nexit\n").unwrap();
    let resources = Resources::of(&planned(&program, &Options::default()));
    assert_eq!(of_plan(&resources.memories), sorted(body.rams("fl_ram").into_iter().map(|ram| (1, ram))));
    for bits in [32, 64] {
        let limbs = Module::read("prim/fl_mul.sv", &[("Width", bits)]).of("Limbs");
        let of = |operation: &str| {
            let kind = if bits == 32 { "w" } else { "r" };
            let body = format!(
                "r7 = *(u64 *)(r6 + 8)\nr6 = *(u64 *)(r6 + 0)\n{kind}6 {operation}\nr0 = 1\nif r6 s> 77 goto out"
            );
            let program = on_packet("one", 16, &[], &body);
            Resources::of(&planned(&program, &Options::default())).dsps
        };
        assert_eq!(of(&format!("*= {}7", if bits == 32 { "w" } else { "r" })), limbs * (limbs + 1) / 2, "{bits} bits");
        // The block has places for 64 bits; synthesis removes those of narrower operands.
        let all = Module::read("prim/fl_div_const.sv", &[]).of("Limbs").pow(2);
        assert!(of("/= 10") <= all && (bits < 64 || of("/= 10") == all), "{bits} bits");
    }
}
