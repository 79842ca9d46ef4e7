// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes captures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use lzma_rust2::{XzOptions, XzWriter};

use crate::error::TraceError;
use crate::linktype;
use crate::pcap;
use crate::pcapng;
use crate::reader::LARGEST_PACKET_BYTES;

const NS_PER_S: u64 = 1_000_000_000;
const XZ_PRESET: u32 = 3;
const BUFFER_BYTES: usize = 128 << 10;

/// Extensions of unsupported compressions.
const COMPRESSIONS: [&str; 5] = ["gz", "zst", "bz2", "lz4", "lzma"];

/// File format of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// pcap in nanoseconds. Ports and verdicts are dropped.
    Pcap,
    /// pcapng: one interface per port, verdicts as `epb_verdict`.
    PcapNg,
}

/// Writes a capture, packet by packet: little endian, nanoseconds, snap length 262144 unless another is given.
///
/// In pcapng every port is an interface named `port N`, described before its first packet, so that
/// [`crate::CaptureReader`] restores the ports. A verdict is the return value of an XDP program.
///
/// Call [`CaptureWriter::finish`]: errors of buffered writes appear only there.
pub struct CaptureWriter {
    name: String,
    format: Format,
    sink: Sink,
    snap_bytes: u32,
    interfaces: BTreeMap<u32, u32>,
    packets: u64,
    block: Vec<u8>,
}

/// Flushes standard output after every write.
struct FlushedStdout(io::Stdout);

impl Write for FlushedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = self.0.lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

enum Sink {
    Plain(Box<dyn Write + Send>),
    Xz(Box<XzWriter<Box<dyn Write + Send>>>),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(writer) => writer.write_all(bytes),
            Sink::Xz(writer) => writer.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Plain(mut writer) => writer.flush(),
            Sink::Xz(writer) => writer.finish()?.flush(),
        }
    }
}

impl CaptureWriter {
    /// Creates a file: pcapng if its name ends in `.pcapng`, otherwise pcap; xz-compressed if `.xz` follows.
    ///
    /// # Errors
    /// If the file cannot be created, or its name requests an unsupported compression.
    pub fn create(path: impl AsRef<Path>) -> Result<CaptureWriter, TraceError> {
        CaptureWriter::create_with_snap_len(path, LARGEST_PACKET_BYTES)
    }

    /// Creates a file with snap length `snap_bytes`, at most 262144: it holds the first `snap_bytes` of each packet.
    ///
    /// # Errors
    /// As [`CaptureWriter::create`].
    pub fn create_with_snap_len(path: impl AsRef<Path>, snap_bytes: u32) -> Result<CaptureWriter, TraceError> {
        let path = path.as_ref();
        let extension = |path: &Path| path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        let outer = extension(path).unwrap_or_default();
        if COMPRESSIONS.contains(&outer.as_str()) {
            return Err(TraceError::Compression { path: path.to_owned(), extension: outer });
        }
        let is_packed = outer == "xz";
        let inner = if is_packed { extension(&path.with_extension("")).unwrap_or_default() } else { outer };
        let format = if inner == "pcapng" { Format::PcapNg } else { Format::Pcap };
        let file = File::create(path).map_err(|source| TraceError::Create { path: path.to_owned(), source })?;
        let file: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(BUFFER_BYTES, file));
        let sink = if is_packed {
            let packed = XzWriter::new(file, XzOptions::with_preset(XZ_PRESET));
            Sink::Xz(Box::new(packed.map_err(|source| TraceError::Create { path: path.to_owned(), source })?))
        } else {
            Sink::Plain(file)
        };
        CaptureWriter::start(path.display().to_string(), format, sink, snap_bytes)
    }

    /// Writes to standard output and flushes after each packet, so that the reader of a pipe sees it at once.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn stdout(format: Format) -> Result<CaptureWriter, TraceError> {
        CaptureWriter::to_writer("standard output", format, FlushedStdout(io::stdout()))
    }

    /// Writes to any sink, without buffering; `name` is its name in messages.
    ///
    /// # Errors
    /// If the header cannot be written.
    pub fn to_writer(
        name: &str,
        format: Format,
        writer: impl Write + Send + 'static,
    ) -> Result<CaptureWriter, TraceError> {
        CaptureWriter::start(name.to_owned(), format, Sink::Plain(Box::new(writer)), LARGEST_PACKET_BYTES)
    }

    fn start(name: String, format: Format, sink: Sink, snap_bytes: u32) -> Result<CaptureWriter, TraceError> {
        let snap_bytes = snap_bytes.min(LARGEST_PACKET_BYTES);
        let (interfaces, block) = (BTreeMap::new(), Vec::new());
        let mut writer = CaptureWriter { name, format, sink, snap_bytes, interfaces, packets: 0, block };
        match format {
            Format::Pcap => writer.pcap_header(),
            Format::PcapNg => writer.section_header(),
        }
        writer.flush_block()?;
        Ok(writer)
    }

    /// The file format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of packets written so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Appends a packet.
    ///
    /// `verdict` is the return value of an XDP program. Timestamps may be in any order.
    ///
    /// # Errors
    /// If writing fails, the packet has more than 262144 bytes, or a pcap file cannot represent its time (after
    /// 2106-02-07).
    pub fn write(
        &mut self,
        time_ns: u64,
        port: u32,
        original_len_bytes: u32,
        verdict: Option<u32>,
        bytes: &[u8],
    ) -> Result<(), TraceError> {
        self.check("its length in bytes", bytes.len() as u64, u64::from(LARGEST_PACKET_BYTES))?;
        let bytes = &bytes[..bytes.len().min(self.snap_bytes as usize)];
        match self.format {
            Format::Pcap => {
                let seconds = time_ns / NS_PER_S;
                self.check("its time in seconds", seconds, u64::from(u32::MAX))?;
                self.words(&[seconds as u32, (time_ns % NS_PER_S) as u32, bytes.len() as u32, original_len_bytes]);
                self.block.extend_from_slice(bytes);
            }
            Format::PcapNg => self.enhanced_packet(time_ns, port, original_len_bytes, verdict, bytes),
        }
        self.flush_block()?;
        self.packets += 1;
        Ok(())
    }

    /// Flushes the buffers and ends the file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(self) -> Result<(), TraceError> {
        let CaptureWriter { name, packets, sink, .. } = self;
        sink.finish().map_err(|source| TraceError::Write { file: name, packets, source })
    }

    fn check(&self, what: &'static str, found: u64, limit: u64) -> Result<(), TraceError> {
        if found <= limit {
            return Ok(());
        }
        Err(TraceError::OutOfRange { file: self.name.clone(), packet: self.packets + 1, what, found, limit })
    }

    /// Writes the contents of `block` to the sink.
    fn flush_block(&mut self) -> Result<(), TraceError> {
        let written = self.sink.write_all(&self.block);
        self.block.clear();
        written.map_err(|source| TraceError::Write { file: self.name.clone(), packets: self.packets, source })
    }

    fn pcap_header(&mut self) {
        self.words(&[pcap::NANOSECONDS]);
        self.halves([2, 4]);
        self.words(&[0, 0, self.snap_bytes, linktype::ETHERNET]);
    }

    fn section_header(&mut self) {
        let start = self.open_block(pcapng::SECTION_HEADER);
        self.words(&[pcapng::BYTE_ORDER_MAGIC]);
        self.halves([1, 0]);
        // The length of a streamed section is unknown.
        self.words(&[u32::MAX; 2]);
        self.close_block(start);
    }

    fn enhanced_packet(
        &mut self,
        time_ns: u64,
        port: u32,
        original_len_bytes: u32,
        verdict: Option<u32>,
        bytes: &[u8],
    ) {
        let described = self.interfaces.len() as u32;
        let interface = *self.interfaces.entry(port).or_insert(described);
        if interface == described {
            self.interface_description(port);
        }
        let start = self.open_block(pcapng::ENHANCED_PACKET);
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        self.words(&[interface, high, low, bytes.len() as u32, original_len_bytes]);
        self.block.extend_from_slice(bytes);
        self.pad(start);
        if let Some(verdict) = verdict {
            let mut value = [pcapng::VERDICT_XDP, 0, 0, 0, 0, 0, 0, 0, 0];
            value[1..].copy_from_slice(&u64::from(verdict).to_le_bytes());
            self.option(start, pcapng::OPTION_EPB_VERDICT, &value);
            self.option(start, 0, &[]);
        }
        self.close_block(start);
    }

    fn interface_description(&mut self, port: u32) {
        let start = self.open_block(pcapng::INTERFACE);
        self.halves([linktype::ETHERNET as u16, 0]);
        self.words(&[self.snap_bytes]);
        let name = format!("{}{port}", pcapng::PORT_NAME);
        self.option(start, pcapng::OPTION_IF_NAME, name.as_bytes());
        self.option(start, pcapng::OPTION_IF_TSRESOL, &[9]);
        self.option(start, 0, &[]);
        self.close_block(start);
    }

    fn open_block(&mut self, kind: u32) -> usize {
        let start = self.block.len();
        // Placeholder of the length, set by `close_block`.
        self.words(&[kind, 0]);
        start
    }

    fn close_block(&mut self, start: usize) {
        let len_bytes = ((self.block.len() - start + 4) as u32).to_le_bytes();
        self.block.extend_from_slice(&len_bytes);
        self.block[start + 4..start + 8].copy_from_slice(&len_bytes);
    }

    fn option(&mut self, start: usize, code: u16, value: &[u8]) {
        self.halves([code, value.len() as u16]);
        self.block.extend_from_slice(value);
        self.pad(start);
    }

    fn halves(&mut self, halves: [u16; 2]) {
        self.block.extend(halves.into_iter().flat_map(u16::to_le_bytes));
    }

    fn words(&mut self, words: &[u32]) {
        self.block.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn pad(&mut self, start: usize) {
        let len = (self.block.len() - start).next_multiple_of(4);
        self.block.resize(start + len, 0);
    }
}
