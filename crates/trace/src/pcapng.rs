// SPDX-License-Identifier: Apache-2.0 OR MIT
//! pcapng files [pcapng 3, 4].
//!
//! Blocks that neither hold nor describe packets are skipped without buffering.

use crate::batch::Place;
use crate::error::TraceError;
use crate::input::{ByteOrder, Input, Malformation};
use crate::linktype;
use crate::reader::{FIRST_PORT, MAX_PACKET_BYTES};

/// Type of a section header, a palindrome in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(crate) const ENHANCED_PACKET: u32 = 6;
pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

pub(crate) const OPTION_IF_NAME: u16 = 2;
pub(crate) const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_IF_TSOFFSET: u16 = 14;
pub(crate) const OPTION_EPB_VERDICT: u16 = 7;
/// First octet of a verdict: a return value of an XDP program follows.
pub(crate) const VERDICT_XDP: u8 = 2;
/// Prefix of the interface names of [`crate::CaptureWriter`]; the port number follows.
pub(crate) const PORT_NAME: &str = "port ";

/// Type, length, and first word of the body (the byte order in a section header).
const BLOCK_START_BYTES: usize = 12;
/// Where the bytes of a packet begin in an enhanced packet block, and in a simple one.
const EPB_DATA_AT: usize = 28;
const SPB_DATA_AT: usize = 12;
/// Type and both lengths.
const FRAME_BYTES: u32 = 12;
/// Limit of blocks that are buffered whole: the largest packet, and as many bytes of options.
const MAX_BLOCK_BYTES: u32 = 2 * MAX_PACKET_BYTES;
/// Interfaces of one section; bounds memory.
const MAX_INTERFACES: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u32,
    snap_bytes: u32,
    port: u32,
    resolution: Resolution,
    offset_s: i64,
}

/// Timestamp units per second, as an exponent.
#[derive(Debug, Clone, Copy)]
enum Resolution {
    Decimal(u32),
    Binary(u32),
}

impl Resolution {
    fn from_octet(octet: u8) -> Resolution {
        let exponent = u32::from(octet & 0x7f);
        if octet & 0x80 == 0 { Resolution::Decimal(exponent) } else { Resolution::Binary(exponent) }
    }

    /// Converts ticks to whole nanoseconds. The result is less than 2^64 * 10^9, so 128 bits hold every intermediate
    /// value.
    fn to_ns(self, ticks: u64) -> u128 {
        let ticks = u128::from(ticks);
        match self {
            Resolution::Decimal(exponent) if exponent <= 9 => ticks * 10u128.pow(9 - exponent),
            Resolution::Decimal(exponent) => 10u128.checked_pow(exponent - 9).map_or(0, |divisor| ticks / divisor),
            Resolution::Binary(exponent) => (ticks * 1_000_000_000) >> exponent,
        }
    }
}

/// State of one file: its current section.
#[derive(Debug)]
pub(crate) struct PcapNg {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    /// Time of the preceding packet, for simple packet blocks, which have none.
    last_time_ns: u64,
}

impl PcapNg {
    /// True if `start` has the pcapng magic.
    pub(crate) fn recognise(start: &[u8]) -> bool {
        start.get(..4).is_some_and(|start| ByteOrder::Little.u32(start, 0) == SECTION_HEADER)
    }

    /// Reads the first section header.
    pub(crate) fn open(input: &mut Input) -> Result<PcapNg, TraceError> {
        let mut file = PcapNg { order: ByteOrder::Little, interfaces: Vec::new(), last_time_ns: 0 };
        file.block(input)?;
        Ok(file)
    }

    /// True if the next block is whole in these bytes. Not of a section header in another byte order, whose length
    /// seems too large.
    pub(crate) fn is_whole(&self, bytes: &[u8]) -> bool {
        bytes.get(..BLOCK_START_BYTES).is_some_and(|start| self.order.u32(start, 4) as usize <= bytes.len())
    }

    /// Reads the next block; a packet stays in the window of `input`.
    pub(crate) fn block(&mut self, input: &mut Input) -> Result<Block, TraceError> {
        if input.peek(BLOCK_START_BYTES)?.is_empty() {
            return Ok(Block::End);
        }
        let start = input.peek_whole("the start of a block", BLOCK_START_BYTES)?;
        let kind = self.order.u32(start, 0);
        if kind == SECTION_HEADER {
            match section_order(start) {
                Ok(order) => self.order = order,
                Err(malformation) => return Err(input.malformed(malformation)),
            }
        }
        let len_bytes = self.order.u32(start, 4);
        let (what, min_bytes, max_bytes) = match kind {
            SECTION_HEADER => ("a section header", 28, MAX_BLOCK_BYTES),
            INTERFACE => ("an interface description", 20, MAX_BLOCK_BYTES),
            OBSOLETE_PACKET => ("an obsolete packet block", 32, MAX_BLOCK_BYTES),
            SIMPLE_PACKET => ("a simple packet block", 16, MAX_BLOCK_BYTES),
            ENHANCED_PACKET => ("an enhanced packet block", 32, MAX_BLOCK_BYTES),
            _ => ("a block", FRAME_BYTES, u32::MAX),
        };
        if !len_bytes.is_multiple_of(4) || len_bytes < min_bytes || len_bytes > max_bytes {
            let expected = format!("a multiple of 4 from {min_bytes} to {max_bytes} for {what} (type {kind:#x})");
            let found = format!("{len_bytes} bytes");
            return Err(input.malformed(Malformation::new(4, "the length of a block", found, expected)));
        }
        if max_bytes == u32::MAX {
            return self.skip(input, len_bytes);
        }
        let block = input.peek_whole(what, len_bytes as usize)?;
        let trailer = self.order.u32(block, len_bytes as usize - 4);
        if trailer != len_bytes {
            return Err(input.malformed(wrong_trailer(len_bytes, trailer)));
        }
        let body = &block[..len_bytes as usize - 4];
        let parsed = match kind {
            SECTION_HEADER => self.section(body),
            INTERFACE => self.interface(body),
            SIMPLE_PACKET => self.simple_packet(body),
            _ => self.packet(body, kind),
        };
        match parsed {
            Ok(parsed) => {
                let begin = input.position();
                input.consume(len_bytes as usize);
                Ok(match parsed {
                    Block::Packet(place) => Block::Packet(Place { at: begin + place.at, ..place }),
                    other => other,
                })
            }
            Err(BlockError::Malformation(malformation)) => Err(input.malformed(malformation)),
            Err(BlockError::LinkType(interface, link_type)) => {
                Err(TraceError::LinkType { place: input.place(), interface, link_type })
            }
        }
    }

    fn skip(&self, input: &mut Input, len_bytes: u32) -> Result<Block, TraceError> {
        let start = input.place();
        let found = input.skip(u64::from(len_bytes) - 4)?;
        let trailer = input.peek(4)?;
        if trailer.len() < 4 {
            let found_bytes = found + trailer.len() as u64;
            let expected_bytes = u64::from(len_bytes);
            return Err(TraceError::Truncated { place: start, what: "a block", found_bytes, expected_bytes });
        }
        let trailer = self.order.u32(trailer, 0);
        if trailer != len_bytes {
            let malformation = Malformation { at_bytes: 0, ..wrong_trailer(len_bytes, trailer) };
            return Err(input.malformed(malformation));
        }
        input.consume(4);
        Ok(Block::Other)
    }

    fn section(&mut self, body: &[u8]) -> Result<Block, BlockError> {
        let (major, minor) = (self.order.u16(body, 12), self.order.u16(body, 14));
        if major != 1 {
            return Err(Malformation::new(12, "the version of a section", format!("{major}.{minor}"), "1.0").into());
        }
        self.interfaces.clear();
        Ok(Block::Other)
    }

    fn interface(&mut self, body: &[u8]) -> Result<Block, BlockError> {
        if self.interfaces.len() == MAX_INTERFACES {
            let (found, expected) = ((MAX_INTERFACES + 1).to_string(), format!("at most {MAX_INTERFACES}"));
            return Err(Malformation::new(0, "the number of interfaces in a section", found, expected).into());
        }
        let mut interface = Interface {
            link_type: u32::from(self.order.u16(body, 8)),
            snap_bytes: self.order.u32(body, 12),
            port: self.interfaces.len() as u32 + FIRST_PORT,
            resolution: Resolution::Decimal(6),
            offset_s: 0,
        };
        for option in (Options { order: self.order, body, at: 16 }) {
            let (at, code, value) = option?;
            match (code, value.len()) {
                (OPTION_IF_TSRESOL, 1) => interface.resolution = Resolution::from_octet(value[0]),
                (OPTION_IF_TSOFFSET, 8) => interface.offset_s = self.order.u64(value, 0) as i64,
                (OPTION_IF_TSRESOL, len) => return Err(wrong_option_len(at, "`if_tsresol`", len, 1)),
                (OPTION_IF_TSOFFSET, len) => return Err(wrong_option_len(at, "`if_tsoffset`", len, 8)),
                (OPTION_IF_NAME, _) => interface.port = named_port(value).unwrap_or(interface.port),
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(Block::Other)
    }

    /// Parses an enhanced packet block, or the obsolete one, whose interface number has 16 bits. The place is that in
    /// the block.
    fn packet(&mut self, body: &[u8], kind: u32) -> Result<Block, BlockError> {
        let id = if kind == OBSOLETE_PACKET { u32::from(self.order.u16(body, 8)) } else { self.order.u32(body, 8) };
        let interface = self.interface_of(id)?;
        let ticks = u64::from(self.order.u32(body, 12)) << 32 | u64::from(self.order.u32(body, 16));
        let captured_bytes = self.order.u32(body, 20);
        check_captured(20, captured_bytes, body.len() - EPB_DATA_AT)?;
        let time_ns = interface.resolution.to_ns(ticks) as i128 + i128::from(interface.offset_s) * 1_000_000_000;
        let Ok(time_ns) = u64::try_from(time_ns) else {
            let (found, expected) = (format!("{time_ns} ns since 1970"), format!("0 to {} ns", u64::MAX));
            return Err(Malformation::new(12, "the time of a packet", found, expected).into());
        };
        let padded_bytes = captured_bytes.next_multiple_of(4) as usize;
        let mut verdict = None;
        for option in (Options { order: self.order, body, at: EPB_DATA_AT + padded_bytes }) {
            let (_, code, value) = option?;
            // The obsolete block uses other option codes.
            if kind == ENHANCED_PACKET && code == OPTION_EPB_VERDICT && value.len() == 9 && value[0] == VERDICT_XDP {
                verdict = u32::try_from(self.order.u64(value, 1)).ok();
            }
        }
        self.last_time_ns = time_ns;
        Ok(Block::Packet(Place {
            at: EPB_DATA_AT,
            len_bytes: captured_bytes,
            time_ns,
            original_len_bytes: self.order.u32(body, 24),
            interface: id,
            port: interface.port,
            verdict,
        }))
    }

    /// Parses a simple packet block: of interface 0, cut at its snap length, without a timestamp.
    fn simple_packet(&mut self, body: &[u8]) -> Result<Block, BlockError> {
        let interface = self.interface_of(0)?;
        let original_len_bytes = self.order.u32(body, 8);
        let captured_bytes = match interface.snap_bytes {
            0 => original_len_bytes,
            snap_bytes => original_len_bytes.min(snap_bytes),
        };
        check_captured(8, captured_bytes, body.len() - SPB_DATA_AT)?;
        Ok(Block::Packet(Place {
            at: SPB_DATA_AT,
            len_bytes: captured_bytes,
            time_ns: self.last_time_ns,
            original_len_bytes,
            interface: 0,
            port: interface.port,
            verdict: None,
        }))
    }

    fn interface_of(&self, id: u32) -> Result<Interface, BlockError> {
        let Some(interface) = self.interfaces.get(id as usize) else {
            let expected = format!("one of the {} interfaces that the section describes", self.interfaces.len());
            return Err(Malformation::new(8, "the interface of a packet", id.to_string(), expected).into());
        };
        if interface.link_type != linktype::ETHERNET {
            return Err(BlockError::LinkType(id, interface.link_type));
        }
        Ok(*interface)
    }
}

/// Kind of a parsed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    Packet(Place),
    Other,
    End,
}

#[derive(Debug)]
enum BlockError {
    Malformation(Malformation),
    LinkType(u32, u32),
}

impl From<Malformation> for BlockError {
    fn from(malformation: Malformation) -> BlockError {
        BlockError::Malformation(malformation)
    }
}

fn section_order(start: &[u8]) -> Result<ByteOrder, Malformation> {
    let mut orders = [ByteOrder::Little, ByteOrder::Big].into_iter();
    orders.find(|order| order.u32(start, 8) == BYTE_ORDER_MAGIC).ok_or_else(|| {
        let found = format!("{:#010x}", ByteOrder::Big.u32(start, 8));
        let expected = format!("{BYTE_ORDER_MAGIC:#010x} in either order");
        Malformation::new(8, "the byte-order magic of a section", found, expected)
    })
}

fn wrong_trailer(len_bytes: u32, trailer: u32) -> Malformation {
    let expected = format!("{len_bytes} bytes, its length at the start");
    let at_bytes = u64::from(len_bytes) - 4;
    Malformation::new(at_bytes, "the length at the end of a block", format!("{trailer} bytes"), expected)
}

fn check_captured(at_bytes: u64, captured_bytes: u32, room_bytes: usize) -> Result<(), BlockError> {
    if captured_bytes as usize <= room_bytes && captured_bytes <= MAX_PACKET_BYTES {
        return Ok(());
    }
    let expected = format!("at most {} bytes", room_bytes.min(MAX_PACKET_BYTES as usize));
    let found = format!("{captured_bytes} bytes");
    Err(Malformation::new(at_bytes, "the captured length of a packet", found, expected).into())
}

fn wrong_option_len(at: usize, what: &'static str, len: usize, expected: usize) -> BlockError {
    Malformation::new(at as u64, what, format!("{len} bytes long"), format!("{expected} bytes")).into()
}

fn named_port(name: &[u8]) -> Option<u32> {
    std::str::from_utf8(name).ok()?.strip_prefix(PORT_NAME)?.parse().ok()
}

/// Iterator over the options at the end of a block's body: offset, code and value.
struct Options<'a> {
    order: ByteOrder,
    body: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<(usize, u16, &'a [u8]), BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        // Blocks and values are multiples of 4 bytes, so an option header is whole or absent.
        let rest = self.body.get(at..).filter(|rest| rest.len() >= 4)?;
        let (code, len) = (self.order.u16(rest, 0), usize::from(self.order.u16(rest, 2)));
        if code == 0 {
            return None;
        }
        let Some(value) = rest.get(4..4 + len) else {
            self.at = self.body.len();
            let (found, expected) = (format!("{len} bytes"), format!("at most {} bytes", rest.len() - 4));
            return Some(Err(Malformation::new(at as u64 + 2, "the length of an option", found, expected).into()));
        };
        self.at = at + 4 + len.next_multiple_of(4);
        Some(Ok((at, code, value)))
    }
}
