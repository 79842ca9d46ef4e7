// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Expressions of pure nodes.

use flowloom_ir::{Binary, Compare, Dataflow, Effect, Graph, Id, Kind, Touch};
use flowloom_isa::insn::helper;

/// A constant.
pub(crate) fn number(value: u64, bits: u16) -> String {
    format!("{bits}'h{value:x}")
}

/// The declaration of a signal.
pub(crate) fn logic(name: &str, bits: u32) -> String {
    match bits {
        1 => format!("logic {name};"),
        _ => format!("logic [{}:0] {name};", bits - 1),
    }
}

/// The longest line of generated text.
pub(crate) const MAX_LINE: usize = 120;

/// A list between two texts, in lines of limited length.
pub(crate) fn wrapped(open: &str, items: &[String], close: &str) -> String {
    let indent = " ".repeat(open.len() - open.trim_start().len() + 4);
    let (mut text, mut line) = (String::new(), open.to_owned());
    for (place, item) in items.iter().enumerate() {
        let is_last = place + 1 == items.len();
        let after = if is_last { close } else { "," };
        let space = if place == 0 { "" } else { " " };
        if line.len() + space.len() + item.len() + after.len() > MAX_LINE {
            text.push_str(line.trim_end());
            text.push('\n');
            line = format!("{indent}{item}{after}");
        } else {
            line.push_str(&format!("{space}{item}{after}"));
        }
    }
    text + &line
}

/// Whether a node is a lookup. Its signal is one bit: whether there is an entry.
pub(crate) fn is_lookup(dataflow: &Dataflow, id: Id) -> bool {
    dataflow.access(id).is_some_and(|access| access.touch == Touch::Lookup)
}

/// The width of a node's signal.
pub(crate) fn signal_bits(dataflow: &Dataflow, id: Id) -> u16 {
    if is_lookup(dataflow, id) { 1 } else { dataflow.graph.bits(id) }
}

/// Whether an effect accesses no map: its value travels with the packet.
pub(crate) fn is_travelling(dataflow: &Dataflow, id: Id) -> bool {
    let Kind::Effect(Effect::Call { helper, .. }) = dataflow.graph.node(id).kind else { return false };
    let travels =
        [helper::GET_SMP_PROCESSOR_ID, helper::GET_PRANDOM_U32, helper::REDIRECT, helper::FL_CLONE, helper::FL_EMIT];
    is_clock(helper) || travels.contains(&helper)
}

fn is_clock(number: i32) -> bool {
    matches!(
        number,
        helper::KTIME_GET_NS | helper::KTIME_GET_BOOT_NS | helper::KTIME_GET_COARSE_NS | helper::KTIME_GET_TAI_NS
    )
}

/// The value of an effect that accesses no map.
pub(crate) fn travelling(dataflow: &Dataflow, id: Id, signal: &dyn Fn(Id) -> String) -> String {
    let node = dataflow.graph.node(id);
    let Kind::Effect(Effect::Call { helper, .. }) = node.kind else { unreachable!("{:?} is no call", node.kind) };
    let value = match helper {
        // There is one pipeline.
        helper::GET_SMP_PROCESSOR_ID => number(0, node.bits),
        // What cannot be sent has no rendering.
        helper::FL_CLONE | helper::FL_EMIT => number(0, node.bits),
        // With flags, the verdict is `aborted`, and the target stays as it was.
        helper::REDIRECT => {
            let flags = signal(node.args[2]);
            format!("({flags} == '0) ? {} : {}", number(4, node.bits), number(0, node.bits))
        }
        _ => "now_i".to_owned(),
    };
    match dataflow.graph.as_const(node.args[0]) {
        Some(1) => value,
        _ => format!("{} ? ({value}) : {}", signal(node.args[0]), number(0, node.bits)),
    }
}

/// The name of the random words in a stage.
pub(crate) fn random_signal(stage: u32) -> String {
    if stage == 0 { "random_i".to_owned() } else { format!("random_s{stage}_q") }
}

/// The assignment of a random number: of the words that travel with the packet, the one after those that it has drawn
/// before.
pub(crate) fn random(dataflow: &Dataflow, id: Id, own: &str, stage: u32, words: u32, earlier: &[String]) -> String {
    let (all, bits) = (random_signal(stage), dataflow.graph.bits(id));
    let word = |number: u32| format!("{all}[{}:{}]", 32 * number + 31, 32 * number);
    if earlier.is_empty() {
        return format!("  assign {own} = {bits}'({});", word(0));
    }
    let count = format!("before_{own}");
    let terms: Vec<String> = earlier.iter().map(|predicate| format!("3'({predicate})")).collect();
    let most = words.min(earlier.len() as u32 + 1);
    let choices: String =
        (1..most).rev().map(|number| format!("({count} == 3'd{number}) ? {} :\n      ", word(number))).collect();
    format!(
        "  logic [2:0] {count};\n  logic [31:0] drawn_{own};\n  assign {count} = {};\n  assign drawn_{own} =\n      \
         {choices}{};\n  assign {own} = {bits}'(drawn_{own});",
        terms.join("\n      + "),
        word(0)
    )
}

/// The redirects of the program, in its order.
pub(crate) fn redirects(dataflow: &Dataflow) -> Vec<Id> {
    let is_redirect = |id: &Id| {
        dataflow.access(*id).is_some_and(|access| matches!(access.touch, Touch::Redirect | Touch::RedirectMap))
    };
    dataflow.graph.ids().filter(is_redirect).collect()
}

/// The expression of a combinational node other than inputs and packet accesses; `signal` names its arguments.
pub(crate) fn expression(graph: &Graph, id: Id, signal: &dyn Fn(Id) -> String) -> String {
    let node = graph.node(id);
    let args: Vec<String> = node.args.iter().map(|arg| signal(*arg)).collect();
    let bits = node.bits;
    match node.kind {
        Kind::Slice { low } => {
            let source = graph.bits(node.args[0]);
            match (source == bits, bits) {
                (true, _) => args[0].clone(),
                (false, 1) => format!("{}[{low}]", args[0]),
                _ => format!("{}[{}:{low}]", args[0], low + bits - 1),
            }
        }
        Kind::Concat => format!("{{{}}}", args.iter().rev().cloned().collect::<Vec<_>>().join(", ")),
        Kind::SignExtend => {
            let source = graph.bits(node.args[0]);
            let sign = if source == 1 { args[0].clone() } else { format!("{}[{}]", args[0], source - 1) };
            match bits - source {
                0 => args[0].clone(),
                added => format!("{{{{{added}{{{sign}}}}}, {}}}", args[0]),
            }
        }
        Kind::Not => format!("~{}", args[0]),
        Kind::Compare(how) => match how {
            Compare::Equal => format!("{} == {}", args[0], args[1]),
            Compare::Below => format!("{} < {}", args[0], args[1]),
            Compare::SignedBelow => format!("$signed({}) < $signed({})", args[0], args[1]),
        },
        Kind::Binary(op) => binary(op, &args[0], &args[1], bits),
        Kind::Select => select(graph, &node.args, &args),
        kind => unreachable!("{kind:?} is no combinational node"),
    }
}

fn binary(op: Binary, a: &str, b: &str, bits: u16) -> String {
    // Shifts take the distance modulo the width.
    let distance = match bits {
        1 => "1'b0".to_owned(),
        bits if bits.is_power_of_two() => format!("({b} & {})", number(u64::from(bits) - 1, bits)),
        bits => format!("({b} % {})", number(bits.into(), bits)),
    };
    match op {
        Binary::Add => format!("{a} + {b}"),
        Binary::Sub => format!("{a} - {b}"),
        Binary::And => format!("{a} & {b}"),
        Binary::Or => format!("{a} | {b}"),
        Binary::Xor => format!("{a} ^ {b}"),
        Binary::ShiftLeft => format!("{a} << {distance}"),
        Binary::ShiftRight => format!("{a} >> {distance}"),
        Binary::SignedShiftRight => format!("$unsigned($signed({a}) >>> {distance})"),
        Binary::Mul | Binary::Div | Binary::SignedDiv | Binary::Mod | Binary::SignedMod => {
            unreachable!("{op:?} is a block")
        }
    }
}

/// A priority mux.
fn select(graph: &Graph, nodes: &[Id], args: &[String]) -> String {
    let mut text = String::new();
    let pairs = nodes.len() / 2;
    for pair in 0..pairs {
        let condition = match graph.bits(nodes[2 * pair]) {
            1 => args[2 * pair].clone(),
            _ => format!("({} != '0)", args[2 * pair]),
        };
        text.push_str(&format!("{condition} ? {} : ", args[2 * pair + 1]));
    }
    text + &args[2 * pairs]
}
