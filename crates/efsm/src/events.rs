// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `log` and `alert`: the records that a program writes, and their meaning for a reader.
//!
//! ```text
//!  alert("SYN flood", ip.src, n)  ──►  time, statement, level, values  ──►  fw.efsm:12 SYN flood ip.src=10.0.0.1 n=31
//!  a row of the source                 a record in EVENTS_MAP              Reader, which has the source
//! ```
//!
//! # Layout
//! Little endian: the packet's time in nanoseconds (8 bytes), the number of the statement (4), its [`Level`] (4), then
//! each value: 8 bytes for a number, sign-extended if signed, or 16 for an address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowloom_engine::Event;

use crate::model::{Function, Level, Log, LogFormat, Logged, StepKind};

/// The ring buffer of records.
pub const EVENTS_MAP: &str = "fl_events";
/// The counter of lost records, when the ring buffer was full: a data section with one u64.
pub const LOST_MAP: &str = ".data.fl_lost";
/// The size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 1 << 20;
/// The most values of a statement.
pub const MAX_VALUES: usize = 8;
/// The longest text of a statement in bytes.
pub const MAX_TEXT_BYTES: usize = 120;
/// The size of the header of a record in bytes.
pub const HEAD_BYTES: u32 = 16;

impl Level {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Level::Log => "log",
            Level::Alert => "alert",
        }
    }

    /// The number in records.
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl Logged {
    /// The size of the value in a record.
    pub fn len_bytes(&self) -> u32 {
        if self.value.wide().is_some() { 16 } else { 8 }
    }
}

impl Log {
    /// The size of the record.
    pub fn len_bytes(&self) -> u32 {
        HEAD_BYTES + self.values.iter().map(Logged::len_bytes).sum::<u32>()
    }

    /// Encodes the record of a packet at `now_ns`.
    pub fn encode(&self, now_ns: u64, value: impl Fn(&Logged) -> u128) -> Event {
        let mut bytes = Vec::with_capacity(self.len_bytes() as usize);
        bytes.extend(now_ns.to_le_bytes());
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.level.number().to_le_bytes());
        for logged in &self.values {
            bytes.extend(&value(logged).to_le_bytes()[..logged.len_bytes() as usize]);
        }
        Event { map: EVENTS_MAP.to_owned(), cpu: 0, bytes }
    }
}

/// The `log` and `alert` statements of a function.
pub fn statements(function: &Function) -> impl Iterator<Item = (&Log, crate::model::Span)> {
    let steps = function.elements.iter().flat_map(|e| &e.rows).flat_map(|row| &row.actions.steps);
    steps.filter_map(|step| match &step.kind {
        StepKind::Log(log) => Some((log, step.span)),
        _ => None,
    })
}

/// The size of the longest record; 0 without statements.
pub fn longest_bytes(function: &Function) -> u32 {
    statements(function).map(|(log, _)| log.len_bytes()).max().unwrap_or(0)
}

/// Decodes the records of one function.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    file: String,
    /// By statement number, the statement and its line.
    statements: Vec<Option<(Log, u32)>>,
}

/// A value for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// An unsigned number.
    Unsigned(u64),
    /// A signed number.
    Signed(i64),
    /// An address; a mapped one is an IPv4 address.
    Address(IpAddr),
    /// A MAC address.
    Mac([u8; 6]),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(number) => number.fmt(f),
            Value::Signed(number) => number.fmt(f),
            Value::Address(address) => address.fmt(f),
            Value::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
        }
    }
}

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The packet's time.
    pub time_ns: u64,
    /// The level.
    pub level: Level,
    /// The statement: `fw.efsm:12`.
    pub place: String,
    /// The text.
    pub text: String,
    /// The values, by their source text.
    pub values: Vec<(String, Value)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { time_ns, level, place, text, values } = self;
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        write!(f, "{seconds}.{rest:09} {} {place} {text}", level.name())?;
        values.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl Reader {
    /// The reader of a function's records.
    pub fn of(function: &Function) -> Reader {
        let mut reader = Reader { file: function.source.name.clone(), statements: Vec::new() };
        for (log, span) in statements(function) {
            let at = log.id as usize;
            if reader.statements.len() <= at {
                reader.statements.resize(at + 1, None);
            }
            let (line, ..) = function.source.locate(span.start);
            reader.statements[at] = Some((log.clone(), line));
        }
        reader
    }

    /// Whether the function has no statements.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Decodes an event; `None` for one of another map or function.
    pub fn read(&self, event: &Event) -> Option<Report> {
        if event.map != EVENTS_MAP {
            return None;
        }
        let (head, mut rest) = event.bytes.split_at_checked(HEAD_BYTES as usize)?;
        let time_ns = u64::from_le_bytes(*head.first_chunk()?);
        let id = u32::from_le_bytes(*head.get(8..)?.first_chunk()?);
        let (log, line) = self.statements.get(id as usize)?.as_ref()?;
        let mut values = Vec::with_capacity(log.values.len());
        for logged in &log.values {
            let (bytes, after) = rest.split_at_checked(logged.len_bytes() as usize)?;
            let mut wide = [0; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            values.push((logged.name.clone(), formatted(u128::from_le_bytes(wide), logged.format)));
            rest = after;
        }
        let place = format!("{}:{line}", self.file);
        rest.is_empty().then(|| Report { time_ns, level: log.level, place, text: log.text.clone(), values })
    }
}

fn formatted(value: u128, format: LogFormat) -> Value {
    let number = value as u64;
    match format {
        LogFormat::Unsigned => Value::Unsigned(number),
        LogFormat::Signed => Value::Signed(number as i64),
        LogFormat::Ipv4 => Value::Address(IpAddr::V4(Ipv4Addr::from_bits(number as u32))),
        LogFormat::Address => {
            let address = Ipv6Addr::from_bits(value);
            Value::Address(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
        }
        LogFormat::Mac => {
            let [_, _, mac @ ..] = number.to_be_bytes();
            Value::Mac(mac)
        }
    }
}
