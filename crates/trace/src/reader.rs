// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one capture.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use lzma_rust2::XzReader;

use crate::batch::{PacketBuffer, Place};
use crate::error::TraceError;
use crate::input::Input;
use crate::pcap::Pcap;
use crate::pcapng::{Block, PcapNg};
use crate::steps::Steps;

/// Ports are numbered from 1.
pub(crate) const FIRST_PORT: u32 = 1;
/// The largest Ethernet packet that capture tools write. A pcap file may hold a longer packet only if its snap length
/// permits.
pub(crate) const LARGEST_PACKET_BYTES: u32 = 262_144;
/// The largest accepted packet; a larger length is treated as malformed.
pub(crate) const MAX_PACKET_BYTES: u32 = 16 << 20;

/// The window of a reader of batches, of 7,000 short packets: the windows that are used in turn fit in the caches of a
/// core, where the engine finds what has been read.
const BATCH_WINDOW_BYTES: usize = 512 << 10;

const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// Four times the dictionary size of `xz -9`; a corrupt header can request up to 4 GiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Unsupported formats that are recognized, for the error message.
const UNSUPPORTED_FORMATS: &[(&[u8], &str)] = &[
    (&[0x1f, 0x8b], "compressed with gzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (&[0x04, 0x22, 0x4d, 0x18], "compressed with lz4"),
    (b"snoop\0\0\0", "a snoop capture"),
    (&[0x34, 0xcd, 0xb2, 0xa1], "a pcap capture of the patched libpcap of 1999 (magic `a1b2cd34`)"),
    (&[0xa1, 0xb2, 0xcd, 0x34], "a pcap capture of the patched libpcap of 1999 (magic `a1b2cd34`)"),
];

/// One packet of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedPacket {
    /// Arrival time since 1970 in nanoseconds. Finer timestamps are rounded down.
    pub time_ns: u64,
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire; larger than `bytes` if the packet was truncated by the snap length.
    pub original_len_bytes: u32,
    /// pcapng: interface number in the section, from 0. pcap: 0.
    pub interface: u32,
    /// The ingress port: see [`CaptureReader`].
    pub port: u32,
    /// The return value of an XDP program, if the capture has one (`epb_verdict`).
    pub verdict: Option<u32>,
}

impl CapturedPacket {
    /// True if the packet is captured incompletely.
    pub fn is_cut(&self) -> bool {
        self.original_len_bytes as usize > self.bytes.len()
    }
}

/// Reads a capture, packet by packet, in constant memory.
///
/// Accepts pcap in microseconds and nanoseconds and pcapng, in both byte orders, plain or xz-compressed. The format is
/// detected from the first bytes, not from the file name. The link type must be Ethernet.
///
/// Ports are numbered from 1. In a pcapng file, interface `n` of a section is port `n + 1`, except that an interface
/// named `port N`, as [`crate::CaptureWriter`] names them, is port `N`. In a pcap file every packet has port 1.
///
/// A packet of a simple packet block, which has no timestamp, gets the time of the preceding packet (0 for the first).
///
/// # Errors
/// A malformed capture yields its packets up to the error, which states the offset, the value found and the value
/// expected. After an error the reader is at its end.
pub struct CaptureReader {
    input: Input,
    file: CaptureFile,
    is_ended: bool,
    /// What ended the last batch, for the next read.
    failure: Option<TraceError>,
}

enum CaptureFile {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl CaptureReader {
    /// Opens a file.
    ///
    /// # Errors
    /// If the file cannot be opened or does not start with the header of an Ethernet capture.
    pub fn open(path: impl AsRef<Path>) -> Result<CaptureReader, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        CaptureReader::from_reader(&path.display().to_string(), file)
    }

    /// Reads from standard input.
    ///
    /// # Errors
    /// If the input does not start with the header of an Ethernet capture.
    pub fn stdin() -> Result<CaptureReader, TraceError> {
        CaptureReader::from_reader("standard input", BufReader::new(std::io::stdin()))
    }

    /// Reads from any source; `name` is its name in messages.
    ///
    /// # Errors
    /// If the input does not start with the header of an Ethernet capture.
    pub fn from_reader(name: &str, source: impl Read + Send + 'static) -> Result<CaptureReader, TraceError> {
        // The peeked magic must be passed on to the decompressor.
        let mut source = source;
        let mut magic = Vec::new();
        let taken = source.by_ref().take(XZ_MAGIC.len() as u64).read_to_end(&mut magic);
        let mut input = match taken {
            Ok(_) if magic == XZ_MAGIC => {
                let packed = Cursor::new(magic).chain(BufReader::new(source));
                let unpacked = XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB);
                Input::new(name.to_owned(), Box::new(Steps::new(unpacked)), true)
            }
            Ok(_) => Input::new(name.to_owned(), Box::new(Cursor::new(magic).chain(source)), false),
            Err(source) => {
                let place = Input::new(name.to_owned(), Box::new(std::io::empty()), false).place();
                return Err(TraceError::Read { place, source });
            }
        };
        let start = input.peek(8)?;
        let file = if let Some((order, fraction_ns)) = Pcap::recognise(start) {
            CaptureFile::Pcap(Pcap::open(&mut input, order, fraction_ns)?)
        } else if PcapNg::recognise(start) {
            CaptureFile::PcapNg(PcapNg::open(&mut input)?)
        } else {
            let file = name.to_owned();
            return Err(match UNSUPPORTED_FORMATS.iter().find(|(magic, _)| start.starts_with(magic)) {
                Some((_, found)) => TraceError::OtherFormat { file, found },
                None => TraceError::NotACapture { file, found: first_bytes(start) },
            });
        };
        Ok(CaptureReader { input, file, is_ended: false, failure: None })
    }

    /// Name of the capture in messages.
    pub fn name(&self) -> &str {
        self.input.name()
    }

    /// Number of packets read so far.
    pub fn packets(&self) -> u64 {
        self.input.packets
    }

    /// Returns the next packet, or `None` at the end.
    ///
    /// # Errors
    /// If the capture is truncated or malformed at this point, or the link type is not Ethernet.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError> {
        let mut packet = CapturedPacket::default();
        Ok(self.read_into(&mut packet)?.then_some(packet))
    }

    /// Like [`CaptureReader::next_packet`], but reuses the memory of `packet`. Returns false at the end. At the end and
    /// after an error the contents of `packet` are unspecified.
    ///
    /// # Errors
    /// As [`CaptureReader::next_packet`].
    pub fn read_into(&mut self, packet: &mut CapturedPacket) -> Result<bool, TraceError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        while !self.is_ended {
            if let Some(place) = self.step()? {
                place.copy_to(packet, self.input.window());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces the packets of `buffer` by the next ones, at most `most`, and none at the end. They stay where they
    /// were read to, in a window that becomes the buffer's memory. There may be fewer before the end: as many as fit
    /// there, and of a pipe as many as have come. What has been read of later packets is copied.
    ///
    /// # Errors
    /// As [`CaptureReader::next_packet`], after the packets before.
    pub(crate) fn read_batch(&mut self, most: usize, buffer: &mut PacketBuffer) -> Result<(), TraceError> {
        buffer.places.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if let Err(failure) = self.find_packets(most, &mut buffer.places) {
            self.is_ended = true;
            if buffer.places.is_empty() {
                return Err(failure);
            }
            self.failure = Some(failure);
        }
        self.input.exchange_window(&mut buffer.memory, BATCH_WINDOW_BYTES);
        Ok(())
    }

    /// Finds the next packets, in the window.
    fn find_packets(&mut self, most: usize, places: &mut Vec<Place>) -> Result<(), TraceError> {
        // Before the first packet, the window may be moved.
        while places.is_empty() && most > 0 && !self.is_ended {
            places.extend(self.step()?);
        }
        // Then the packets that have been found keep their places: only what is there already is looked at.
        match &self.file {
            CaptureFile::Pcap(file) => {
                let found = places.len();
                let bytes = file.find_whole(self.input.window(), self.input.position(), places, most);
                self.input.consume(bytes);
                self.input.packets += (places.len() - found) as u64;
            }
            CaptureFile::PcapNg(_) => {
                while places.len() < most && self.is_next_whole() {
                    let before = self.input.position();
                    places.extend(self.step()?);
                    debug_assert!(self.input.position() > before, "the window was moved");
                }
            }
        }
        Ok(())
    }

    /// True if the next block of a pcapng file is in the window.
    fn is_next_whole(&self) -> bool {
        matches!(&self.file, CaptureFile::PcapNg(file) if file.is_whole(self.input.unread()))
    }

    /// Reads the next record; returns its packet, if it has one.
    fn step(&mut self) -> Result<Option<Place>, TraceError> {
        let found = match &mut self.file {
            CaptureFile::Pcap(file) => file.next(&mut self.input).map(|place| place.map_or(Block::End, Block::Packet)),
            CaptureFile::PcapNg(file) => file.block(&mut self.input),
        };
        match found {
            Ok(Block::Packet(place)) => {
                self.input.packets += 1;
                Ok(Some(place))
            }
            Ok(Block::Other) => Ok(None),
            Ok(Block::End) => {
                self.is_ended = true;
                Ok(None)
            }
            Err(failure) => {
                self.is_ended = true;
                Err(failure)
            }
        }
    }
}

impl Iterator for CaptureReader {
    type Item = Result<CapturedPacket, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_packet().transpose()
    }
}

fn first_bytes(start: &[u8]) -> String {
    if start.is_empty() {
        return "nothing: it is empty".to_owned();
    }
    let hex: Vec<String> = start.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("`{}`", hex.join(" "))
}
