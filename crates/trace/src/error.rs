// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of reading and writing captures.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::folder::VARIABLE;
use crate::linktype;

/// A location in a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file name given by the caller.
    pub file: String,
    /// Offset from the start of the capture in bytes; for a compressed file, of the decompressed capture.
    pub offset_bytes: u64,
    /// True if the file is compressed.
    pub is_unpacked: bool,
    /// Number of packets read before this location.
    pub packets: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unpacked = if self.is_unpacked { " of the unpacked capture" } else { "" };
        write!(f, "`{}` at byte {}{unpacked}, after {} packets", self.file, self.offset_bytes, self.packets)
    }
}

/// Why a capture cannot be read or written, or traffic cannot be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open `{}`: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is no thread that could read captures ahead.
    #[error("cannot start a thread that reads captures: {source}; is the number of processes or memory limited?")]
    Thread {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The compressed file is truncated.
    #[error("{place}: the xz file is truncated; copy or compress it again")]
    TruncatedXz {
        /// The read position.
        place: Location,
    },
    /// Reading failed, or the compressed data are corrupt.
    #[error("cannot read {place}: {source}")]
    Read {
        /// The read position.
        place: Location,
        /// The error of the operating system or the decompressor.
        source: io::Error,
    },
    /// The first bytes match no known format.
    #[error("`{file}` starts with {found}, expected a pcap or pcapng capture, plain or in xz")]
    NotACapture {
        /// The file name given by the caller.
        file: String,
        /// Its first bytes, or a note that it is empty.
        found: String,
    },
    /// The first bytes match an unsupported format.
    #[error("`{file}` is {found}, expected a pcap or pcapng capture, plain or in xz")]
    OtherFormat {
        /// The file name given by the caller.
        file: String,
        /// The format.
        found: &'static str,
    },
    /// The capture is truncated.
    #[error("{place}: the capture ends within {what}, found {found_bytes} bytes of {expected_bytes}")]
    Truncated {
        /// Start of the incomplete element.
        place: Location,
        /// The incomplete element.
        what: &'static str,
        /// Bytes of it that are present.
        found_bytes: u64,
        /// Bytes that it declares.
        expected_bytes: u64,
    },
    /// The capture violates its format.
    #[error("{place}: {what} is {found}, expected {expected}")]
    Malformed {
        /// Location of the invalid value.
        place: Location,
        /// What is invalid.
        what: &'static str,
        /// Its value.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// The link type is not Ethernet.
    #[error(
        "{place}: interface {interface} has link type {}, expected {}",
        linktype::describe(*.link_type),
        linktype::describe(linktype::ETHERNET)
    )]
    LinkType {
        /// The file header, or the interface's first packet.
        place: Location,
        /// Interface number in the section; 0 in a plain pcap file.
        interface: u32,
        /// Its link type.
        link_type: u32,
    },
    /// The file cannot be created.
    #[error("cannot create `{}`: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file name requests an unsupported compression.
    #[error("cannot write `{}`: compression `.{extension}` is not supported, expected `.pcap`, `.pcapng` or one of these with `.xz`", path.display())]
    Compression {
        /// The file.
        path: PathBuf,
        /// The extension that names the compression.
        extension: String,
    },
    /// Writing failed.
    #[error("cannot write `{file}` after {packets} packets: {source}")]
    Write {
        /// The file name given by the caller.
        file: String,
        /// Number of packets written before.
        packets: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The format cannot represent the packet.
    #[error("cannot write packet {packet} to `{file}`: {what} is {found}, expected at most {limit}")]
    OutOfRange {
        /// The file name given by the caller.
        file: String,
        /// Number of the packet, from 1.
        packet: u64,
        /// The value that does not fit.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The largest value that fits.
        limit: u64,
    },
    /// The folder of captures cannot be listed.
    #[error("cannot list `{}`, the folder that `{VARIABLE}` names: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The folder of captures holds no capture.
    #[error("`{}`, the folder that `{VARIABLE}` names, holds no capture, expected `.pcap` or `.pcapng` files, plain or with `.xz`", folder.display())]
    NoCaptures {
        /// The folder.
        folder: PathBuf,
    },
    /// An option of generated traffic is out of range.
    #[error("profile `{profile}`: {option} is {found}, expected {expected}")]
    TrafficOption {
        /// Name of the profile.
        profile: &'static str,
        /// The option.
        option: &'static str,
        /// Its value.
        found: String,
        /// The permitted values.
        expected: String,
    },
    /// An option that the profile does not take.
    #[error("profile `{profile}` does not accept {option}, expected one of {takers}")]
    TrafficOptionUnused {
        /// Name of the profile.
        profile: &'static str,
        /// The option.
        option: &'static str,
        /// Profiles that take it.
        takers: String,
    },
}
