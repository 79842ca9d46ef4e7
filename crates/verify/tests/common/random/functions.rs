// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random functions: models that use all features, small enough that packets reach them.
//!
//! The guarantees of a front end hold for these models too: widths follow the rule of [`flowloom_efsm::model`],
//! constants and ranges fit, `goto` leads forward, keys are valid, nothing is written twice. Everything else is free:
//! any operator on any type, rows that shadow others, timers of a few nanoseconds, tables of one entry.

mod expressions;

use std::sync::{Arc, LazyLock};

use flowloom_efsm::model::{
    Actions, BinaryOp, Destination, Element, Expr, Function, HeaderTemplate, Key, KeyPart, Level, Log, LogFormat,
    Logged, NewValue, NextState, Otherwise, Policy, Preloaded, Row, Source, Span, Stateful, Step, StepKind, Successor,
    Terminal, Type, Update, Variable, Wide, Width, Write, WriteTarget,
};
use flowloom_wire::field::{FIVE_TUPLE, FieldId, Source as FieldSource};
use flowloom_wire::{Graph, Header, KeySpec};

use super::render;
use flowloom_random::{Draw, GOLDEN_GAMMA, Xorshift64Star as Rng};
use flowloom_verify::frame_headers;

/// Subset of the language that random functions use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Numbers of up to 64 bits, keys of fields, tables that reject.
    Plain,
    /// Also features of all targets: 128-bit values, metadata in keys, sets, `full`, successors, preloaded contexts,
    /// floods.
    Common,
    /// Also features of software targets only: eviction and clones.
    Software,
}

pub fn function(reach: Reach, seed: u64, number: u64) -> Arc<Function> {
    let rng = Rng::new(seed.wrapping_mul(GOLDEN_GAMMA).wrapping_add(number));
    Maker { rng, reach, metadata: Vec::new(), together: Vec::new(), focus: Vec::new(), logs: 0 }.function(number)
}

struct Maker {
    rng: Rng,
    reach: Reach,
    metadata: Vec<Variable>,
    /// Fields that one packet can have together.
    together: Vec<FieldId>,
    /// Fields that this function uses: few, so that its rows can match the same packet.
    focus: Vec<FieldId>,
    /// Number of log steps of its rows.
    logs: u32,
}

/// Names in scope of a row's expressions.
struct Scope<'a> {
    registers: &'a [Variable],
    globals: &'a [Variable],
    is_stateful: bool,
    /// True if registers have their values after the row's updates.
    sees_updates: bool,
}

/// The kinds of frames that the stimulus builds.
static FRAMES: LazyLock<Vec<(u32, bool)>> = LazyLock::new(frame_headers);

const STATE_NAMES: [&str; 4] = ["idle", "first", "second", "third"];

impl Maker {
    fn function(&mut self, number: u64) -> Arc<Function> {
        // Most fields of a function can be in one packet, so that its rows can match. ICMP has as many fields as TCP
        // but fewer names shared with other headers, so its share is larger.
        let is_icmp = self.rng.percent(40);
        let icmp = [Header::Icmp, Header::Icmp6, Header::InnerIcmp, Header::InnerIcmp6];
        let ip = [Header::Ipv4, Header::Ipv6];
        let has = |headers: u32, any: &[Header]| any.iter().any(|header| headers & header.bit() != 0);
        let is_stacked = self.rng.percent(30);
        let fits = |&&(headers, stacked): &&(u32, bool)| {
            stacked == is_stacked && has(headers, &ip) && (!is_icmp || has(headers, &icmp))
        };
        let frames: Vec<&(u32, bool)> = FRAMES.iter().filter(fits).collect();
        let headers = self.rng.pick(&frames).map_or(u32::MAX, |frame| frame.0);
        let together = |f: &FieldId| f.headers().is_empty() || has(headers, &f.headers());
        self.together = FieldId::all().filter(together).collect();
        let network = [Header::Ethernet, Header::Vlan, Header::Vlan2, Header::Ipv4, Header::Ipv6];
        let is_of_network = |f: FieldId| {
            let headers = f.headers();
            headers.is_empty() || headers.iter().any(|header| network.contains(header))
        };
        for _ in 0..2 + self.rng.below(5) {
            let is_transport = self.rng.percent(50);
            let field = self.field_where(|f| !is_transport || !is_of_network(*f));
            self.focus.push(field);
        }
        self.metadata =
            (0..self.rng.below(4)).map(|i| Variable { initial: 0, ..self.variable(&format!("m{i}")) }).collect();
        let count = self.rng.one_of([1, 1, 2, 2, 3]);
        let elements = (0..count).map(|i| self.element(i, count)).collect();
        let name = format!("random{number}");
        let source = Source { name: format!("{name}.efsm"), text: String::new() };
        let graph = Arc::new(Graph::standard().clone());
        let mut function =
            Function { name, source: Arc::new(source), graph, metadata: self.metadata.clone(), elements };
        render::attach_source(&mut function);
        Arc::new(function)
    }

    /// A random choice that only functions of a wider reach make; the others draw no random number for it.
    fn chance_of(&mut self, reach: Reach, percent: u64) -> bool {
        self.reach >= reach && self.rng.percent(percent)
    }

    fn ty(&mut self) -> Type {
        if self.chance_of(Reach::Common, 15) {
            return Type { width_bits: 128, signed: false };
        }
        Type { width_bits: self.rng.one_of([8, 16, 32, 32, 64]), signed: self.rng.percent(40) }
    }

    fn variable(&mut self, name: &str) -> Variable {
        let ty = self.ty();
        let initial = match self.rng.percent(30) {
            true if ty.is_wide() => address(&mut self.rng),
            true => (self.number() & mask(ty.width_bits)).into(),
            false => 0,
        };
        Variable { name: name.to_owned(), ty, initial, span: Span::default() }
    }

    fn element(&mut self, index: u16, count: u16) -> Element {
        let stateful = self.rng.percent(80).then(|| self.stateful(index));
        let states = stateful.as_ref().map_or(0, |s| s.states.len() as u16);
        let rows = (0..1 + self.rng.below(6)).map(|_| self.row(stateful.as_ref(), states, index, count)).collect();
        let otherwise = Otherwise { span: Span::default(), actions: self.otherwise(index, count) };
        Element { name: format!("e{index}"), span: Span::default(), stateful, rows, otherwise }
    }

    fn stateful(&mut self, index: u16) -> Stateful {
        let states = 1 + self.rng.index(STATE_NAMES.len());
        let mut stateful = Stateful {
            key: self.key(),
            size: 1 + self.rng.below(8) as u32,
            sweep_ns: self.rng.one_of([500, 20_000, 1_000_000, 1_000_000_000]),
            policy: Policy::Reject,
            policy_span: Default::default(),
            states: STATE_NAMES[..states].iter().map(|s| (*s).to_owned()).collect(),
            successors: vec![None; states],
            registers: (0..self.rng.below(4)).map(|i| self.variable(&format!("r{index}{i}"))).collect(),
            globals: (0..self.rng.below(3)).map(|i| self.variable(&format!("g{index}{i}"))).collect(),
            preloaded: Vec::new(),
        };
        if self.chance_of(Reach::Software, 40) {
            stateful.policy = self.policy(&stateful.registers);
        }
        if states > 1 && self.chance_of(Reach::Common, 35) {
            // The last state is the successor of others and has none itself.
            for state in 0..states - 1 {
                if self.rng.percent(50) {
                    let NextState::To { idle_ns, hard_ns, .. } = self.transition(1) else { continue };
                    stateful.successors[state] = Some(Successor { state: states as u16 - 1, idle_ns, hard_ns });
                }
            }
        }
        if self.chance_of(Reach::Common, 20) {
            self.preload(&mut stateful);
        }
        stateful
    }

    fn policy(&mut self, registers: &[Variable]) -> Policy {
        let numbers: Vec<u16> =
            (0..registers.len() as u16).filter(|i| !registers[usize::from(*i)].ty.is_wide()).collect();
        match (self.rng.below(3), self.rng.pick(&numbers)) {
            (0, Some(&i)) => Policy::EvictLowest(i),
            (1, Some(&i)) => Policy::EvictHighest(i),
            _ => Policy::EvictOldest,
        }
    }

    fn preload(&mut self, stateful: &mut Stateful) {
        let Some(parts) = stateful.key.as_ref().map(|key| key.parts.clone()) else { return };
        let bytes: usize = parts
            .iter()
            .map(|part| match part {
                KeyPart::Field(field) => field.key_bytes(),
                KeyPart::Metadata(i) => usize::from(self.metadata[usize::from(*i)].ty.width_bits / 8),
            })
            .sum();
        for i in 0..self.rng.below(u64::from(stateful.size) + 1).min(3) {
            let mut key = vec![0; bytes.next_multiple_of(4)];
            key[bytes - 1] = i as u8;
            let registers =
                stateful.registers.iter().map(|r| self.rng.next_u128() & wide_mask(r.ty.width_bits)).collect();
            let state = self.rng.below(stateful.states.len() as u64) as u16;
            stateful.preloaded.push(Preloaded { key, state, registers });
        }
    }

    fn key(&mut self) -> Option<Key> {
        let named = |names: &[&str]| names.iter().filter_map(|n| FieldId::by_name(n)).collect::<Vec<_>>();
        if !self.metadata.is_empty() && self.chance_of(Reach::Common, 20) {
            let mut parts = vec![KeyPart::Metadata(self.rng.index(self.metadata.len()) as u16)];
            if self.rng.percent(50) {
                let field = self.field_where(|_| true);
                parts.insert(self.rng.index(2), KeyPart::Field(field));
            }
            return Some(Key { biflow: false, parts });
        }
        let (biflow, fields) = match self.rng.below(14) {
            0 => return None,
            1 | 2 => (false, named(&FIVE_TUPLE)),
            3 => (true, named(&FIVE_TUPLE)),
            4 => (
                true,
                named(self.rng.one_of([
                    &["ip.src", "ip.dst"][..],
                    &["eth.src", "vlan.id", "eth.dst"],
                    &["ipv4.dst", "ipv4.src", "udp.dport", "udp.sport"],
                    &["l4.sport", "l4.dport", "ip.src", "ip.dst"],
                    &["ipv6.src", "tcp.sport", "tcp.dport", "ipv6.dst"],
                ])),
            ),
            5 => (false, named(&["ip.src"])),
            6 => (false, named(&["ip.dst", "l4.dport"])),
            7 | 8 => (false, self.focus.first().copied().into_iter().collect()),
            _ => {
                let mut fields: Vec<FieldId> = FieldId::all().collect();
                let picked =
                    (0..1 + self.rng.below(3)).map(|_| fields.swap_remove(self.rng.index(fields.len()))).collect();
                (false, picked)
            }
        };
        KeySpec::of_fields(&fields, biflow).ok()?;
        Some(Key { biflow, parts: fields.into_iter().map(KeyPart::Field).collect() })
    }

    fn row(&mut self, stateful: Option<&Stateful>, states: u16, index: u16, count: u16) -> Row {
        let (registers, globals) = stateful.map_or((&[][..], &[][..]), |s| (&s.registers, &s.globals));
        let mut scope = Scope { registers, globals, is_stateful: stateful.is_some(), sees_updates: false };
        let in_states = if stateful.is_some() { self.states(states) } else { Vec::new() };
        let conditions = (0..self.rng.one_of([0, 1, 1, 1, 2, 2, 3])).map(|_| self.condition(&scope)).collect();
        let next = if stateful.is_some() && self.rng.percent(55) { self.transition(states) } else { NextState::Stay };
        let mut updates = Vec::new();
        let destinations = (0..registers.len())
            .map(|i| (Destination::Register(i as u16), registers[i].ty))
            .chain((0..globals.len()).map(|i| (Destination::Global(i as u16), globals[i].ty)));
        for (destination, ty) in destinations {
            if self.rng.percent(45) {
                let value = if ty.is_wide() {
                    NewValue::Wide(self.wide(&scope))
                } else {
                    let (value, widths) = self.expr(&scope, 2);
                    NewValue::Number { value, width: widths.width(ty.width_bits) }
                };
                updates.push(Update { destination, value, span: Span::default() });
            }
        }
        scope.sees_updates = true;
        let writes = self.writes(&scope);
        let terminal = self.terminal(Some(&scope), index, count);
        Row {
            span: Span::default(),
            states: in_states,
            conditions,
            next,
            updates,
            actions: Actions { writes, steps: self.steps(&scope), terminal },
        }
    }

    fn steps(&mut self, scope: &Scope<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        while steps.len() < 4 {
            let kind = if self.chance_of(Reach::Software, 12) {
                match self.rng.percent(60) {
                    true => StepKind::Clone(self.port(scope)),
                    false => StepKind::Emit { port: self.port(scope), headers: self.packet(scope) },
                }
            } else if self.chance_of(Reach::Common, 10) {
                self.frame_change(scope)
            } else if self.chance_of(Reach::Common, 8) {
                self.log(scope)
            } else {
                break;
            };
            steps.push(Step { kind, span: Span::default() });
        }
        steps
    }

    fn log(&mut self, scope: &Scope<'_>) -> StepKind {
        let id = self.logs;
        self.logs += 1;
        let values = (0..self.rng.below(4)).map(|i| {
            let (value, format) = if self.rng.percent(25) {
                (NewValue::Wide(self.wide(scope)), LogFormat::Address)
            } else {
                let (value, _) = self.expr(scope, 1);
                (NewValue::Number { value, width: Width::W64 }, LogFormat::Unsigned)
            };
            Logged { name: format!("v{i}"), value, format }
        });
        let values = values.collect();
        StepKind::Log(Log { id, level: Level::Alert, text: format!("report {id}"), values })
    }

    fn frame_change(&mut self, scope: &Scope<'_>) -> StepKind {
        let tag = |maker: &mut Maker| match maker.rng.percent(50) {
            true => (Header::Vlan, &["vlan.id", "vlan.pcp", "vlan.dei"][..]),
            false => (Header::Mpls, &["mpls.label", "mpls.tc", "mpls.ttl"][..]),
        };
        match self.rng.below(8) {
            0..4 => {
                let (header, names) = tag(self);
                StepKind::Push(self.header(header, names, scope))
            }
            4 | 5 => StepKind::Pop(tag(self).0),
            6 => {
                let ip = self.ip_header(scope);
                let udp = self.header(Header::Udp, &["udp.sport"], scope);
                let gtpu = self.header(Header::Gtpu, &["gtpu.teid"], scope);
                StepKind::Encapsulate(vec![ip, udp, gtpu])
            }
            _ => StepKind::Decapsulate,
        }
    }

    fn packet(&mut self, scope: &Scope<'_>) -> Vec<HeaderTemplate> {
        let mut headers = vec![self.header(Header::Ethernet, &["eth.dst", "eth.src"], scope)];
        if self.rng.percent(30) {
            headers.push(self.header(Header::Vlan, &["vlan.id"], scope));
        }
        headers.push(self.ip_header(scope));
        if self.rng.percent(30) {
            headers.push(self.header(Header::Udp, &["udp.sport"], scope));
            headers.push(self.header(Header::Gtpu, &["gtpu.teid"], scope));
            headers.push(self.ip_header(scope));
        }
        let is_v6 = headers.last().is_some_and(|ip| ip.header == Header::Ipv6);
        headers.push(match self.rng.below(3) {
            0 => self.header(Header::Udp, &["udp.sport", "udp.dport"], scope),
            1 => self.header(Header::Tcp, &["tcp.sport", "tcp.seq", "tcp.flags"], scope),
            _ if is_v6 => self.header(Header::Icmp6, &["icmp6.type", "icmp6.id"], scope),
            _ => self.header(Header::Icmp, &["icmp.type", "icmp.id"], scope),
        });
        headers
    }

    fn ip_header(&mut self, scope: &Scope<'_>) -> HeaderTemplate {
        match self.rng.percent(60) {
            true => self.header(Header::Ipv4, &["ipv4.src", "ipv4.dst", "ipv4.tos", "ipv4.ttl"], scope),
            false => self.header(Header::Ipv6, &["ipv6.src", "ipv6.dst", "ipv6.hop_limit"], scope),
        }
    }

    /// A header with values for some of these fields.
    fn header(&mut self, header: Header, names: &[&str], scope: &Scope<'_>) -> HeaderTemplate {
        let mut values = Vec::new();
        for field in names.iter().filter_map(|name| FieldId::by_name(name)) {
            if self.rng.percent(30) {
                continue;
            }
            let value = if field.width_bits() > 64 {
                NewValue::Wide(self.wide(scope))
            } else {
                let (value, widths) = self.expr(scope, 1);
                NewValue::Number { value, width: widths.width(field.width_bits()) }
            };
            values.push((field, value));
        }
        HeaderTemplate { header, values }
    }

    /// A random 128-bit value.
    fn wide(&mut self, scope: &Scope<'_>) -> Wide {
        let wide = |variables: &[Variable], place: fn(u16) -> Wide| {
            let wide = variables.iter().enumerate().filter(|(_, v)| v.ty.is_wide());
            wide.map(|(i, _)| place(i as u16)).collect::<Vec<Wide>>()
        };
        let mut there = wide(scope.registers, Wide::Register);
        there.extend(wide(scope.globals, Wide::Global));
        if scope.sees_updates {
            there.extend(wide(scope.registers, |i| Wide::Old(Destination::Register(i))));
            there.extend(wide(scope.globals, |i| Wide::Old(Destination::Global(i))));
        }
        there.extend(wide(&self.metadata, Wide::Metadata));
        let fields = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst"].into_iter().filter_map(FieldId::by_name);
        let fields: Vec<FieldId> = fields.collect();
        match self.rng.below(10) {
            0..4 => self.rng.pick(&there).copied(),
            4..8 => {
                let here: Vec<FieldId> = fields.iter().copied().filter(|f| self.together.contains(f)).collect();
                self.rng.pick(&here).copied().map(Wide::Field)
            }
            8 => self.rng.pick(&fields).copied().map(Wide::Field),
            _ => None,
        }
        .unwrap_or_else(|| Wide::Constant(address(&mut self.rng)))
    }

    fn states(&mut self, states: u16) -> Vec<u16> {
        let mut picked: Vec<u16> = (0..states).filter(|_| self.rng.percent(60)).collect();
        if picked.is_empty() {
            picked.push(self.rng.below(u64::from(states)) as u16);
        }
        picked
    }

    fn transition(&mut self, states: u16) -> NextState {
        let state = self.rng.below(u64::from(states)) as u16;
        let mut timer = |percent| {
            self.rng.percent(percent).then(|| self.rng.one_of([1, 2, 7, 300, 5_000, 1_000_000, 3_000_000_000]))
        };
        NextState::To { state, idle_ns: timer(45), hard_ns: timer(35) }
    }

    fn number(&mut self) -> u64 {
        match self.rng.below(8) {
            0..4 => self.rng.below(6),
            4 => self.rng.one_of([0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000]),
            5 => self.rng.below(70),
            6 => self.rng.next_u64() & 0xffff_ffff,
            _ => (1 + self.rng.below(3)).wrapping_neg(),
        }
    }

    /// A field that this function uses, else one that its packets can have, occasionally any.
    fn field_where(&mut self, fits: impl Fn(&FieldId) -> bool) -> FieldId {
        let all: Vec<FieldId> = FieldId::all().collect();
        for (percent, from) in [(75, self.focus.clone()), (94, self.together.clone()), (100, all)] {
            let from: Vec<FieldId> = from.into_iter().filter(&fits).collect();
            if self.rng.percent(percent)
                && let Some(&field) = self.rng.pick(&from)
            {
                return field;
            }
        }
        FieldId::PACKET_LEN
    }

    fn narrow_field(&mut self) -> FieldId {
        self.field_where(|f| f.width_bits() <= 64)
    }

    fn writes(&mut self, scope: &Scope<'_>) -> Vec<Write> {
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..self.rng.one_of([0, 0, 1, 1, 2, 3]) {
            let target = self.target();
            let Some(target) = target.filter(|t| writes.iter().all(|w| w.target != *t)) else { continue };
            let width_bits = match target {
                WriteTarget::Field(field) => field.width_bits(),
                WriteTarget::Metadata(i) => self.metadata[usize::from(i)].ty.width_bits,
            };
            let value = if width_bits > 64
                && self.reach > Reach::Plain
                && !matches!(target, WriteTarget::Field(f) if f.width_bits() > 64 && self.rng.percent(30))
            {
                NewValue::Wide(self.wide(scope))
            } else if width_bits > 64 {
                self.wide_value(target)
            } else {
                let (value, widths) = self.expr(scope, 2);
                NewValue::Number { value, width: widths.width(width_bits) }
            };
            writes.push(Write { target, value, span: Span::default() });
        }
        writes
    }

    fn target(&mut self) -> Option<WriteTarget> {
        if self.rng.percent(40) && !self.metadata.is_empty() {
            return Some(WriteTarget::Metadata(self.rng.index(self.metadata.len()) as u16));
        }
        Some(WriteTarget::Field(self.field_where(|f| f.is_writable())))
    }

    fn wide_value(&mut self, target: WriteTarget) -> NewValue {
        let is_v6 = matches!(target, WriteTarget::Field(f) if matches!(f.source(), FieldSource::Header(..)));
        let sources = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst"].into_iter().filter_map(FieldId::by_name);
        // A constant is always an IPv6 address, and so only for an IPv6 packet.
        if is_v6 && self.rng.percent(60) {
            return NewValue::Wide(Wide::Constant(0xfd00_u128 << 112 | u128::from(self.rng.next_u64())));
        }
        let sources: Vec<FieldId> = sources.collect();
        self.rng.pick(&sources).map_or(NewValue::Wide(Wide::Constant(0)), |&from| NewValue::Wide(Wide::Field(from)))
    }

    fn terminal(&mut self, scope: Option<&Scope<'_>>, index: u16, count: u16) -> Terminal {
        if index + 1 < count && self.rng.percent(65) {
            return Terminal::Goto(index + 1 + self.rng.below(u64::from(count - index - 1)) as u16);
        }
        match self.rng.below(8) {
            0 => Terminal::Drop,
            1 | 2 => Terminal::Pass,
            3 => Terminal::Punt,
            4 => Terminal::Reply,
            5 if self.chance_of(Reach::Common, 40) => Terminal::Flood,
            _ => match scope {
                Some(scope) => Terminal::Forward(self.port(scope)),
                None => Terminal::Forward(Expr::Constant(self.rng.below(8))),
            },
        }
    }

    fn port(&mut self, scope: &Scope<'_>) -> Expr {
        if self.rng.percent(40) {
            let (port, _) = self.leaf(scope);
            Expr::Binary(BinaryOp::And, port.into(), Expr::Constant(3).into())
        } else if self.rng.percent(15) {
            self.leaf(scope).0
        } else {
            Expr::Constant(self.rng.below(8))
        }
    }

    fn otherwise(&mut self, index: u16, count: u16) -> Actions {
        let mut writes = Vec::new();
        for i in 0..self.metadata.len() {
            if self.rng.percent(25) && !self.metadata[i].ty.is_wide() {
                let ty = self.metadata[i].ty;
                let value = Expr::Constant(self.number());
                let width = if ty.width_bits > 32 { Width::W64 } else { Width::W32 };
                let value = NewValue::Number { value, width };
                writes.push(Write { target: WriteTarget::Metadata(i as u16), value, span: Span::default() });
            }
        }
        Actions { writes, steps: Vec::new(), terminal: self.terminal(None, index, count) }
    }
}

/// An address of the stimulus' pools.
fn address(rng: &mut Rng) -> u128 {
    let host = u128::from(rng.below(4));
    if rng.percent(60) { 0xffff_0a00_0000 | host } else { 0xfd00_u128 << 112 | host }
}

fn wide_mask(width_bits: u8) -> u128 {
    u128::MAX >> (128 - u32::from(width_bits))
}

fn mask(width_bits: u8) -> u64 {
    u64::MAX >> (64 - u32::from(width_bits))
}
