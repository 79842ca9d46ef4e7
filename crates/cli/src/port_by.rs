// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--port-by 'ip.src in 10.0.0.0/8 -> 1, else 2'`: derives the port of a packet from its fields.
//!
//! The rules are compiled to a stateless function in our language and run by the reference machine, so conditions have
//! the same semantics as in a row.

use std::sync::Arc;

use flowloom_efsm::{Machine, compile};
use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_trace::PortBy;

use crate::failure::Failure;

/// Splits the rules at commas outside of braces, brackets and parentheses, which belong to sets and calls.
fn split_rules(rules: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    rules.split(move |c: char| {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Compiles a condition to a function from packets to 1 or 0.
pub(crate) fn compile_condition(option: &str, condition: &str) -> Result<PortBy, Failure> {
    let text = format!(
        "function filter;\nstateless rules {{\nwhen {condition} {{ forward(1); }}\notherwise {{ drop; }}\n}}\n"
    );
    let (function, _) = compile(option, &text, &[]).map_err(|diagnostics| Failure::Source(Box::new(diagnostics)))?;
    let mut machine = Machine::new(Arc::new(function));
    Ok(Box::new(move |bytes| {
        let outcome = machine.process(&Packet { bytes, port: Port(0) }, &Choices::seeded(0, 0, 0));
        outcome.map_or(0, |outcome| outcome.outputs.len() as u32)
    }))
}

/// Compiles the rules to a function from packets to ports.
pub(crate) fn compile_rules(rules: &str) -> Result<PortBy, Failure> {
    let usage = |what: String| {
        Failure::Input(format!("--port-by: {what}; expected rules such as 'ip.src in 10.0.0.0/8 -> 1, else 2'"))
    };
    let mut rows = String::new();
    let mut default = None;
    for rule in split_rules(rules).map(str::trim) {
        let port = |text: &str| {
            text.trim().parse::<u8>().map_err(|_| usage(format!("`{}` is not a port from 0 to 255", text.trim())))
        };
        if default.is_some() {
            return Err(usage(format!("`{rule}` follows `else`")));
        } else if let Some(rest) = rule.strip_prefix("else ") {
            default = Some(port(rest)?);
        } else if let Some((condition, to)) = rule.rsplit_once("->") {
            rows.push_str(&format!("when {} {{ forward({}); }}\n", condition.trim(), port(to)?));
        } else {
            return Err(usage(format!("`{rule}` has no `->`")));
        }
    }
    let default = default.ok_or_else(|| usage("expected a final `else`, found none".to_owned()))?;
    let text = format!(
        "function port_by;\nstateless rules {{\n{rows}always {{ forward({default}); }}\notherwise {{ forward({default}); }}\n}}\n"
    );
    let (function, _) =
        compile("--port-by", &text, &[]).map_err(|diagnostics| Failure::Source(Box::new(diagnostics)))?;
    let mut machine = Machine::new(Arc::new(function));
    Ok(Box::new(move |bytes| {
        let packet = Packet { bytes, port: Port(0) };
        let outcome = machine.process(&packet, &Choices::seeded(0, 0, 0));
        outcome.ok().and_then(|o| o.outputs.first().map(|sent| sent.port.0)).unwrap_or(default.into())
    }))
}
