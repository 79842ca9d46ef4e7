// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults planted in rendered cores and in blocks: each one makes a core differ from the interpreter or the evaluator.
//!
//! All faulty cores of a run are in one model, beside each other.

use std::collections::BTreeMap;

use flowloom_isa::Program;
use flowloom_rtl::Core;
use flowloom_testkit::Rng;

use crate::common::block_path;
use crate::graphs::{self, Subject, subject};
use crate::programs::{self, core, program};
use crate::sources::SOURCES;
use crate::stream::{Bench, packets};

/// The graph that has faults which no program can see.
const GRAPH: &str = "graph";

/// A fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// The program of `sources.rs`, or [`GRAPH`].
    pub(crate) subject: &'static str,
    /// The block that is changed; none for the core.
    block: Option<&'static str>,
    /// The text that is replaced where it is first found; `#` stands for a number.
    from: &'static str,
    /// Its replacement; `#1` stands for the first number in the text.
    to: &'static str,
}

const fn in_core(name: &'static str, subject: &'static str, from: &'static str, to: &'static str) -> Fault {
    Fault { name, subject, block: None, from, to }
}

const fn in_block(
    name: &'static str,
    subject: &'static str,
    block: &'static str,
    from: &'static str,
    to: &'static str,
) -> Fault {
    Fault { name, subject, block: Some(block), from, to }
}

// Faults leave no signal unused, which Verilator would refuse.
pub(crate) const FAULTS: &[Fault] = &[
    in_core(
        "the reset misses a stage",
        "count",
        "valid_s1_q <= valid_s0 && !rst_i",
        "valid_s1_q <= valid_s0 && (!rst_i || 1'b1)",
    ),
    in_core(
        "a store ignores its predicate",
        "slice",
        "if (v#_s#) begin\n      map0_step#_s#[95:80]",
        "if (v#1_s#2 || 1'b1) begin\n      map0_step#3_s#4[95:80]",
    ),
    in_core("an atomic operation takes a stale value", "slice", "map0_step0_s#[63:0] ^ ", "map0_q[63:0] ^ "),
    in_core("a fetch gives a stale value", "slice", "? map0_step2_s#[63:0] : 64'h0", "? map0_step0_s#1[63:0] : 64'h0"),
    in_core(
        "a compare-exchange does not compare",
        "slice",
        "(map0_step2_s#[63:0] == v#_s#) ?",
        "(map0_step2_s#1[63:0] == v#2_s#3 || 1'b1) ?",
    ),
    in_core(
        "a stage without a packet writes a map",
        "slice",
        "else if (valid_s1_q) begin\n      map0_q",
        "else if (valid_s1_q || 1'b1) begin\n      map0_q",
    ),
    in_core(
        "a map is written in another stage",
        "slice",
        "else if (valid_s1_q) begin\n      map0_q",
        "else if (valid_s0 && (valid_s1_q || 1'b1)) begin\n      map0_q",
    ),
    in_core(
        "a mux has its operands swapped",
        "slice",
        "= v#_s# ? v#_s#_q : v#_s#;",
        "= v#1_s#2 ? v#5_s#6 : v#3_s#4_q;",
    ),
    in_core(
        "two edited bytes are swapped",
        "slice",
        "edits_o = {v#_s#_q, v#_s#_q,",
        "edits_o = {v#3_s#4_q, v#1_s#2_q,",
    ),
    in_core("a pipeline register is missing", "header", "v#_s2_q <= v#_s1_q;", "v#1_s2_q <= v#2_s0;"),
    in_core(
        "a valid bit skips a stage",
        "header",
        "valid_s3_q <= valid_s2_q",
        "valid_s3_q <= valid_s1_q && (valid_s2_q || 1'b1)",
    ),
    in_core(
        "a packet beyond the window does not take the slow path",
        "header",
        "slow_o = v#_s#_q;",
        "slow_o = v#1_s#2_q & 1'b0;",
    ),
    in_core("an offset in the packet counts bits", "header", "{from_v#_s#, 3'b000}", "{3'b000, from_v#1_s#2}"),
    in_core(
        "bytes after the end of a packet are not masked",
        GRAPH,
        "has_word1_s1_q ? word_i",
        "(has_word1_s1_q || 1'b1) ? word_i",
    ),
    in_core(
        "a word is masked by the length of the next packet",
        GRAPH,
        "has_word1_s1_q ? word_i",
        "(has_word1_s0 && (has_word1_s1_q || 1'b1)) ? word_i",
    ),
    in_core("a packet of one word has another one", GRAPH, "length_i > 16'd64", "length_i >= 16'd64"),
    in_core("a signed comparison ignores signs", "arithmetic", "$signed(v#_s#) < $signed(v#_s#)", "v#1_s#2 < v#3_s#4"),
    in_core("the distance of a shift is not limited", "arithmetic", "<< (v#_s# & 64'h3f)", "<< v#1_s#2"),
    in_core("a signed shift fills with zeros", "arithmetic", "$signed(v#_s#) >>>", "v#1_s#2 >>>"),
    in_block(
        "a multiplier takes an operand of the next packet",
        "arithmetic",
        "prim/fl_mul",
        "(b_at[k][",
        "(b_at[(k == 0) ? 0 : k-1][",
    ),
    in_block("a multiplier drops its carries", "arithmetic", "prim/fl_mul", "'0 : carry_q[", "'0 : '0 & carry_q["),
    in_block(
        "a multiplier misses a partial product",
        "arithmetic",
        "prim/fl_mul",
        "if (i <= k) begin",
        "if (i <= k && (i < k || k == 0)) begin",
    ),
    in_block(
        "a division by 0 gives a quotient",
        "arithmetic",
        "prim/fl_div",
        "(divisor_q == '0) ? '0",
        "(divisor_q == '0) ? quotient",
    ),
    in_block(
        "a remainder has the sign of the quotient",
        "arithmetic",
        "prim/fl_div",
        "negates_remainder_q ? -remainder_q",
        "(negates_quotient_q || (negates_remainder_q && 1'b0)) ? -remainder_q",
    ),
    in_block(
        "a divisor does not fit into an equal remainder",
        "arithmetic",
        "prim/fl_div",
        "remainder_d >= divisor_before",
        "remainder_d > divisor_before",
    ),
    in_block(
        "a divisor is not registered",
        "arithmetic",
        "prim/fl_div",
        "divisor_before = gen_stage[k-1].divisor_q;",
        "divisor_before = gen_stage[k-1].divisor_before ^ (gen_stage[k-1].divisor_q ^ gen_stage[k-1].divisor_q);",
    ),
    in_block(
        "a reciprocal is rounded down",
        "divided",
        "prim/fl_div_const",
        "Power / 129'(Size) + 129'(1);",
        "Power / 129'(Size);",
    ),
    in_block(
        "a division by a constant loses the odd rows of products",
        "divided",
        "prim/fl_div_const",
        "+ {row_q[2*i+1], LimbBits'(0)};",
        "+ {row_q[2*i+1] >> LimbBits, LimbBits'(0)};",
    ),
    in_block(
        "a negative dividend has its complement as size",
        "divided",
        "prim/fl_div_const",
        "dividend_i[Width-1] ? -dividend_i",
        "dividend_i[Width-1] ? ~dividend_i",
    ),
    in_block(
        "the sign of a constant divisor is ignored",
        "divided",
        "prim/fl_div_const",
        "negative ^ (IsSigned && Value[Width-1])",
        "negative ^ (IsSigned && Value[Width-1] && 1'b0)",
    ),
    in_block(
        "a quotient has the sign of the next dividend",
        "divided",
        "prim/fl_div_const",
        "assign negative = negative_q[SignCycles-1];",
        "assign negative = negative_q[SignCycles-2] | (negative_q[SignCycles-1] & 1'b0);",
    ),
    in_block(
        "a remainder is taken from the next dividend",
        "divided",
        "prim/fl_div_const",
        "dividend_q[QuotientCycles+ProductCycles-1] - product",
        "dividend_q[QuotientCycles+ProductCycles-2] - product",
    ),
    in_block(
        "the next packet reads an entry before it is written",
        "arrays",
        "table/fl_array",
        "(same_q && result_q.valid) ?",
        "(same_q && result_q.valid && 1'b0) ?",
    ),
    in_block(
        "the second packet reads an entry before it is written",
        "arrays",
        "table/fl_array",
        "if (result_q.valid && result_q.index == access1_q.index)",
        "if (result_q.valid && result_q.index == access1_q.index && 1'b0)",
    ),
    in_block(
        "the third packet reads an entry before it is written",
        "arrays",
        "table/fl_array",
        "if (older_q.valid && older_q.index == access1_q.index)",
        "if (older_q.valid && older_q.index == access1_q.index && 1'b0)",
    ),
];

/// Replaces the first part of a text that matches `from`; none without such a part.
fn replaced(text: &str, from: &str, to: &str) -> Option<String> {
    let (at, len, numbers) = text.char_indices().find_map(|(at, _)| {
        let (len, numbers) = matched(&text[at..], from)?;
        Some((at, len, numbers))
    })?;
    let mut new = to.to_owned();
    for (place, number) in numbers.iter().enumerate().rev() {
        new = new.replace(&format!("#{}", place + 1), number);
    }
    Some(format!("{}{new}{}", &text[..at], &text[at + len..]))
}

/// The length of the start of a text that matches a pattern, and the numbers in it.
fn matched<'a>(text: &'a str, pattern: &str) -> Option<(usize, Vec<&'a str>)> {
    let (mut at, mut numbers) = (0, Vec::new());
    for (place, part) in pattern.split('#').enumerate() {
        if place > 0 {
            let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
            numbers.push((digits > 0).then(|| &text[at..at + digits])?);
            at += digits;
        }
        at += text[at..].starts_with(part).then_some(part.len())?;
    }
    Some((at, numbers))
}

/// The core with a fault under another name, and the block with the fault.
fn planted(number: usize, fault: &Fault, whole: &Core) -> (Core, Option<(String, String)>) {
    let mut core = whole.clone();
    let plant = |text: &str| {
        replaced(text, fault.from, fault.to).unwrap_or_else(|| panic!("{}: no `{}`", fault.name, fault.from))
    };
    let block = fault.block.map(|block| {
        let module = block.rsplit('/').next().unwrap();
        let text = std::fs::read_to_string(block_path(block)).unwrap();
        let renamed = format!("{module}_fault{number}");
        core.text = core.text.replace(&format!("{module} #("), &format!("{renamed} #("));
        (renamed.clone(), plant(&text).replace(&format!("module {module} "), &format!("module {renamed} ")))
    });
    if block.is_none() {
        core.text = plant(&core.text);
    }
    core.module = format!("{}_fault{number}", whole.module);
    core.text = core.text.replace(&format!("module {} ", whole.module), &format!("module {} ", core.module));
    (core, block)
}

/// Programs and the graph with their cores.
struct Subjects {
    programs: BTreeMap<&'static str, (Program, Core)>,
    graph: (Subject, Core),
}

impl Subjects {
    fn new() -> Subjects {
        let programs = SOURCES.map(|(name, _)| (name, program(name)));
        let programs = programs.map(|(name, program)| (name, (program.clone(), core(&program))));
        Subjects { programs: programs.into(), graph: subject(1, 0, 8) }
    }

    fn core(&self, subject: &str) -> &Core {
        self.programs.get(subject).map_or(&self.graph.1, |(_, core)| core)
    }
}

/// The first difference of each fault on a number of packets; none if nothing differs. `None` without Verilator.
pub(crate) fn found(test: &str, faults: &[&Fault], seed: u64, count: usize) -> Option<Vec<Option<String>>> {
    let mut subjects = Subjects::new();
    let planted = faults.iter().enumerate().map(|(number, fault)| planted(number, fault, subjects.core(fault.subject)));
    let (cores, blocks): (Vec<Core>, Vec<_>) = planted.unzip();
    let blocks: Vec<(String, String)> = blocks.into_iter().flatten().collect();
    let bench = Bench::new(test, &cores, &blocks)?;
    let packets = packets(&mut Rng::new(seed), count);
    let mut differences = Vec::new();
    for ((fault, core), results) in faults.iter().zip(&cores).zip(bench.run(&packets, seed)) {
        let compared = results.and_then(|results| match subjects.programs.get(fault.subject) {
            Some((program, _)) => programs::difference(program, core, &packets, &results),
            None => graphs::difference(&mut subjects.graph.0, core, &packets, &results),
        });
        differences.push(compared.err());
    }
    Some(differences)
}

#[test]
fn faults_in_accesses_and_divisions_are_found() {
    let faults: Vec<&Fault> =
        FAULTS.iter().filter(|fault| ["count", "divided", "slice"].contains(&fault.subject)).collect();
    let Some(differences) = found("faults_in_accesses_and_divisions_are_found", &faults, 1, 2000) else { return };
    for (fault, difference) in faults.iter().zip(differences) {
        assert!(difference.is_some(), "{} is not found", fault.name);
    }
}

/// Each fault has its place in the sources.
#[test]
fn every_fault_has_its_place() {
    let subjects = Subjects::new();
    for (number, fault) in FAULTS.iter().enumerate() {
        planted(number, fault, subjects.core(fault.subject));
    }
}
