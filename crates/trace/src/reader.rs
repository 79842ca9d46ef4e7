//! Reading one capture.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use lzma_rust2::XzReader;

use crate::error::TraceError;
use crate::input::Input;
use crate::pcap::Pcap;
use crate::pcapng::PcapNg;

/// Ports count from 1, so that functions name them as people do.
pub(crate) const FIRST_PORT: u32 = 1;
/// The largest packet that capture tools write for Ethernet; in pcap a longer one passes only where the snap length
/// allows it.
pub(crate) const LARGEST_PACKET_BYTES: u32 = 262_144;
/// The largest packet that is read at all; beyond it a length is taken for damage.
pub(crate) const MAX_PACKET_BYTES: u32 = 16 << 20;

const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// Four times the dictionary of `xz -9`; a damaged header asks for up to 4 GiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Formats that people try and that are refused by name.
const OTHERS: &[(&[u8], &str)] = &[
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
    /// Arrival time since 1970 in nanoseconds. Finer time stamps are rounded down.
    pub time_ns: u64,
    /// The bytes that were captured.
    pub bytes: Vec<u8>,
    /// Length on the wire; more than `bytes` where the packet was cut.
    pub original_len_bytes: u32,
    /// pcapng: the number of its interface in its section, from 0. pcap: 0.
    pub interface: u32,
    /// The port it arrived by: see [`CaptureReader`].
    pub port: u32,
    /// What an XDP program returned for it, where the capture says so (`epb_verdict`).
    pub verdict: Option<u32>,
}

impl CapturedPacket {
    /// Whether bytes are missing at its end.
    pub fn is_cut(&self) -> bool {
        self.original_len_bytes as usize > self.bytes.len()
    }
}

/// Reads a capture, packet by packet, in constant memory.
///
/// pcap in microseconds and nanoseconds and pcapng, in both byte orders, plain or in xz; what it is shows from its
/// first bytes, not from its name. Every packet must come from Ethernet.
///
/// Ports count from 1. In a pcapng file interface `n` of a section is port `n + 1`, but an interface called `port N`,
/// as [`crate::CaptureWriter`] calls them, is port `N`. In a pcap file every packet arrives by port 1.
///
/// A packet of a simple packet block, which has no time, gets the time of the packet before (0 for the first).
///
/// # Errors
/// What stands before a damaged place is read first; the error then says where the damage is, what was found and what
/// was expected. After an error the capture counts as ended.
pub struct CaptureReader {
    input: Input,
    file: CaptureFile,
    is_ended: bool,
}

enum CaptureFile {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl CaptureReader {
    /// Opens a file.
    ///
    /// # Errors
    /// Where it cannot be opened or does not start as a capture of Ethernet packets does.
    pub fn open(path: impl AsRef<Path>) -> Result<CaptureReader, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        CaptureReader::from_reader(&path.display().to_string(), file)
    }

    /// Reads from standard input.
    ///
    /// # Errors
    /// Where it does not start as a capture of Ethernet packets does.
    pub fn stdin() -> Result<CaptureReader, TraceError> {
        CaptureReader::from_reader("standard input", BufReader::new(std::io::stdin()))
    }

    /// Reads from anything; `name` is what messages call it.
    ///
    /// # Errors
    /// Where it does not start as a capture of Ethernet packets does.
    pub fn from_reader(name: &str, source: impl Read + Send + 'static) -> Result<CaptureReader, TraceError> {
        // Looking at the magic takes bytes that the decompressor must see again.
        let mut source = source;
        let mut magic = Vec::new();
        let taken = source.by_ref().take(XZ_MAGIC.len() as u64).read_to_end(&mut magic);
        let mut input = match taken {
            Ok(_) if magic == XZ_MAGIC => {
                let packed = Cursor::new(magic).chain(BufReader::new(source));
                let unpacked = XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB);
                Input::new(name.to_owned(), Box::new(unpacked), true)
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
            return Err(match OTHERS.iter().find(|(magic, _)| start.starts_with(magic)) {
                Some((_, found)) => TraceError::OtherFormat { file, found },
                None => TraceError::NotACapture { file, found: first_bytes(start) },
            });
        };
        Ok(CaptureReader { input, file, is_ended: false })
    }

    /// What messages call the capture.
    pub fn name(&self) -> &str {
        self.input.name()
    }

    /// Packets read so far.
    pub fn packets(&self) -> u64 {
        self.input.packets
    }

    /// The next packet, or `None` at the end.
    ///
    /// # Errors
    /// Where the capture is cut off or damaged there, or the packet is not from Ethernet.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError> {
        let mut packet = CapturedPacket::default();
        Ok(self.read_into(&mut packet)?.then_some(packet))
    }

    /// As [`CaptureReader::next_packet`], into a packet whose memory is used again; says whether there was one. At the
    /// end and after an error `packet` holds nothing of use.
    ///
    /// # Errors
    /// As [`CaptureReader::next_packet`].
    pub fn read_into(&mut self, packet: &mut CapturedPacket) -> Result<bool, TraceError> {
        if self.is_ended {
            return Ok(false);
        }
        let read = match &mut self.file {
            CaptureFile::Pcap(file) => file.next(&mut self.input, packet),
            CaptureFile::PcapNg(file) => file.next(&mut self.input, packet),
        };
        match read {
            Ok(true) => self.input.packets += 1,
            Ok(false) | Err(_) => self.is_ended = true,
        }
        read
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
        return "nothing, it is empty".to_owned();
    }
    let hex: Vec<String> = start.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("`{}`", hex.join(" "))
}
