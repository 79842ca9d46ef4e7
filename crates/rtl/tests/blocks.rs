// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multipliers and dividers of many widths against the arithmetic of eBPF, with the latency that the planner assumes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowloom_ir::{Binary, Graph, Input, Kind};
use flowloom_plan::Target;
use flowloom_testkit::Rng;

use crate::common::build_model;
use crate::graphs::dataflow;

/// The operators with a block.
const OPERATORS: [Binary; 5] = [Binary::Mul, Binary::Div, Binary::Mod, Binary::SignedDiv, Binary::SignedMod];

/// A block: its operator, its width in bits, and for dividers the quotient bits of a stage, or the divisor.
#[derive(Clone, Copy)]
struct Block {
    operator: Binary,
    width: u16,
    stage_bits: u16,
    divisor: Option<u64>,
}

impl Block {
    /// As the header of the block states it.
    fn latency_cycles(&self) -> usize {
        if self.divisor.is_some() {
            let signs = if matches!(self.operator, Binary::SignedDiv | Binary::SignedMod) { 2 } else { 0 };
            return 4 + signs + if self.is_remainder() { 2 + usize::from(self.width).div_ceil(17) } else { 0 };
        }
        match self.operator {
            Binary::Mul => 1 + usize::from(self.width).div_ceil(17),
            _ => 1 + usize::from(self.width.div_ceil(self.stage_bits)),
        }
    }

    fn is_remainder(&self) -> bool {
        matches!(self.operator, Binary::Mod | Binary::SignedMod)
    }

    /// The result of a division by the constant.
    fn of_divisor(&self, a: u64, divisor: u64) -> Vec<u64> {
        let operator = if matches!(self.operator, Binary::Div | Binary::Mod) { Binary::Div } else { Binary::SignedDiv };
        let both = Block { operator, divisor: None, ..*self }.results(a, divisor);
        vec![both[usize::from(self.is_remainder())]]
    }

    /// The product, or the quotient and the remainder.
    fn results(&self, a: u64, b: u64) -> Vec<u64> {
        let mask = u64::MAX >> (64 - self.width);
        let signed = |value: u64| (value << (64 - self.width)) as i64 >> (64 - self.width);
        let results = match self.operator {
            Binary::Mul => vec![a.wrapping_mul(b)],
            _ if b & mask == 0 => vec![0, a],
            Binary::Div => vec![(a & mask) / (b & mask), (a & mask) % (b & mask)],
            _ => vec![signed(a).wrapping_div(signed(b)) as u64, signed(a).wrapping_rem(signed(b)) as u64],
        };
        results.iter().map(|result| result & mask).collect()
    }

    fn outputs(&self, number: usize) -> Vec<String> {
        if self.divisor.is_some() {
            return vec![format!("result{number}_o")];
        }
        let names: &[&str] = if self.operator == Binary::Mul { &["product"] } else { &["quotient", "remainder"] };
        names.iter().map(|name| format!("{name}{number}_o")).collect()
    }

    fn instance(&self, number: usize) -> String {
        let Block { operator, width, stage_bits, .. } = self;
        let (last, outputs) = (width - 1, self.outputs(number));
        if *operator == Binary::Mul {
            return format!(
                "  fl_mul #(\n      .Width({width})\n  ) u_{number} (\n      .clk_i,\n      .a_i(a_i[{last}:0]),\n      \
                 .b_i(b_i[{last}:0]),\n      .product_o({})\n  );\n",
                outputs[0]
            );
        }
        let is_signed = u8::from(matches!(operator, Binary::SignedDiv | Binary::SignedMod));
        if let Some(divisor) = self.divisor {
            return format!(
                "  fl_div_const #(\n      .Width({width}),\n      .Divisor(64'd{divisor}),\n      .IsSigned(1'b{is_signed}),\n      \
                 .IsRemainder(1'b{})\n  ) u_{number} (\n      .clk_i,\n      .dividend_i(a_i[{last}:0]),\n      .result_o({})\n  );\n",
                u8::from(self.is_remainder()),
                outputs[0]
            );
        }
        format!(
            "  fl_div #(\n      .Width({width}),\n      .StageBits({stage_bits}),\n      .IsSigned(1'b{is_signed})\n  ) \
             u_{number} (\n      .clk_i,\n      .dividend_i(a_i[{last}:0]),\n      .divisor_i(b_i[{last}:0]),\n      \
             .quotient_o({}),\n      .remainder_o({})\n  );\n",
            outputs[0], outputs[1]
        )
    }
}

/// A module with all blocks on the same operands.
fn module(blocks: &[Block]) -> String {
    let (mut ports, mut instances) = (String::new(), String::new());
    for (number, block) in blocks.iter().enumerate() {
        for output in block.outputs(number) {
            _ = write!(ports, ",\n    output logic [{}:0] {output}", block.width - 1);
        }
        instances.push_str(&block.instance(number));
    }
    format!(
        "module fl_blocks (\n    input  logic clk_i,\n    input  logic [63:0] a_i,\n    input  logic [63:0] b_i{ports}\n\
         );\n{instances}endmodule\n"
    )
}

/// All pairs of 6-bit operands, and random ones, many of them small, at the ends of the range or equal.
fn operands(rng: &mut Rng) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = (0..1 << 12).map(|pair| (pair & 63, pair >> 6)).collect();
    let one = |rng: &mut Rng| {
        let value = if rng.chance(1, 2) { rng.next_u64() } else { rng.below(3) as u64 };
        let value = if rng.chance(1, 4) { value.wrapping_neg() } else { value };
        value >> if rng.chance(1, 2) { rng.below(64) } else { 0 }
    };
    for _ in 0..20_000 {
        let a = one(rng);
        let b = if rng.chance(1, 8) { a } else { one(rng) };
        all.push((a, b));
        // The smallest signed number, by -1 and by others.
        all.push((1 << rng.below(64), u64::MAX << rng.below(64)));
    }
    all
}

#[test]
fn blocks_calculate_as_ebpf() {
    let block = |operator, width, stage_bits| Block { operator, width, stage_bits, divisor: None };
    let mut blocks: Vec<Block> = [1, 2, 6, 17, 18, 34, 64].map(|width| block(Binary::Mul, width, 1)).into();
    for operator in [Binary::Div, Binary::SignedDiv] {
        blocks.extend([(1, 1), (2, 3), (6, 1), (6, 4), (16, 3), (64, 16)].map(|(w, s)| block(operator, w, s)));
    }
    for operator in &OPERATORS[1..] {
        let widths = [
            (1, 1),
            (2, 3),
            (7, 5),
            (16, 1),
            (16, 640),
            (17, 99),
            (32, 10),
            (33, 7),
            (63, 1 << 62),
            (64, 1),
            (64, 1000),
        ];
        let ends = [(64, u64::MAX), (64, 1 << 63), (64, (1 << 63) + 1), (64, 641)];
        blocks.extend(widths.into_iter().chain(ends).map(|(width, divisor)| Block {
            operator: *operator,
            width,
            stage_bits: 1,
            divisor: Some(divisor),
        }));
    }
    let Some(model) = build_model("blocks_calculate_as_ebpf", &[("fl_blocks".to_owned(), module(&blocks))]) else {
        return;
    };
    let operands = operands(&mut Rng::from_env(1));
    let [a_i, b_i] = ["a_i", "b_i"].map(|name| model.input(name).unwrap());
    let mut inputs = vec![0; model.input_bytes() * (operands.len() + 10)];
    for ((a, b), cycle) in operands.iter().zip(inputs.chunks_mut(model.input_bytes())) {
        a_i.set(cycle, *a);
        b_i.set(cycle, *b);
    }
    let outputs = model.start(1).unwrap().run(&inputs).unwrap();
    for (number, block) in blocks.iter().enumerate() {
        let names = block.outputs(number);
        let ports: Vec<_> = names.iter().map(|name| model.output(name).unwrap()).collect();
        let cycles = outputs.chunks(model.output_bytes()).skip(block.latency_cycles());
        for ((a, b), cycle) in operands.iter().zip(cycles) {
            let Block { operator, width, stage_bits, divisor } = block;
            let found: Vec<u64> = ports.iter().map(|port| port.get(cycle)).collect();
            let expected = divisor.map_or_else(|| block.results(*a, *b), |divisor| block.of_divisor(*a, divisor));
            assert_eq!(found, expected, "{operator:?} {a:#x}, {b:#x}: {width} bits, {stage_bits} a stage, {divisor:?}");
        }
    }
}

/// The planner takes the latencies of the headers, with a number of quotient bits a stage that renders as that latency.
#[test]
fn the_planner_knows_the_latencies() {
    let target = Target::default();
    for width in 1..=64 {
        for operator in OPERATORS {
            let mut graph = Graph::default();
            let port = graph.make(Kind::Input(Input::Port), Vec::new(), 32);
            let length = graph.make(Kind::Input(Input::Length), Vec::new(), 16);
            let (a, b) = (graph.fit(port, width), graph.fit(length, width));
            let id = graph.make(Kind::Binary(operator), vec![a, b], width);
            let dataflow = dataflow("block", graph, port, port, BTreeMap::new());
            let planned = target.block_stages(&dataflow, id) as usize;
            let stage_bits = if operator == Binary::Mul { 1 } else { width.div_ceil(planned as u16 - 1) };
            let block = Block { operator, width, stage_bits, divisor: None };
            assert_eq!(block.latency_cycles(), planned, "{operator:?}, {width} bits");
            let (mut graph, divisor) = (dataflow.graph, 1u64 << (width - 1) | 1);
            let number = graph.number(divisor, width);
            let id = graph.make(Kind::Binary(operator), vec![a, number], width);
            if operator != Binary::Mul && graph.node(id).kind == Kind::Binary(operator) {
                let dataflow = crate::graphs::dataflow("block", graph, port, port, BTreeMap::new());
                let planned = target.block_stages(&dataflow, id) as usize;
                let block = Block { divisor: Some(divisor), ..block };
                assert_eq!(block.latency_cycles(), planned, "{operator:?}, {width} bits by {divisor}");
            }
        }
    }
}

/// Tables take as long as the planner assumes.
#[test]
fn the_planner_knows_the_latencies_of_tables() {
    let tables = [
        ("table/fl_hash_map", flowloom_plan::HASH_STAGES),
        ("table/fl_lpm", flowloom_plan::LPM_STAGES),
        ("table/fl_array", flowloom_plan::ARRAY_STAGES),
    ];
    for (block, stages) in tables {
        let text = std::fs::read_to_string(crate::common::block_path(block)).unwrap();
        assert!(text.contains(&format!("// Latency: {stages} cycles from ")), "{block}: {stages}");
    }
}

/// Free-running random words follow the sequence of their header, from a reset on, and repeat it after another reset.
#[test]
fn random_words_follow_their_sequence() {
    const WORDS: u32 = 3;
    const SEED: u32 = 7;
    const RESETS: [usize; 2] = [0, 600];
    const CYCLES: usize = 1000;
    let block = std::fs::read_to_string(crate::common::block_path("prim/fl_random")).unwrap();
    let top = format!(
        "module fl_words (\n    input  logic clk_i,\n    input  logic rst_i,\n    output logic [{last}:0] words_o\n);\n  fl_random #(\n      \
         .Words({WORDS}),\n      .Seed(32'd{SEED})\n  ) u_random (\n      .clk_i,\n      .rst_i,\n      .words_o\n  );\nendmodule\n",
        last = 32 * WORDS - 1
    );
    let modules = [("fl_random".to_owned(), block), ("fl_words".to_owned(), top)];
    let Some(model) = build_model("random_words_follow_their_sequence", &modules) else { return };
    let (reset, words) = (model.input("rst_i").unwrap(), model.output("words_o").unwrap());
    let mut inputs = vec![0; model.input_bytes() * CYCLES];
    for at in RESETS {
        reset.set(&mut inputs[at * model.input_bytes()..][..model.input_bytes()], 1);
    }
    let outputs = model.start(1).unwrap().run(&inputs).unwrap();
    let first = |word: u32| 0x9e37_79b9_u32.wrapping_mul(SEED + word + 1);
    let next = |state: u32| {
        let x = state ^ state << 13;
        let x = x ^ x >> 17;
        x ^ x << 5
    };
    let mut expected = [0; WORDS as usize];
    let mut seen = std::collections::BTreeSet::new();
    for (number, cycle) in outputs.chunks(model.output_bytes()).enumerate() {
        // The state before the clock edge of the cycle.
        if number > 0 {
            let found: Vec<u32> =
                words.bytes(cycle).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(found, expected, "cycle {number}");
            seen.extend(found);
        }
        for (word, state) in (0..).zip(&mut expected) {
            *state = if RESETS.contains(&number) { first(word) } else { next(*state) };
        }
    }
    assert!(seen.len() > 1700, "{} different words", seen.len());
}
