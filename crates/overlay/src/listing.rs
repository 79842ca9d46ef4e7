// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images as text: a listing for readers, and the configuration words for a loader.

use std::fmt::Write as _;

use flowloom_efsm::model::Function;

use crate::encode::ConfigWrite;
use crate::image::{
    Action, Alu, Comparator, Destination, Image, KeyPart, Narrow, Offset, Operand, Operation, Relation, Stage, Step,
    Terminal, Ternary, Value, WriteSource,
};

/// The configuration words as text: a line `unit index data` in hexadecimal digits for each, after lines of comments.
pub fn configuration(image: &Image, writes: &[ConfigWrite]) -> String {
    let parameters = &image.parameters;
    let mut text = format!(
        "# function {}\n# parameters {} elements={} words={} key_bits={} rows={}\n# entry stage {}\n\
         # unit index data\n",
        image.function,
        parameters.name,
        parameters.elements,
        parameters.words,
        parameters.key_bits,
        parameters.rows,
        image.entry
    );
    for write in writes {
        _ = writeln!(text, "{:02x} {:04x} {:08x}", write.unit, write.index, write.data);
    }
    text
}

/// The listing of an image: header vector, and for each stage key, conditions and rows.
pub fn listing(image: &Image, function: &Function) -> String {
    Listing { image, function }.text()
}

struct Listing<'a> {
    image: &'a Image,
    function: &'a Function,
}

impl Listing<'_> {
    fn text(&self) -> String {
        let Listing { image, function } = self;
        let mut text = format!("function {}, parameters {}\n\nheader vector\n", image.function, image.parameters.name);
        for (number, word) in image.words.iter().enumerate() {
            _ = writeln!(text, "  h{number:<3} {}", word.name(function));
        }
        for (number, unit_ns) in image.clocks_ns.iter().enumerate() {
            _ = writeln!(text, "  unit {number} of time: {unit_ns} ns");
        }
        for (number, stage) in image.stages.iter().enumerate() {
            if let Some(stage) = stage {
                text.push_str(&self.stage(number, stage));
            }
        }
        text
    }

    fn stage(&self, number: usize, stage: &Stage) -> String {
        let element = &self.function.elements[usize::from(stage.element)];
        let kind = if stage.context.is_some() { "stateful" } else { "stateless" };
        let mut text = format!("\nstage {number}: {kind} `{}`\n", element.name);
        if let Some(context) = &stage.context {
            match &context.key {
                None => text.push_str("  key none\n"),
                Some(key) => {
                    let words: Vec<String> = key.words.iter().map(|word| format!("h{}", word.word)).collect();
                    _ = writeln!(text, "  key {}", words.join(" "));
                    let part = |part: &KeyPart| match part {
                        KeyPart::Whole(word) => format!("h{word}"),
                        KeyPart::Upper(word) => format!("upper half of h{word}"),
                        KeyPart::Lower(word) => format!("lower half of h{word}"),
                    };
                    let sides: Vec<String> =
                        key.sides.iter().map(|(left, right)| format!("{} > {}", part(left), part(right))).collect();
                    if !sides.is_empty() {
                        _ = writeln!(text, "  mirrored if {}", sides.join(", then "));
                    }
                }
            }
            let serial = if context.is_serial { ", one packet at a time" } else { "" };
            _ = writeln!(text, "  size {}{serial}", context.size);
        }
        for (at, comparator) in stage.comparators.iter().enumerate() {
            _ = writeln!(text, "  c{at:<2} {}", comparison(comparator));
        }
        for (at, average) in stage.averages.iter().enumerate() {
            let (average, sample, shift) = (operand(average.average), operand(average.sample), average.shift);
            _ = writeln!(text, "  a{at:<2} ({sample} - {average}) >> {shift}");
        }
        for (at, row) in stage.rows.iter().enumerate() {
            let mut tests = Vec::new();
            tests.extend(ternary("state", row.state, 8));
            tests.extend(bits("c", row.conditions));
            tests.extend(bits("p", row.presence));
            tests.extend(bits("full", row.full));
            for (word, bits) in stage.match_words.iter().zip(&row.words) {
                tests.extend(ternary(&format!("h{word}"), *bits, 32));
            }
            let (line, _, _) = self.function.source.locate(element.rows[usize::from(row.row)].span.start);
            let tests = if tests.is_empty() { "any".to_owned() } else { tests.join(" ") };
            _ = writeln!(text, "  {at:<3} line {line}: {tests}\n        {}", self.action(&row.action));
        }
        _ = writeln!(text, "  otherwise {}", self.action(&stage.otherwise));
        text
    }

    fn action(&self, action: &Action) -> String {
        let mut parts = Vec::new();
        if let Some(next) = action.next {
            let timer =
                |name: &str, timeout: Option<u64>| timeout.map(|ns| format!(" {name} {ns} ns")).unwrap_or_default();
            parts.push(format!("-> {}{}{}", next.state, timer("idle", next.idle_ns), timer("hard", next.hard_ns)));
        }
        for (at, Alu { destination, value }) in action.alus.iter().enumerate() {
            let to = match destination {
                None => format!("alu{at}"),
                Some(Destination::Register(register)) => format!("r{register}"),
                Some(Destination::Global(global)) => format!("g{global}"),
            };
            parts.push(format!("{to} = {}", computed(value)));
        }
        for write in &action.writes {
            let value = match write.source {
                WriteSource::Operand(source) => operand(source),
                WriteSource::Alu(at) => format!("alu{at}"),
            };
            let Narrow { width_bits, .. } = write.narrow;
            let width = if width_bits == 32 { String::new() } else { format!(":{width_bits}") };
            parts.push(format!("h{}{width} = {value}", write.word));
        }
        parts.extend(action.swaps.iter().map(|(a, b)| format!("h{a} <-> h{b}")));
        parts.extend(action.steps.iter().map(|step| match step {
            Step::PushVlan(_) => "push vlan".to_owned(),
            Step::PushMpls(_) => "push mpls".to_owned(),
            Step::PopVlan => "pop vlan".to_owned(),
            Step::PopMpls => "pop mpls".to_owned(),
            Step::Clone(port) => format!("clone({})", operand(*port)),
        }));
        parts.push(match action.terminal {
            Terminal::Drop => "drop".to_owned(),
            Terminal::Pass => "pass".to_owned(),
            Terminal::Punt => "punt".to_owned(),
            Terminal::Reply => "reply".to_owned(),
            Terminal::Flood => "flood".to_owned(),
            Terminal::Forward(port) => format!("forward({})", operand(port)),
            Terminal::Goto(stage) => format!("goto stage {stage}"),
        });
        parts.join("; ")
    }
}

fn operand(operand: Operand) -> String {
    match operand {
        Operand::Constant(value) if value > 0xffff => format!("{value:#x}"),
        Operand::Constant(value) => value.to_string(),
        Operand::Word(at) => format!("h{at}"),
        Operand::Register(at) => format!("r{at}"),
        Operand::Global(at) => format!("g{at}"),
        Operand::State => "state".to_owned(),
        Operand::Average(at) => format!("a{at}"),
    }
}

fn computed(value: &Value) -> String {
    let (left, right) = (operand(value.left), operand(value.right));
    let infix = |sign: &str| format!("{left} {sign} {right}");
    let called = |name: &str| format!("{name}({left}, {right})");
    match value.operation {
        Operation::Move => left,
        Operation::Not => format!("~{left}"),
        Operation::And => infix("&"),
        Operation::Or => infix("|"),
        Operation::Xor => infix("^"),
        Operation::Add => infix("+"),
        Operation::Subtract => infix("-"),
        Operation::AddCarry => infix("+c"),
        Operation::SubtractBorrow => infix("-b"),
        Operation::ShiftLeft => infix("<<"),
        Operation::ShiftRight => infix(">>"),
        Operation::RotateRight => infix(">>>"),
        Operation::Min => called("min"),
        Operation::Max => called("max"),
        Operation::MinSigned => called("min_signed"),
        Operation::MaxSigned => called("max_signed"),
    }
}

fn comparison(comparator: &Comparator) -> String {
    let Comparator { left, right, offset, relation, continues } = comparator;
    let sign = match relation {
        Relation::Equal => "==",
        Relation::Below => "<",
        Relation::Less => "< (signed)",
        Relation::Before => "before",
        Relation::After => "after",
    };
    let offset = match offset {
        Offset::None => String::new(),
        Offset::Plus(value) => format!(" - {}", operand(*value)),
        Offset::Minus(value) => format!(" + {}", operand(*value)),
    };
    let lower = if *continues { ", then the one before" } else { "" };
    format!("{} {sign} {}{offset}{lower}", operand(*left), operand(*right))
}

/// The compared bits of a value, `x` for those that are not compared.
fn ternary(name: &str, bits: Ternary, width: u32) -> Option<String> {
    let whole = u32::MAX >> (32 - width);
    match bits.mask {
        0 => None,
        mask if mask == whole => Some(format!("{name}={}", bits.value)),
        mask => Some(format!("{name}&{mask:#x}={:#x}", bits.value)),
    }
}

/// Single bits: their numbers, with `!` before those that are 0.
fn bits(name: &str, bits: Ternary) -> Option<String> {
    let tests = (0..32).filter(|bit| bits.mask >> bit & 1 == 1);
    let number = |bit: u32| if name == "full" { String::new() } else { bit.to_string() };
    let tests: Vec<String> = tests
        .map(|bit| format!("{}{name}{}", if bits.value >> bit & 1 == 1 { "" } else { "!" }, number(bit)))
        .collect();
    (!tests.is_empty()).then(|| tests.join(" "))
}
