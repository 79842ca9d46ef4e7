// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the state: contexts by key, numbers of contexts, global registers.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::layout::key_spec;
use flowloom_efsm::model::{Function, Span, Stateful, Variable};
use flowloom_engine::{Datapath, Port, Snapshot, SnapshotError};
use flowloom_wire::field::IPV4_MAPPED;
use flowloom_wire::{KeyPart, KeySpec, Layers};

use super::cursor::Cursor;
use super::error::PendingError;
use super::lex::Form;
use super::packet::Reader;

/// The key of an element without one.
const NO_KEY: [u8; flowloom_efsm::layout::SINGLE_KEY_BYTES] = [0; flowloom_efsm::layout::SINGLE_KEY_BYTES];

/// A check of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContextCheck {
    element: usize,
    kind: CheckKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CheckKind {
    /// The context with one of these keys (a `biflow` key has two directions) is in this state.
    Context { keys: Vec<Vec<u8>>, state: u16, registers: Vec<(usize, u128)> },
    /// No context has one of these keys.
    NoContext { keys: Vec<Vec<u8>> },
    /// The number of contexts.
    Count(u128),
    /// The value of a global register.
    Global(usize, u128),
}

impl ContextCheck {
    /// Parses `state …`, `no state …`, `contexts …` or `global …`.
    pub(super) fn read(cursor: &mut Cursor<'_>, function: &Function) -> Result<ContextCheck, PendingError> {
        if cursor.eat_word("contexts") {
            let (element, _) = element(cursor, function)?;
            cursor.keyword("is")?;
            return Ok(ContextCheck { element, kind: CheckKind::Count(cursor.number("a number of contexts")?) });
        }
        if cursor.eat_word("global") {
            return global(cursor, function);
        }
        let is_expected = !cursor.eat_word("no");
        cursor.keyword("state")?;
        let (element, stateful) = element(cursor, function)?;
        let keys = keys(cursor, function, stateful)?;
        if !is_expected {
            return Ok(ContextCheck { element, kind: CheckKind::NoContext { keys } });
        }
        cursor.keyword("is")?;
        let (name, span) = cursor.word("a state")?;
        let Some(state) = stateful.states.iter().position(|state| state == name) else {
            let known = stateful.states.join(", ");
            return Err(PendingError::new(span, format!("no state `{name}`")).help(format!("its states are {known}")));
        };
        let mut registers = Vec::new();
        while cursor.eat_sign(",") {
            let (name, span) = cursor.word("a register")?;
            let Some(i) = stateful.registers.iter().position(|register| register.name == name) else {
                return Err(unknown("register", name, span, &stateful.registers));
            };
            cursor.sign("=")?;
            registers.push((i, number(cursor, &stateful.registers[i])?));
        }
        Ok(ContextCheck { element, kind: CheckKind::Context { keys, state: state as u16, registers } })
    }

    /// Returns the failures of the check on `snapshot` at `now_ns`.
    ///
    /// # Errors
    /// The snapshot holds an entry that is no valid context of the function.
    pub(super) fn failures(
        &self,
        function: &Arc<Function>,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> Result<Vec<String>, SnapshotError> {
        // The machine applies timeouts to the contexts.
        let mut machine = Machine::new(Arc::clone(function));
        let is_state = |map: &String| !flowloom_efsm::layout::is_instrument(map);
        let maps = snapshot.maps.clone().into_iter().filter(|(map, _)| is_state(map)).collect();
        let failed = |error| match error {
            flowloom_engine::EngineError::Snapshot(error) => error,
            other => SnapshotError::Json(other.to_string()),
        };
        machine.restore(&Snapshot { maps, ..Snapshot::default() }).map_err(failed)?;
        machine.sweep(now_ns).map_err(failed)?;
        let element = &function.elements[self.element];
        let Some(stateful) = &element.stateful else { return Ok(Vec::new()) };
        let find = |keys: &[Vec<u8>]| machine.contexts(self.element).find(|(key, _)| keys.iter().any(|k| k == key));
        let name = |state: u16| stateful.states.get(usize::from(state)).map_or("?", String::as_str);
        Ok(match &self.kind {
            CheckKind::Count(expected) => {
                let found = machine.contexts(self.element).count() as u128;
                let wrong = || format!("contexts of `{}`: expected {expected}, found {found}", element.name);
                (found != *expected).then(wrong).into_iter().collect()
            }
            CheckKind::Global(i, expected) => {
                let found = machine.globals(self.element).get(*i).copied().unwrap_or(0);
                let global = &stateful.globals[*i];
                let (e, f) = (text(global, *expected), text(global, found));
                let wrong = || format!("{}.{}: expected {e}, found {f}", element.name, global.name);
                (found != *expected).then(wrong).into_iter().collect()
            }
            CheckKind::NoContext { keys } => match find(keys) {
                Some((_, context)) => vec![format!(
                    "context of `{}`: expected none, found one in state `{}`",
                    element.name,
                    name(context.state)
                )],
                None => Vec::new(),
            },
            CheckKind::Context { keys, state, registers } => {
                let Some((_, context)) = find(keys) else {
                    return Ok(vec![format!(
                        "context of `{}`: expected one in state `{}`, found none",
                        element.name,
                        name(*state)
                    )]);
                };
                let mut wrong = Vec::new();
                if context.state != *state {
                    wrong.push(format!("state: expected `{}`, found `{}`", name(*state), name(context.state)));
                }
                for &(i, expected) in registers {
                    let found = context.registers.get(i).copied().unwrap_or(0);
                    let register = &stateful.registers[i];
                    if found != expected {
                        let (e, f) = (text(register, expected), text(register, found));
                        wrong.push(format!("{}: expected {e}, found {f}", register.name));
                    }
                }
                wrong
            }
        })
    }
}

/// Formats a variable's value in decimal, or as an IPv6 address.
fn text(variable: &Variable, value: u128) -> String {
    if variable.ty.is_wide() {
        return std::net::Ipv6Addr::from_bits(value).to_string();
    }
    let shift = 128 - u32::from(variable.ty.width_bits);
    if variable.ty.signed { ((value << shift) as i128 >> shift).to_string() } else { value.to_string() }
}

fn element<'f>(cursor: &mut Cursor<'_>, function: &'f Function) -> Result<(usize, &'f Stateful), PendingError> {
    let (name, span) = cursor.word("an element")?;
    by_name(function, name, span)
}

fn by_name<'f>(function: &'f Function, name: &str, span: Span) -> Result<(usize, &'f Stateful), PendingError> {
    let stateful = function.elements.iter().enumerate().filter_map(|(i, e)| Some((i, &e.name, e.stateful.as_ref()?)));
    let found = stateful.clone().find(|(_, element, _)| *element == name);
    found.map(|(i, _, stateful)| (i, stateful)).ok_or_else(|| {
        let known: Vec<&str> = stateful.map(|(_, name, _)| name.as_str()).collect();
        PendingError::new(span, format!("no stateful element `{name}`")).help(match known.is_empty() {
            true => "the function has none".to_owned(),
            false => format!("it has {}", known.join(", ")),
        })
    })
}

fn unknown(what: &str, name: &str, span: Span, known: &[Variable]) -> PendingError {
    let names: Vec<&str> = known.iter().map(|variable| variable.name.as_str()).collect();
    let help = if names.is_empty() { format!("it has no {what}s") } else { format!("it has {}", names.join(", ")) };
    PendingError::new(span, format!("no {what} `{name}`")).help(help)
}

/// Parses `ELEMENT.NAME is VALUE`.
fn global(cursor: &mut Cursor<'_>, function: &Function) -> Result<ContextCheck, PendingError> {
    let (name, span) = cursor.word("a global register such as `flows.total`")?;
    let Some((element, register)) = name.split_once('.') else {
        return Err(
            PendingError::new(span, format!("`{name}` does not name an element")).help("write it as `ELEMENT.NAME`")
        );
    };
    let (element, stateful) = by_name(function, element, span)?;
    let Some(i) = stateful.globals.iter().position(|global| global.name == register) else {
        return Err(unknown("global register", register, span, &stateful.globals));
    };
    cursor.keyword("is")?;
    Ok(ContextCheck { element, kind: CheckKind::Global(i, number(cursor, &stateful.globals[i])?) })
}

/// Parses a value in the variable's range. Returns its low bits.
fn number(cursor: &mut Cursor<'_>, variable: &Variable) -> Result<u128, PendingError> {
    let start = cursor.span();
    let is_negative = cursor.eat_sign("-");
    let value = cursor.value("a value")?;
    let span = cursor.since(start);
    let width = u32::from(variable.ty.width_bits);
    let largest = u128::MAX >> (128 - width);
    let bits = match value.form {
        Form::V4 if width == 128 => IPV4_MAPPED | value.bits,
        _ => value.bits,
    };
    let most = if is_negative || variable.ty.signed { largest / 2 + u128::from(is_negative) } else { largest };
    if bits > most || is_negative && !variable.ty.signed {
        let sign = if is_negative { "-" } else { "" };
        return Err(PendingError::new(
            span,
            format!("{sign}{bits} does not fit `{}`, which has {width} bits", variable.name),
        ));
    }
    Ok(if is_negative { bits.wrapping_neg() & largest } else { bits })
}

/// Parses a key; returns both directions of a `biflow` key.
fn keys(cursor: &mut Cursor<'_>, function: &Function, stateful: &Stateful) -> Result<Vec<Vec<u8>>, PendingError> {
    let Some(spec) = key_spec(function, stateful) else { return Ok(vec![NO_KEY.to_vec()]) };
    if cursor.eat_word("of") {
        return of_packet(cursor, function, &spec).map(|key| vec![key]);
    }
    let mut values = Vec::new();
    for (i, part) in spec.parts().iter().enumerate() {
        if i > 0 && !cursor.eat_sign(",") {
            return Err(cursor.expected("`,` and the next value of the key").help(describe(function, &spec)));
        }
        values.push(part_value(cursor, *part).map_err(|error| error.help(describe(function, &spec)))?);
    }
    let key = |values: &[u128]| {
        let mut bytes = vec![0; spec.key_bytes()];
        for ((value, part), &at) in values.iter().zip(spec.parts()).zip(spec.offsets_bytes()) {
            let len = part.key_bytes();
            bytes[at..at + len].copy_from_slice(&value.to_be_bytes()[16 - len..]);
        }
        bytes
    };
    let mut keys = vec![key(&values)];
    if !spec.pairs().is_empty() {
        for &(a, b) in spec.pairs() {
            values.swap(a, b);
        }
        keys.push(key(&values));
    }
    Ok(keys)
}

fn describe(function: &Function, spec: &KeySpec) -> String {
    let name = |part: &KeyPart| match part {
        KeyPart::Field(field) => function.graph.field_name(*field).into_owned(),
        KeyPart::Value { width_bits } => format!("metadata of {width_bits} bits"),
    };
    format!("the key is {}", spec.parts().iter().map(name).collect::<Vec<_>>().join(", "))
}

fn part_value(cursor: &mut Cursor<'_>, part: KeyPart) -> Result<u128, PendingError> {
    let start = cursor.span();
    let value = cursor.value("a value of the key")?;
    let width = match part {
        KeyPart::Field(field) => field.width_bits(),
        KeyPart::Value { width_bits } => width_bits,
    };
    let bits = match value.form {
        Form::V4 if width == 128 => IPV4_MAPPED | value.bits,
        _ => value.bits,
    };
    if width < 128 && bits >> width != 0 {
        let span = cursor.since(start);
        return Err(PendingError::new(span, format!("{bits} does not fit {width} bits of the key")));
    }
    Ok(bits)
}

fn of_packet(cursor: &mut Cursor<'_>, function: &Function, spec: &KeySpec) -> Result<Vec<u8>, PendingError> {
    let start = cursor.span();
    if spec.parts().iter().any(|part| part.field().is_none()) {
        return Err(PendingError::new(start, "the key has metadata, which a packet does not determine")
            .help(describe(function, spec)));
    }
    let port = if cursor.eat_word("port") { cursor.port()? } else { Port(1) };
    let user_headers = function.graph.user_headers();
    let bytes = Reader { user_headers, input: None }.packet(cursor)?.encode(user_headers).bytes;
    let layers = Layers::parse(&function.graph, &bytes);
    spec.extract(&layers, &bytes, port.0, &[]).ok_or_else(|| {
        let span = cursor.since(start);
        PendingError::new(span, "the packet lacks a field of the key").help(describe(function, spec))
    })
}
