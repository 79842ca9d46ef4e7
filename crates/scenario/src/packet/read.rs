// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses packets.

use flowloom_efsm::model::Span;
use flowloom_wire::field::IPV4_MAPPED;
use flowloom_wire::graph::{Slice, UserHeader, bytes};

use super::fields::NAMED;
use super::format::TCP_FLAGS;
use super::{Kind, Layer, Packet};
use crate::cursor::Cursor;
use crate::error::PendingError;
use crate::lex::{Form, Kind as Tok, Value};

/// The largest payload and the largest frame, in bytes.
const MAX_BYTES: u128 = 65_535;

/// Keywords of statements and packets, besides headers and fields.
const WORDS: [&str; 50] = [
    "scenario",
    "function",
    "param",
    "let",
    "ports",
    "start",
    "at",
    "after",
    "port",
    "repeat",
    "every",
    "as",
    "state",
    "no",
    "contexts",
    "global",
    "wait",
    "sweep",
    "is",
    "of",
    "with",
    "without",
    "same",
    "inner",
    "any",
    "drop",
    "pass",
    "reply",
    "aborted",
    "forward",
    "flood",
    "also",
    "data",
    "size",
    "pad",
    "cut",
    "options",
    "mss",
    "wscale",
    "sackok",
    "sack",
    "ts",
    "nop",
    "win",
    "request",
    "echo",
    "unreachable",
    "qfi",
    "ip",
    "l4",
];

/// True if a word cannot name a value.
pub(in super::super) fn is_reserved(word: &str) -> bool {
    let is_field = |kind: Kind| kind.fields(&[]).iter().any(|(name, _)| name == word);
    WORDS.contains(&word)
        || TCP_FLAGS.iter().any(|(flag, _)| *flag == word)
        || NAMED.iter().any(|(name, kind)| *name == word || is_field(*kind))
}

pub(in super::super) struct Reader<'a> {
    /// The headers that the function declares.
    pub(in super::super) user_headers: &'a [UserHeader],
    /// The input packet, when an expected packet is parsed: `same`, `inner`, `any` and its Ethernet addresses refer to
    /// it.
    pub(in super::super) input: Option<&'a Packet>,
}

/// A packet under construction.
struct Draft {
    packet: Packet,
    /// Index of the IP header that was inserted before the last header.
    implied: Option<usize>,
    /// Transport headers without ports: index and span.
    without_ports: Vec<(usize, Span)>,
    /// True after `data`, `size`, `pad`, `cut`, `same` or `inner`: no header can follow.
    is_closed: bool,
    size: Option<(usize, Span)>,
    pad: Option<usize>,
}

impl Reader<'_> {
    /// Parses a packet up to the first token that cannot belong to it.
    pub(in super::super) fn packet(&self, cursor: &mut Cursor<'_>) -> Result<Packet, PendingError> {
        let start = cursor.span();
        let mut draft = Draft {
            packet: Packet::default(),
            implied: None,
            without_ports: Vec::new(),
            is_closed: false,
            size: None,
            pad: None,
        };
        if !cursor.is_word("eth") && !cursor.is_word("bytes") {
            draft.packet.layers.push(self.ethernet());
        }
        loop {
            self.layer(cursor, &mut draft)?;
            if !cursor.is_sign("/") {
                break;
            }
            if draft.is_closed {
                return Err(PendingError::new(cursor.span(), "a header after the payload")
                    .label("the packet has ended")
                    .help("`data`, `size`, `pad`, `cut`, `same` and `inner` end a packet"));
            }
            cursor.skip();
        }
        let span = cursor.since(start);
        self.finish(draft, span)
    }

    fn finish(&self, draft: Draft, span: Span) -> Result<Packet, PendingError> {
        let Draft { mut packet, without_ports, size, pad, .. } = draft;
        for (at, span) in without_ports {
            let next = packet.layers.get(at + 1).map(|layer| layer.kind);
            if !matches!(next, Some(Kind::Gtpu | Kind::User(_))) {
                return Err(PendingError::new(span, "no ports")
                    .label("expected ports")
                    .help("write them after the addresses: `10.0.0.1:4000 > 10.0.0.2:80`"));
            }
        }
        let headers: usize = packet.layers.iter().map(|layer| layer.bytes.len()).sum();
        if let Some((size, span)) = size {
            if size < headers {
                return Err(PendingError::new(
                    span,
                    format!("a frame of {size} bytes is too short for its headers of {headers}"),
                ));
            }
            packet.payload = counting(size - headers);
        }
        let len = headers + packet.payload.len();
        if len > MAX_BYTES as usize {
            return Err(PendingError::new(span, format!("a packet of {len} bytes, expected at most {MAX_BYTES}")));
        }
        if let Some(pad) = pad {
            packet.trailer = vec![0; pad.saturating_sub(len)];
        }
        Ok(packet)
    }

    /// An Ethernet header with the default addresses, or those of the input packet.
    fn ethernet(&self) -> Layer {
        let mut ethernet = Layer::new(Kind::Eth, self.user_headers);
        if let Some(input) = self.input.and_then(|input| input.layers.first()).filter(|layer| layer.kind == Kind::Eth) {
            ethernet.bytes[..12].copy_from_slice(&input.bytes[..12]);
        }
        ethernet
    }

    fn kind(&self, cursor: &mut Cursor<'_>) -> Result<(Kind, &'static str), PendingError> {
        let span = cursor.span();
        let Some(word) = cursor.peek_word() else { return Err(cursor.expected("a header").help(self.known())) };
        cursor.skip();
        if let Some((name, kind)) = NAMED.into_iter().find(|(name, _)| *name == word) {
            return Ok((kind, name));
        }
        if word == "ip" {
            return Ok((Kind::Ipv4, "ip"));
        }
        match self.user_headers.iter().position(|header| header.name == word) {
            Some(i) => Ok((Kind::User(i), "")),
            None => Err(PendingError::new(span, format!("no header `{word}`"))
                .label("expected a header")
                .help(self.known())),
        }
    }

    fn known(&self) -> String {
        let user_headers = self.user_headers.iter().map(|header| header.name.as_str());
        let all: Vec<&str> = NAMED.iter().map(|(name, _)| *name).chain(user_headers).collect();
        format!("headers are {}", all.join(", "))
    }

    fn layer(&self, cursor: &mut Cursor<'_>, draft: &mut Draft) -> Result<(), PendingError> {
        draft.implied = None;
        if let (Some(input), Some(word @ ("same" | "inner"))) = (self.input, cursor.peek_word()) {
            let from = match word {
                "same" => usize::from(input.layers.first().is_some_and(|layer| layer.kind == Kind::Eth)),
                _ => input
                    .inner()
                    .ok_or_else(|| PendingError::new(cursor.span(), "the input packet has no inner packet"))?,
            };
            cursor.skip();
            if word == "same" && cursor.is_value() {
                // A prefix of the packet: length fields remain those of the whole.
                let encoded = input.encode(self.user_headers);
                let whole = encoded.offsets.get(from).and_then(|&at| encoded.bytes.get(at..)).unwrap_or(&[]);
                let len = cursor.number_to("number of bytes", whole.len() as u128)? as usize;
                let bytes = whole[..len].to_vec();
                let layer = Layer { kind: Kind::Bytes, bytes, explicit: Vec::new(), ignored: Vec::new() };
                draft.packet.layers.push(layer);
                draft.is_closed = true;
                return Ok(());
            }
            draft.packet.layers.extend_from_slice(&input.layers[from..]);
            draft.packet.payload.clone_from(&input.payload);
            draft.packet.trailer.clone_from(&input.trailer);
            draft.is_closed = true;
            return Ok(());
        }
        let span = cursor.span();
        let (mut kind, name) = self.kind(cursor)?;
        if kind == Kind::Bytes {
            let bytes = raw(cursor)?;
            draft.packet.layers.push(Layer { kind, bytes, explicit: Vec::new(), ignored: Vec::new() });
            return self.items(cursor, draft);
        }
        if name == "ip" {
            let mut ahead = cursor.clone();
            if ahead.value("an address")?.form == Form::V6 {
                kind = Kind::Ipv6;
            }
        }
        let mut layer = Layer::new(kind, self.user_headers);
        match kind {
            Kind::Eth => self.addresses(cursor, &mut layer, Form::Mac)?,
            Kind::Ipv4 => self.addresses(cursor, &mut layer, Form::V4)?,
            Kind::Ipv6 => self.addresses(cursor, &mut layer, Form::V6)?,
            Kind::Vlan | Kind::Mpls | Kind::Gtpu if cursor.is_value() || cursor.is_word("any") => {
                let name = match kind {
                    Kind::Vlan => "id",
                    Kind::Mpls => "label",
                    _ => "teid",
                };
                self.field(cursor, &mut layer, name)?;
            }
            Kind::Arp => {
                let op = match cursor.word("`request` or `reply`")? {
                    ("request", _) => 1,
                    ("reply", _) => 2,
                    (_, span) => {
                        return Err(
                            PendingError::new(span, "no such ARP operation").label("expected `request` or `reply`")
                        );
                    }
                };
                layer.set_explicit(bytes(6, 2), op);
                let (from, to) =
                    (endpoint(cursor, Form::V4)?, cursor.sign(">").and_then(|()| endpoint(cursor, Form::V4))?);
                layer.set_explicit(bytes(14, 4), from);
                layer.set_explicit(bytes(24, 4), to);
                let eth = draft
                    .packet
                    .layers
                    .first()
                    .filter(|l| l.kind == Kind::Eth)
                    .cloned()
                    .unwrap_or_else(|| self.ethernet());
                layer.bytes[8..14].copy_from_slice(&eth.bytes[6..12]);
                if op == 2 {
                    layer.bytes[18..24].copy_from_slice(&eth.bytes[..6]);
                }
            }
            Kind::Tcp | Kind::Udp | Kind::Icmp | Kind::Icmp6 => {
                self.transport(cursor, &mut layer, draft, span)?;
                if draft.packet.layers.iter().all(|layer| !layer.kind.is_ip()) {
                    let name = kind.name(self.user_headers);
                    return Err(PendingError::new(span, format!("`{name}` without an IP header"))
                        .help(format!("give it addresses: `{name} 10.0.0.1 …`, or write an IP header before it: `ipv4 10.0.0.1 > 10.0.0.2 / {name} …`")));
                }
            }
            _ => {}
        }
        draft.packet.layers.push(layer);
        self.items(cursor, draft)
    }

    /// Parses `A > B`.
    fn addresses(&self, cursor: &mut Cursor<'_>, layer: &mut Layer, form: Form) -> Result<(), PendingError> {
        if layer.kind == Kind::Eth && !cursor.is_value() {
            layer.bytes = self.ethernet().bytes;
            return Ok(());
        }
        let src = endpoint(cursor, form)?;
        cursor.sign(">")?;
        let dst = endpoint(cursor, form)?;
        for (name, value) in [("src", src), ("dst", dst)] {
            if let Some(slice) = layer.kind.field(name, self.user_headers) {
                layer.set_explicit(slice, value);
            }
        }
        Ok(())
    }

    /// Parses `A:P > B:P`, `P > P`, `A > B` or nothing.
    fn transport(
        &self,
        cursor: &mut Cursor<'_>,
        layer: &mut Layer,
        draft: &mut Draft,
        span: Span,
    ) -> Result<(), PendingError> {
        let has_ports = matches!(layer.kind, Kind::Tcp | Kind::Udp);
        let at = draft.packet.layers.len();
        if !cursor.is_value() {
            if has_ports {
                draft.without_ports.push((at, span));
            }
            return Ok(());
        }
        let what = if has_ports { "an address or a port" } else { "an address" };
        let from_span = cursor.span();
        let from = cursor.value(what)?;
        if from.form == Form::Number && has_ports {
            let sport = port(from, from_span)?;
            cursor.sign(">")?;
            let dport = port_number(cursor)?;
            layer.set_explicit(bytes(0, 2), sport);
            layer.set_explicit(bytes(2, 2), dport);
            return Ok(());
        }
        let kind = match from.form {
            Form::V4 => Kind::Ipv4,
            Form::V6 => Kind::Ipv6,
            form => return Err(PendingError::new(from_span, format!("found {}, expected {what}", form.name()))),
        };
        let sport = if has_ports && cursor.eat_sign(":") { Some(port_number(cursor)?) } else { None };
        cursor.sign(">")?;
        let to = endpoint(cursor, from.form)?;
        let dport = if sport.is_some() {
            cursor.sign(":")?;
            Some(port_number(cursor)?)
        } else {
            None
        };
        match (sport, dport) {
            (Some(sport), Some(dport)) => {
                layer.set_explicit(bytes(0, 2), sport);
                layer.set_explicit(bytes(2, 2), dport);
            }
            _ if has_ports => draft.without_ports.push((at + 1, span)),
            _ => {}
        }
        let mut ip = Layer::new(kind, self.user_headers);
        for (name, value) in [("src", from.bits), ("dst", to)] {
            if let Some(slice) = kind.field(name, self.user_headers) {
                ip.set_explicit(slice, value);
            }
        }
        draft.implied = Some(at);
        draft.packet.layers.push(ip);
        Ok(())
    }

    /// Parses the items after name and addresses of the last header.
    fn items(&self, cursor: &mut Cursor<'_>, draft: &mut Draft) -> Result<(), PendingError> {
        let mut flags: Option<u8> = None;
        let mut options: Option<Vec<u8>> = None;
        loop {
            let span = cursor.span();
            let Some(word) = cursor.peek_word().filter(|word| !matches!(*word, "with" | "without" | "is")) else {
                break;
            };
            if word == "data"
                && let Some(bytes) = content(cursor, draft)
            {
                options.get_or_insert_default().extend(bytes);
                continue;
            }
            if self.payload(cursor, draft)? {
                continue;
            }
            let Some(layer) = draft.packet.layers.last_mut() else { break };
            let flag = TCP_FLAGS.iter().find(|(flag, _)| layer.kind == Kind::Tcp && *flag == word);
            if let Some((flag, bit)) = flag {
                flags = Some(flags.unwrap_or(0) | bit);
                cursor.skip();
                if *flag == "ack" && (cursor.is_value() || cursor.is_word("any")) {
                    self.field(cursor, layer, "ack")?;
                }
                continue;
            }
            if special(cursor, layer, word, &mut options)? {
                continue;
            }
            cursor.skip();
            if layer.kind.field(word, self.user_headers).is_some() {
                self.field(cursor, layer, word)?;
                continue;
            }
            let kind = layer.kind;
            let implied = draft.implied.and_then(|at| draft.packet.layers.get_mut(at));
            match implied {
                Some(ip) if ip.kind.field(word, self.user_headers).is_some() => self.field(cursor, ip, word)?,
                _ => {
                    let mut names: Vec<String> =
                        kind.fields(self.user_headers).into_iter().map(|(name, _)| name).collect();
                    names.push("data".to_owned());
                    return Err(PendingError::new(span, format!("`{}` has no `{word}`", kind.name(self.user_headers)))
                        .help(format!("it has {}", names.join(", "))));
                }
            }
        }
        let Some(layer) = draft.packet.layers.last_mut() else { return Ok(()) };
        if let Some(options) = options {
            let fixed = layer.kind.len_bytes(self.user_headers);
            let unit = if matches!(layer.kind, Kind::Extension(_)) { 8 } else { 4 };
            if let Kind::Extension(_) = layer.kind {
                layer.bytes.truncate(2);
            } else {
                layer.bytes.truncate(fixed);
            }
            layer.bytes.extend(options);
            let len = layer.bytes.len().next_multiple_of(unit);
            layer.bytes.resize(len, 0);
            let most = if unit == 8 { 2048 } else { 60 };
            if len > most && layer.kind != Kind::Gtpu {
                return Err(PendingError::new(
                    cursor.last_span(),
                    format!("a header of {len} bytes, expected at most {most}"),
                ));
            }
        }
        let flags_slice = bytes(13, 1);
        if layer.kind == Kind::Tcp && !layer.explicit.contains(&flags_slice) {
            layer.set_explicit(flags_slice, flags.unwrap_or(0x10).into());
        }
        Ok(())
    }

    /// Parses payload or frame size. Returns false if there is neither.
    fn payload(&self, cursor: &mut Cursor<'_>, draft: &mut Draft) -> Result<bool, PendingError> {
        let Some(word @ ("data" | "size" | "pad" | "cut")) = cursor.peek_word() else { return Ok(false) };
        let is_own_field =
            draft.packet.layers.last().is_some_and(|layer| layer.kind.field(word, self.user_headers).is_some());
        if is_own_field {
            return Ok(false);
        }
        let span = cursor.span();
        cursor.skip();
        draft.is_closed = true;
        if word == "data" {
            draft.packet.payload = payload(cursor)?;
            if self.input.is_some() && draft.packet.payload.is_empty() && cursor.eat_word("any") {
                draft.packet.ignore_payload = true;
            }
            return Ok(true);
        }
        let number = cursor.number_to("number of bytes", MAX_BYTES)? as usize;
        match word {
            "size" => draft.size = Some((number, span)),
            "pad" => draft.pad = Some(number),
            _ => draft.packet.cut = Some(number),
        }
        Ok(true)
    }

    /// Parses a value of a field, or `any`.
    fn field(&self, cursor: &mut Cursor<'_>, layer: &mut Layer, name: &str) -> Result<(), PendingError> {
        let Some(slice) = layer.kind.field(name, self.user_headers) else { return Err(cursor.expected("a field")) };
        if self.input.is_some() && cursor.eat_word("any") {
            let value = layer.get(slice);
            layer.set_explicit(slice, value);
            layer.ignored.push(slice);
            return Ok(());
        }
        let value = field_value(cursor, &format!("{}.{name}", layer.kind.name(self.user_headers)), slice)?;
        layer.set_explicit(slice, value);
        Ok(())
    }
}

/// Parses a value that fits a field.
pub(in super::super) fn field_value(cursor: &mut Cursor<'_>, name: &str, slice: Slice) -> Result<u128, PendingError> {
    let start = cursor.span();
    let value = cursor.value(&format!("a value of `{name}`"))?;
    let span = cursor.since(start);
    let width = slice.width_bits;
    let wrong = |what: &str| {
        Err(PendingError::new(
            span,
            format!("{what} does not fit `{name}`, which has {width} bit{}", if width == 1 { "" } else { "s" }),
        ))
    };
    match (value.form, width) {
        (Form::Number, 128) | (Form::V4, 32) | (Form::V6, 128) | (Form::Mac, 48) => Ok(value.bits),
        (Form::V4, 128) => Ok(IPV4_MAPPED | value.bits),
        (Form::Number, _) if value.bits >> width == 0 => Ok(value.bits),
        (Form::Number, _) => wrong(&value.bits.to_string()),
        (form, _) => wrong(form.name()),
    }
}

/// The bytes of `data` in an extension header that another header follows: its options. Returns `None` if `data` is the
/// payload.
fn content(cursor: &mut Cursor<'_>, draft: &Draft) -> Option<Vec<u8>> {
    let Kind::Extension(proto) = draft.packet.layers.last()?.kind else { return None };
    if proto == super::fields::FRAGMENT {
        return None;
    }
    let mut ahead = cursor.clone();
    ahead.skip();
    let bytes = payload(&mut ahead).ok()?;
    if !ahead.is_sign("/") {
        return None;
    }
    *cursor = ahead;
    Some(bytes)
}

/// Parses an address of this form.
fn endpoint(cursor: &mut Cursor<'_>, form: Form) -> Result<u128, PendingError> {
    let start = cursor.span();
    let value = cursor.value(form.name())?;
    if value.form == form {
        return Ok(value.bits);
    }
    let span = cursor.since(start);
    Err(PendingError::new(span, format!("found {}, expected {}", value.form.name(), form.name())))
}

fn port_number(cursor: &mut Cursor<'_>) -> Result<u128, PendingError> {
    let span = cursor.span();
    let value = cursor.value("a port")?;
    port(value, span)
}

fn port(value: Value, span: Span) -> Result<u128, PendingError> {
    match value {
        Value { form: Form::Number, bits } if bits <= 0xffff => Ok(bits),
        Value { form: Form::Number, bits } => {
            Err(PendingError::new(span, format!("{bits} is not a port, expected at most 65535")))
        }
        Value { form, .. } => Err(PendingError::new(span, format!("found {}, expected a port", form.name()))),
    }
}

/// The bytes 0, 1, 2, …
fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

/// Parses the part after `data`; empty before `any`.
pub(in super::super) fn payload(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, PendingError> {
    match cursor.peek() {
        Some(Tok::Bytes(bytes)) => {
            cursor.skip();
            Ok(bytes.clone())
        }
        Some(Tok::Word(word)) if word == "any" => Ok(Vec::new()),
        _ => match cursor.hex_digits() {
            Some(_) => raw(cursor),
            None => Ok(counting(cursor.number_to("number of bytes", MAX_BYTES)? as usize)),
        },
    }
}

/// Parses bytes in hexadecimal.
fn raw(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, PendingError> {
    let expected = "bytes in hexadecimal, two digits each, such as `0x00ff`";
    cursor.hex_bytes().ok_or_else(|| cursor.expected(expected))
}

/// Parses options, ICMP keywords and GTP-U extensions. Returns false if there is none.
fn special(
    cursor: &mut Cursor<'_>,
    layer: &mut Layer,
    word: &str,
    options: &mut Option<Vec<u8>>,
) -> Result<bool, PendingError> {
    let list = |options: &mut Option<Vec<u8>>, bytes: &[u8]| options.get_or_insert_default().extend(bytes);
    match (layer.kind, word) {
        (Kind::Tcp | Kind::Ipv4 | Kind::Extension(_), "options")
            if layer.kind != Kind::Extension(super::fields::FRAGMENT) =>
        {
            cursor.skip();
            let bytes = raw(cursor)?;
            list(options, &bytes);
        }
        (Kind::Tcp, "mss") => {
            cursor.skip();
            let mss = cursor.number_to("segment size", 0xffff)? as u16;
            list(options, &[&[2, 4], &mss.to_be_bytes()[..]].concat());
        }
        (Kind::Tcp, "wscale") => {
            cursor.skip();
            let scale = cursor.number_to("window scale", 0xff)? as u8;
            list(options, &[3, 3, scale]);
        }
        (Kind::Tcp, "sackok") => {
            cursor.skip();
            list(options, &[4, 2]);
        }
        (Kind::Tcp, "nop") => {
            cursor.skip();
            list(options, &[1]);
        }
        (Kind::Tcp, "ts") => {
            cursor.skip();
            let most = u32::MAX.into();
            let value = cursor.number_to("time stamp", most)? as u32;
            cursor.sign(":")?;
            let echo = cursor.number_to("time stamp", most)? as u32;
            list(options, &[&[8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat());
        }
        (Kind::Tcp, "sack") => {
            let mut blocks = Vec::new();
            loop {
                cursor.skip();
                let most = u32::MAX.into();
                blocks.extend((cursor.number_to("sequence number", most)? as u32).to_be_bytes());
                cursor.sign("..")?;
                blocks.extend((cursor.number_to("sequence number", most)? as u32).to_be_bytes());
                if !cursor.is_sign(",") || blocks.len() >= 32 {
                    break;
                }
            }
            list(options, &[&[5, 2 + blocks.len() as u8], &blocks[..]].concat());
        }
        (Kind::Icmp | Kind::Icmp6, _) => {
            let is_v6 = layer.kind == Kind::Icmp6;
            let kind = match (word, is_v6) {
                ("echo", false) => 8,
                ("echo-reply", false) => 0,
                ("unreachable", false) => 3,
                ("time-exceeded", false) => 11,
                ("echo", true) => 128,
                ("echo-reply", true) => 129,
                ("unreachable", true) => 1,
                ("time-exceeded", true) => 3,
                _ => return Ok(false),
            };
            cursor.skip();
            layer.set_explicit(bytes(0, 1), kind);
        }
        (Kind::Gtpu, "seq" | "qfi") => {
            cursor.skip();
            let mut added = options.take().unwrap_or_else(|| vec![0; 4]);
            if word == "seq" {
                let number = cursor.number_to("sequence number", 0xffff)? as u16;
                added[..2].copy_from_slice(&number.to_be_bytes());
                layer.bytes[0] |= 2;
            } else {
                // A PDU session container [TS 38.415 5.5.2].
                let flow = cursor.number_to("QoS flow identifier", 63)? as u8;
                added[3] = 0x85;
                added.extend([1, 0, flow, 0]);
                layer.bytes[0] |= 4;
            }
            *options = Some(added);
        }
        _ => return Ok(false),
    }
    Ok(true)
}
