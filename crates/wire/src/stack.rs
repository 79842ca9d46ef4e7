// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Header stacks: templates with length, protocol number and checksum fields.
//!
//! Defaults come from the parse graph: values of checks and lengths, and the selectors of the next headers. So the
//! parser accepts every packet that a stack renders.
//!
//! ```
//! use flowloom_wire::{FieldId, Graph, Header, Layers, Stack};
//! let field = |name| FieldId::by_name(name).ok_or("no such field");
//!
//! let stack = Stack::packet(Graph::standard(), &[Header::Ethernet, Header::Ipv4, Header::Udp])?;
//! let sport = stack.slot(2, field("udp.sport")?).ok_or("no place")?;
//! let packet = stack.render(&[(sport, 53)], 0);
//! let layers = Layers::parse(Graph::standard(), &packet);
//! assert_eq!(layers.read(&packet, 0, field("udp.sport")?), Some(53));
//! assert_eq!(layers.read(&packet, 0, field("ipv4.len")?), Some(28));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use crate::checksum::Sum;
use crate::field::{CHECKSUMS, FieldId, Source};
use crate::graph::{Check, Extent, Graph, Header, Length, Node, Slice, bits, bytes};

/// Default time to live and hop limit.
const DEFAULT_TTL: u128 = 64;
const DEFAULT_WINDOW: u128 = 0xffff;
/// Port of GTP-U, also the default source port.
const PORT_GTPU: u128 = 2152;
/// Length of a GTP-U packet after its 8 mandatory bytes [3GPP TS 29.281 5.1].
const GTPU_LENGTH: Slice = bytes(2, 2);

/// A stack of headers, the outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    headers: Vec<Header>,
    offsets_bytes: Vec<usize>,
    template: Vec<u8>,
    lengths: Vec<LengthSlot>,
    checksums: Vec<ChecksumSlot>,
}

/// A length field of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthSlot {
    /// Offset in the stack; the field has 16 bits.
    pub offset_bytes: usize,
    /// The field's value is this plus the number of bytes after the stack.
    pub add_bytes: usize,
}

/// A checksum of a stack. A stack orders its checksums so that none covers a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumSlot {
    /// Offset in the stack.
    pub offset_bytes: usize,
    /// Bytes of the stack that it covers.
    pub covers: Range<usize>,
    /// Its pseudo-header, if it has one.
    pub pseudo: Option<Pseudo>,
    /// Whether 0 means no checksum, so that a computed 0 is sent as 0xffff.
    pub zero_is_none: bool,
}

/// The pseudo-header of a transport checksum, except for the length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pseudo {
    /// Position of both addresses in the stack.
    pub addresses: Range<usize>,
    /// The protocol number.
    pub proto: u8,
}

/// The reason why headers do not make a stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// The first header is not allowed there.
    #[error("the first header is `{found}`, expected {expected}")]
    First {
        /// The header found, `nothing` if there is none.
        found: String,
        /// The headers allowed there.
        expected: &'static str,
    },
    /// One header cannot follow another.
    #[error("`{header}` cannot follow `{after}`")]
    Follows {
        /// The header.
        header: String,
        /// The header before it.
        after: String,
    },
    /// The last header requires a successor.
    #[error("the last header is `{found}`, expected {expected}")]
    Last {
        /// The header found.
        found: String,
        /// The headers allowed there.
        expected: &'static str,
    },
}

impl Stack {
    /// The stack of an emitted packet: Ethernet first, a transport or user-defined header last. A second VLAN tag or
    /// MPLS label, and headers after GTP-U, may have the name of the outermost one.
    ///
    /// # Errors
    /// No packet has these headers in this order.
    pub fn packet(graph: &Graph, headers: &[Header]) -> Result<Stack, StackError> {
        let headers = renamed_by_position(headers);
        match headers.first() {
            Some(Header::Ethernet) => {}
            other => return Err(first(graph, other, "`eth`")),
        }
        let last = headers[headers.len() - 1];
        let is_end =
            last.user_index().is_some() || crate::field::CHECKSUMS.iter().any(|c| c.header == last) && !is_ip(last);
        if !is_end {
            let found = graph.header_name(last).to_owned();
            return Err(StackError::Last { found, expected: "`tcp`, `udp`, `icmp`, `icmp6` or a declared header" });
        }
        Stack::new(graph, headers, true)
    }

    /// The stack that encapsulates an IP packet: IP, UDP and GTP-U. The UDP checksum is 0.
    ///
    /// # Errors
    /// Other headers.
    pub fn tunnel(graph: &Graph, headers: &[Header]) -> Result<Stack, StackError> {
        match headers.first() {
            Some(Header::Ipv4 | Header::Ipv6) => {}
            other => return Err(first(graph, other, "`ipv4` or `ipv6`")),
        }
        match headers.last() {
            Some(Header::Gtpu) => Stack::new(graph, headers.to_vec(), false),
            last => {
                let found = last.map_or_else(String::new, |&last| graph.header_name(last).to_owned());
                Err(StackError::Last { found, expected: "`gtpu`" })
            }
        }
    }

    fn new(graph: &Graph, headers: Vec<Header>, is_whole: bool) -> Result<Stack, StackError> {
        let mut stack = Stack {
            headers,
            offsets_bytes: Vec::new(),
            template: Vec::new(),
            lengths: Vec::new(),
            checksums: Vec::new(),
        };
        let mut nodes: Vec<&Node> = Vec::new();
        for i in 0..stack.headers.len() {
            let header = stack.headers[i];
            let name = |header| graph.header_name(header).to_owned();
            let misplaced = || StackError::Follows {
                header: name(header),
                after: i.checked_sub(1).map_or_else(|| "nothing".to_owned(), |before| name(stack.headers[before])),
            };
            let node = graph.node(header).ok_or_else(misplaced)?;
            let selected = match nodes.last() {
                Some(before) => Some(edge(graph, before, header).ok_or_else(misplaced)?),
                None => None,
            };
            nodes.push(node);
            stack.offsets_bytes.push(stack.template.len());
            stack.template.resize(stack.template.len() + usize::from(node.min_bytes), 0);
            if let Some((selector, value)) = selected {
                stack.set(i - 1, selector, value);
            }
        }
        for (i, node) in nodes.iter().enumerate() {
            stack.fill(i, node);
        }
        if let (false, Some(gtpu)) = (is_whole, nodes.iter().position(|node| node.header == Some(Header::Gtpu))) {
            // No inner header selects the type: a G-PDU without options.
            stack.set(gtpu, bits(5, 11), 255);
        }
        stack.find_checksums();
        if !is_whole {
            // The payload of a tunnel is unknown here: the UDP checksum stays 0 [RFC 6935].
            stack.checksums.retain(|checksum| checksum.pseudo.is_none());
        }
        Ok(stack)
    }

    /// Sets the defaults of a header.
    fn fill(&mut self, i: usize, node: &Node) {
        for check in &node.checks {
            if let Check::Equal(slice, value) = *check {
                self.set(i, slice, value.into());
            }
        }
        if let Length::Scaled { slice, add, times } = node.length {
            self.set(i, slice, u128::from(node.min_bytes / times - add));
        }
        let (start, end) = (self.offsets_bytes[i], self.template.len());
        let header_bytes = usize::from(node.min_bytes);
        let length = match node.extent {
            Extent::Total(slice) | Extent::TotalWithin(slice) => Some((slice, end - start)),
            Extent::After(slice) | Extent::AfterWithin(slice) => Some((slice, end - start - header_bytes)),
            Extent::Open | Extent::Within if self.headers[i] == Header::Gtpu => {
                Some((GTPU_LENGTH, end - start - header_bytes))
            }
            Extent::Open | Extent::Within => None,
        };
        if let Some((slice, add_bytes)) = length {
            let offset_bytes = start + usize::from(slice.offset_bits / 8);
            self.lengths.push(LengthSlot { offset_bytes, add_bytes });
        }
        match self.headers[i] {
            Header::Ipv4 | Header::InnerIpv4 => self.set(i, bytes(8, 1), DEFAULT_TTL),
            Header::Ipv6 | Header::InnerIpv6 => self.set(i, bytes(7, 1), DEFAULT_TTL),
            Header::Tcp | Header::InnerTcp => self.set(i, bytes(14, 2), DEFAULT_WINDOW),
            Header::Mpls | Header::Mpls2 | Header::Mpls3 | Header::Mpls4 => self.set(i, bytes(3, 1), DEFAULT_TTL),
            Header::Udp if self.headers.get(i + 1) == Some(&Header::Gtpu) => self.set(i, bytes(0, 2), PORT_GTPU),
            _ => {}
        }
    }

    /// Collects the checksums, the innermost first.
    fn find_checksums(&mut self) {
        for i in (0..self.headers.len()).rev() {
            let header = self.headers[i];
            let Some(checksum) = CHECKSUMS.iter().find(|c| c.header == header) else { continue };
            let start = self.offsets_bytes[i];
            let end = if is_ip(header) { start + 20 } else { self.template.len() };
            let pseudo = (!checksum.pseudo_header.is_empty() && i > 0).then(|| {
                let ip = self.offsets_bytes[i - 1];
                let is_v4 = self.template[ip] >> 4 == 4;
                let proto = self.template[ip + if is_v4 { 9 } else { 6 }];
                Pseudo { addresses: if is_v4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 }, proto }
            });
            self.checksums.push(ChecksumSlot {
                offset_bytes: start + usize::from(checksum.offset_bytes),
                covers: start..end,
                pseudo,
                zero_is_none: checksum.zero_is_none,
            });
        }
    }

    fn set(&mut self, header: usize, slice: Slice, value: u128) {
        slice.write(&mut self.template[self.offsets_bytes[header]..], value);
    }

    /// The headers, with their names in the parse graph.
    pub fn headers(&self) -> &[Header] {
        &self.headers
    }

    /// The bytes before lengths, checksums and values are filled in.
    pub fn template(&self) -> &[u8] {
        &self.template
    }

    /// The length fields.
    pub fn lengths(&self) -> &[LengthSlot] {
        &self.lengths
    }

    /// The checksums; none covers a later one.
    pub fn checksums(&self) -> &[ChecksumSlot] {
        &self.checksums
    }

    /// Position of a field of header number `header` in the stack; `None` if the header has no such field. Fields of an
    /// inner header may have the names of the outermost one.
    pub fn slot(&self, header: usize, field: FieldId) -> Option<Slice> {
        let Source::Header(of, slice) = field.source() else { return None };
        let found = *self.headers.get(header)?;
        let is_of = of == found || inner(of) == found || of == kind(found);
        let offset_bits = slice.offset_bits + (self.offsets_bytes[header] * 8) as u16;
        is_of.then_some(Slice { offset_bits, ..slice })
    }

    /// Renders the stack with `values` in their slots and a payload of `payload_bytes` bytes. A length of more than 16
    /// bits wraps.
    pub fn render(&self, values: &[(Slice, u128)], payload_bytes: usize) -> Vec<u8> {
        let mut out = self.template.clone();
        for &(slot, value) in values {
            slot.write(&mut out, value);
        }
        for length in &self.lengths {
            let value = (payload_bytes + length.add_bytes) as u16;
            out[length.offset_bytes..length.offset_bytes + 2].copy_from_slice(&value.to_be_bytes());
        }
        for checksum in &self.checksums {
            let mut sum = Sum::new().bytes(&out[checksum.covers.clone()]);
            if let Some(pseudo) = &checksum.pseudo {
                let len_bytes = checksum.covers.len() as u32;
                sum =
                    sum.bytes(&out[pseudo.addresses.clone()]).word(pseudo.proto.into()).bytes(&len_bytes.to_be_bytes());
            }
            let value = match sum.checksum() {
                0 if checksum.zero_is_none => 0xffff,
                value => value,
            };
            out[checksum.offset_bytes..checksum.offset_bytes + 2].copy_from_slice(&value.to_be_bytes());
        }
        out
    }
}

fn first(graph: &Graph, found: Option<&Header>, expected: &'static str) -> StackError {
    let found = found.map_or_else(|| "nothing".to_owned(), |&header| graph.header_name(header).to_owned());
    StackError::First { found, expected }
}

fn is_ip(header: Header) -> bool {
    matches!(header, Header::Ipv4 | Header::Ipv6 | Header::InnerIpv4 | Header::InnerIpv6)
}

/// The inner header with the same format.
fn inner(header: Header) -> Header {
    match header {
        Header::Ipv4 => Header::InnerIpv4,
        Header::Ipv6 => Header::InnerIpv6,
        Header::Tcp => Header::InnerTcp,
        Header::Udp => Header::InnerUdp,
        Header::Icmp => Header::InnerIcmp,
        Header::Icmp6 => Header::InnerIcmp6,
        other => other,
    }
}

/// The outermost header with the same format.
fn kind(header: Header) -> Header {
    match header {
        Header::Vlan2 => Header::Vlan,
        Header::Mpls2 | Header::Mpls3 | Header::Mpls4 => Header::Mpls,
        other => other,
    }
}

/// The headers with their names for these positions.
fn renamed_by_position(headers: &[Header]) -> Vec<Header> {
    let mut renamed: Vec<Header> = Vec::new();
    for &header in headers {
        let is_inside = renamed.contains(&Header::Gtpu);
        renamed.push(match (header, renamed.last()) {
            (Header::Vlan, Some(Header::Vlan)) => Header::Vlan2,
            (Header::Mpls, Some(Header::Mpls)) => Header::Mpls2,
            (Header::Mpls, Some(Header::Mpls2)) => Header::Mpls3,
            (Header::Mpls, Some(Header::Mpls3)) => Header::Mpls4,
            _ if is_inside => inner(header),
            _ => header,
        });
    }
    renamed
}

/// The selector and its value with which `header` follows.
fn edge(graph: &Graph, node: &Node, header: Header) -> Option<(Slice, u128)> {
    let leads = |to: usize| {
        let node = &graph.nodes()[to];
        node.header == Some(header)
            || node.length == Length::Peek && node.next.successors().any(|to| graph.nodes()[to].header == Some(header))
    };
    let choices = node.next.choices.iter();
    let found = choices.flat_map(|choice| choice.edges.iter().map(|edge| (choice.selector, edge)));
    let found = found.filter(|(_, edge)| leads(edge.1)).map(|(selector, edge)| (selector, u128::from(edge.0))).next();
    // An unconditional successor needs no selector.
    found.or_else(|| node.next.otherwise.filter(|&to| leads(to)).map(|_| (bits(0, 0), 0)))
}
