// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scenario bound to a function or program: packets as bytes, expectations as engine outcomes.

use std::sync::Arc;

use flowloom_efsm::model::{Function, Level, Span};
use flowloom_engine::{Port, Ports, Snapshot, SnapshotError, Verdict};
use flowloom_wire::graph::UserHeader;

use super::cursor::{Cursor, Names};
use super::error::{PendingError, ScenarioErrors};
use super::lex::{Form, Value};
use super::packet::{Changed, Kind, Packet, Reader, Target, field_value, is_reserved, payload};
use super::reports::ExpectedReport;
use super::state::ContextCheck;
use super::suite::{Scenario, Statement, Suite};
use super::table::{MapCheck, Tables};

/// Default time between packets.
const STEP_NS: u64 = 1_000_000;
/// Maximum number of events of a scenario: all are held in memory.
const MAX_EVENTS: usize = 200_000;

/// A scenario bound to one function, to be [played](super::play).
#[derive(Debug, Clone)]
pub struct Script {
    pub(super) subject: Subject,
    pub(super) ports: Ports,
    /// Initial contents of the maps.
    pub(super) initial: Snapshot,
    pub(super) events: Vec<Event>,
}

const MAX_CPU: u128 = 0xffff;

#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// An `.efsm` function.
    Function(Arc<Function>),
    /// An eBPF program.
    Program(Arc<Tables>),
}

impl Subject {
    /// The headers that it declares.
    pub(super) fn user_headers(&self) -> &[UserHeader] {
        match self {
            Subject::Function(function) => function.graph.user_headers(),
            Subject::Program(_) => &[],
        }
    }
}

/// A check of the state.
#[derive(Debug, Clone)]
pub(super) enum Check {
    Context(ContextCheck),
    Map(MapCheck),
}

impl Check {
    fn read(cursor: &mut Cursor<'_>, subject: &Subject) -> Result<Check, PendingError> {
        match subject {
            Subject::Function(function) => ContextCheck::read(cursor, function).map(Check::Context),
            Subject::Program(tables) => MapCheck::read(cursor, tables).map(Check::Map),
        }
    }

    /// Returns the failures of the check on `snapshot` at `now_ns`.
    ///
    /// # Errors
    /// The snapshot holds an entry that is no valid context of the function.
    pub(super) fn failures(
        &self,
        subject: &Subject,
        snapshot: &Snapshot,
        now_ns: u64,
    ) -> Result<Vec<String>, SnapshotError> {
        match (self, subject) {
            (Check::Context(check), Subject::Function(function)) => check.failures(function, snapshot, now_ns),
            (Check::Map(check), _) => Ok(check.failures(snapshot)),
            (Check::Context(_), Subject::Program(_)) => Ok(Vec::new()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    /// The line number, from 1, and its text.
    pub(super) line: u32,
    pub(super) text: String,
    pub(super) now_ns: u64,
    pub(super) kind: EventKind,
}

#[derive(Debug, Clone)]
pub(super) enum EventKind {
    Packet(Box<InputPacket>),
    Check(Check),
    Sweep,
}

/// An input packet and its expected outcome.
#[derive(Debug, Clone)]
pub(super) struct InputPacket {
    pub(super) port: Port,
    pub(super) packet: Packet,
    pub(super) bytes: Vec<u8>,
    /// `None` if the outcome is not checked.
    pub(super) expected: Option<Expected>,
}

#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) verdict: Verdict,
    pub(super) outputs: Vec<(Port, Packet)>,
    pub(super) reports: Vec<ExpectedReport>,
}

impl Script {
    /// Binds a scenario of `suite` to `function`, which was compiled with the scenario's parameters.
    ///
    /// # Errors
    /// All errors in it: unknown headers, fields, elements or states, and values out of range.
    pub fn new(suite: &Suite, scenario: &Scenario, function: &Arc<Function>) -> Result<Script, ScenarioErrors> {
        Script::bind(suite, scenario, Subject::Function(Arc::clone(function)))
    }

    /// Binds a scenario of `suite` to a program with these maps, which was compiled with the scenario's parameters.
    ///
    /// # Errors
    /// All errors in it: unknown headers, fields or maps, and values out of range.
    pub fn of_program(suite: &Suite, scenario: &Scenario, tables: &Arc<Tables>) -> Result<Script, ScenarioErrors> {
        Script::bind(suite, scenario, Subject::Program(Arc::clone(tables)))
    }

    fn bind(suite: &Suite, scenario: &Scenario, subject: Subject) -> Result<Script, ScenarioErrors> {
        let mut writer = Writer {
            suite,
            subject: &subject,
            initial: Snapshot::default(),
            ports: scenario.ports(),
            start_ns: scenario.settings.start_ns,
            now_ns: 0,
            next_ns: 0,
            names: scenario.settings.names.clone(),
            events: Vec::new(),
            errors: Vec::new(),
        };
        writer.block(&scenario.body);
        let Writer { ports, events, initial, errors, .. } = writer;
        if errors.is_empty() {
            return Ok(Script { subject, ports, initial, events });
        }
        let list = errors.into_iter().map(|error| error.of(&suite.source)).collect();
        Err(ScenarioErrors { name: suite.name().to_owned(), list })
    }

    /// Number of input packets.
    pub fn packets(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.kind, EventKind::Packet(_))).count()
    }
}

struct Writer<'a> {
    suite: &'a Suite,
    subject: &'a Subject,
    initial: Snapshot,
    ports: Ports,
    start_ns: u64,
    /// Current time since the start of the scenario.
    now_ns: u64,
    /// Time of the next packet without an explicit one.
    next_ns: u64,
    names: Names,
    events: Vec<Event>,
    errors: Vec<PendingError>,
}

impl Writer<'_> {
    /// Processes a block. Returns false after an error, so that `repeat` does not report it again.
    fn block(&mut self, statements: &[Statement]) -> bool {
        let before = self.errors.len();
        for statement in statements {
            if let Err(error) = self.statement(statement) {
                self.errors.push(error);
            }
        }
        self.errors.len() == before
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), PendingError> {
        let suite = self.suite;
        let names = self.names.clone();
        let tokens = suite.tokens.get(statement.tokens.clone()).unwrap_or(&[]);
        let mut cursor = Cursor::new(&suite.source.text, tokens, &names);
        let span = cursor.span();
        if let Some(body) = &statement.body {
            return self.repeat(&mut cursor, body);
        }
        let (subject, word) = (self.subject, cursor.peek_word().unwrap_or(""));
        let kind = match word {
            "set" if let Subject::Program(tables) = subject => {
                if !self.events.is_empty() {
                    return Err(PendingError::new(span, "`set` must precede the packets of its scenario")
                        .help("it sets the initial contents of a map"));
                }
                tables.set(&mut cursor, &mut self.initial)?;
                return cursor.end();
            }
            "map" | "entries" if let Subject::Program(_) = subject => {
                EventKind::Check(Check::read(&mut cursor, subject)?)
            }
            "wait" => {
                cursor.skip();
                let wait_ns = cursor.time_ns()?;
                cursor.end()?;
                self.now_ns = self.later(wait_ns, span)?;
                self.next_ns = self.now_ns;
                return Ok(());
            }
            "sweep" => {
                cursor.skip();
                EventKind::Sweep
            }
            "state" | "no" | "contexts" | "global" => EventKind::Check(Check::read(&mut cursor, subject)?),
            "repeat" => {
                return Err(PendingError::new(span, "`repeat` without a block").help("write it as `repeat 10 { … }`"));
            }
            "" if cursor.is_done() => return Ok(()),
            _ => EventKind::Packet(Box::new(self.packet(&mut cursor)?)),
        };
        cursor.end()?;
        if self.events.len() == MAX_EVENTS {
            return Err(PendingError::new(span, format!("a scenario of more than {MAX_EVENTS} packets")));
        }
        let Some(now_ns) = self.start_ns.checked_add(self.now_ns) else {
            return Err(PendingError::new(span, "the time is beyond the end of the clock"));
        };
        let (line, _, text) = suite.source.locate(span.start);
        self.events.push(Event { line, text: text.trim().to_owned(), now_ns, kind });
        Ok(())
    }

    fn later(&self, wait_ns: u64, span: Span) -> Result<u64, PendingError> {
        self.now_ns
            .checked_add(wait_ns)
            .ok_or_else(|| PendingError::new(span, "the time is beyond the end of the clock"))
    }

    fn repeat(&mut self, cursor: &mut Cursor<'_>, body: &[Statement]) -> Result<(), PendingError> {
        let head = cursor.span();
        if !cursor.eat_word("repeat") {
            return Err(PendingError::new(cursor.span(), "found a block without `repeat`")
                .help("write it as `repeat 10 { … }`"));
        }
        let count = cursor.number_to("number of iterations", MAX_EVENTS as u128)? as u64;
        let every_ns = if cursor.eat_word("every") { Some(cursor.time_ns()?) } else { None };
        let name = if cursor.eat_word("as") {
            let (name, span) = cursor.word("a name for the counter")?;
            if is_reserved(name) || name.contains(['.', '-']) {
                return Err(PendingError::new(span, format!("`{name}` cannot be a name: it is a keyword of packets")));
            }
            name
        } else {
            "i"
        };
        cursor.end()?;
        let (name, hidden) = (name.to_owned(), self.names.get(name).copied());
        let start_ns = self.next_ns;
        for turn in 0..count {
            self.names.insert(name.clone(), Value { bits: turn.into(), form: Form::Number });
            if let Some(every_ns) = every_ns {
                let begin = every_ns.checked_mul(turn).and_then(|ns| ns.checked_add(start_ns));
                self.next_ns =
                    begin.ok_or_else(|| PendingError::new(head, "the time is beyond the end of the clock"))?;
                if self.next_ns < self.now_ns {
                    return Err(PendingError::new(head, "an iteration takes longer than its `every` period"));
                }
            }
            if !self.block(body) {
                break;
            }
        }
        match hidden {
            Some(value) => self.names.insert(name, value),
            None => self.names.remove(&name),
        };
        Ok(())
    }

    /// Parses a packet with its time, its port and its expected outcome.
    fn packet(&mut self, cursor: &mut Cursor<'_>) -> Result<InputPacket, PendingError> {
        let span = cursor.span();
        let time_ns = if cursor.eat_word("at") {
            let time_ns = cursor.time_ns()?;
            if time_ns < self.now_ns {
                return Err(PendingError::new(span, "the time is before that of the previous packet")
                    .help("order packets by time"));
            }
            time_ns
        } else if cursor.eat_word("after") {
            let wait_ns = cursor.time_ns()?;
            self.later(wait_ns, span)?
        } else {
            self.next_ns
        };
        self.now_ns = time_ns;
        self.next_ns = self.later(STEP_NS, span)?;
        let port = if cursor.eat_word("port") { cursor.port()? } else { Port(1) };
        let user_headers = self.subject.user_headers();
        let packet = Reader { user_headers, input: None }.packet(cursor)?;
        let bytes = packet.encode(user_headers).bytes;
        if !cursor.is_sign("->") {
            return Err(cursor
                .expected("`->` and an outcome")
                .help("write `-> drop`, `-> pass`, `-> forward 2` …, or `-> any` to ignore the outcome"));
        }
        let reports = matches!(self.subject, Subject::Function(_));
        let expectation = Expectation { ports: &self.ports, port, input: &packet, user_headers, reports };
        let expected = expectation.read(cursor)?;
        Ok(InputPacket { port, packet, bytes, expected })
    }
}

/// Parses the expected outcome of a packet.
struct Expectation<'a> {
    ports: &'a Ports,
    port: Port,
    input: &'a Packet,
    user_headers: &'a [UserHeader],
    /// The subject is a function, which can report.
    reports: bool,
}

impl Expectation<'_> {
    fn read(&self, cursor: &mut Cursor<'_>) -> Result<Option<Expected>, PendingError> {
        let mut terminal: Option<(Verdict, Vec<(Port, Packet)>)> = None;
        let (mut also, mut reports) = (Vec::new(), Vec::new());
        let mut is_any = false;
        let start = cursor.span();
        while cursor.eat_sign("->") {
            let (word, span) = cursor
                .word("`drop`, `pass`, `reply`, `forward`, `flood`, `aborted`, `also`, `log`, `alert` or `any`")?;
            let level = [Level::Log, Level::Alert].into_iter().find(|level| level.name() == word);
            if let Some(level) = level.filter(|_| self.reports) {
                reports.push(ExpectedReport::read(cursor, level)?);
                continue;
            }
            if word == "also" {
                let port = cursor.port()?;
                also.push((port, self.changed(cursor)?));
                continue;
            }
            if terminal.is_some() || is_any {
                return Err(PendingError::new(span, "the packet already has an outcome")
                    .help("write additional packets as `-> also PORT`"));
            }
            let (verdict, to) = match word {
                "any" => {
                    is_any = true;
                    continue;
                }
                "drop" => (Verdict::Drop, Vec::new()),
                "aborted" => (Verdict::Aborted, Vec::new()),
                "pass" => (Verdict::Pass, vec![self.port]),
                "reply" => (Verdict::Tx, vec![self.port]),
                "forward" => (Verdict::Redirect, vec![cursor.port()?]),
                "cpu" => (Verdict::Redirect, vec![Port::of_cpu(cursor.number_to("CPU", MAX_CPU)? as u32)]),
                "flood" => (Verdict::Redirect, self.ports.flooded(self.port)),
                _ => {
                    return Err(PendingError::new(span, format!("no outcome `{word}`"))
                        .help(
                            "outcomes are drop, pass, reply, forward PORT, cpu N, flood, aborted, also PORT, log \"text\", alert \
                             \"text\" and any",
                        ));
                }
            };
            let packet = if matches!(word, "drop" | "aborted") { self.input.clone() } else { self.changed(cursor)? };
            terminal = Some((verdict, to.into_iter().map(|port| (port, packet.clone())).collect()));
        }
        match (terminal, is_any) {
            (None, true) if also.is_empty() && reports.is_empty() => Ok(None),
            (Some((verdict, outputs)), _) => {
                also.extend(outputs);
                Ok(Some(Expected { verdict, outputs: also, reports }))
            }
            _ => Err(PendingError::new(start, "the packet has no outcome")
                .help("write `-> drop` if only the packets after `also` are sent; `-> any` takes no other outcome")),
        }
    }

    /// Parses the expected output packet: the input with changes, or another packet.
    fn changed(&self, cursor: &mut Cursor<'_>) -> Result<Packet, PendingError> {
        let user_headers = self.user_headers;
        let base = if cursor.eat_word("as") {
            Reader { user_headers, input: Some(self.input) }.packet(cursor)?
        } else {
            self.input.clone()
        };
        let mut changed = Changed::new(base);
        while cursor.eat_word("without") {
            let (word, span) = cursor.word("`vlan` or `mpls`")?;
            let kind = match word {
                "vlan" => Kind::Vlan,
                "mpls" => Kind::Mpls,
                _ => {
                    return Err(PendingError::new(span, format!("`{word}` cannot be removed"))
                        .label("expected `vlan` or `mpls`"));
                }
            };
            if !changed.remove(kind) {
                return Err(PendingError::new(span, format!("the packet has no `{word}`")));
            }
        }
        if cursor.eat_word("with") {
            cursor.list(|cursor| self.assignment(cursor, &mut changed))?;
        }
        Ok(changed.finish(user_headers))
    }

    fn assignment(&self, cursor: &mut Cursor<'_>, changed: &mut Changed) -> Result<(), PendingError> {
        let user_headers = self.user_headers;
        let (name, span) = cursor.word("a field such as `ip.ttl`")?;
        let target = changed.packet().target(name, user_headers).map_err(|expected| {
            PendingError::new(span, format!("found `{name}`, expected {expected}"))
                .help("add a header with `as`: `-> forward 2 as mpls 5 / same`")
        })?;
        cursor.sign("=")?;
        if cursor.eat_word("any") {
            changed.ignore(target);
            return Ok(());
        }
        match target {
            Target::Payload => changed.set_payload(payload(cursor)?),
            Target::Field { slice, .. } => {
                let value = field_value(cursor, name, slice)?;
                changed.set(target, value);
            }
        }
        Ok(())
    }
}
