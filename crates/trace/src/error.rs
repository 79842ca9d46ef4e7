//! What can go wrong with captures.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::linktype;

/// Where in a capture something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file as the caller named it.
    pub file: String,
    /// Bytes from the start of the capture; of the unpacked capture where the file is compressed.
    pub offset_bytes: u64,
    /// Whether the file is compressed.
    pub is_unpacked: bool,
    /// Packets read before this place.
    pub packets: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unpacked = if self.is_unpacked { " of the unpacked capture" } else { "" };
        write!(f, "`{}` at byte {}{unpacked}, after {} packets", self.file, self.offset_bytes, self.packets)
    }
}

/// Why a capture cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open `{}`: {source}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The compressed file ends in the middle.
    #[error("{place}: the xz file is truncated: it ends before its compressed data do; copy or compress it again")]
    CutOff {
        /// How far reading came.
        place: Place,
    },
    /// Reading failed, or the compressed data are damaged.
    #[error("cannot read {place}: {source}")]
    Read {
        /// How far reading came.
        place: Place,
        /// What the system or the decompressor says.
        source: io::Error,
    },
    /// The first bytes belong to no capture.
    #[error("`{file}` starts with {found}, expected a pcap or pcapng capture, plain or in xz")]
    NotACapture {
        /// The file as the caller named it.
        file: String,
        /// Its first bytes, or that it is empty.
        found: String,
    },
    /// The first bytes belong to a format that is not read.
    #[error("`{file}` is {found}, expected a pcap or pcapng capture, plain or in xz")]
    OtherFormat {
        /// The file as the caller named it.
        file: String,
        /// What it is.
        found: &'static str,
    },
    /// The capture ends in the middle of something.
    #[error("{place}: the capture ends within {what}, found {found_bytes} bytes of {expected_bytes}")]
    Truncated {
        /// Where the unfinished thing starts.
        place: Place,
        /// What is cut off.
        what: &'static str,
        /// Bytes of it that are there.
        found_bytes: u64,
        /// Bytes that it has by its own word.
        expected_bytes: u64,
    },
    /// The capture contradicts its format.
    #[error("{place}: {what} is {found}, expected {expected}")]
    Malformed {
        /// Where the wrong value stands.
        place: Place,
        /// What is wrong.
        what: &'static str,
        /// Its value.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Packets of another link type than Ethernet.
    #[error(
        "{place}: interface {interface} has link type {}, expected {}",
        linktype::describe(*.link_type),
        linktype::describe(linktype::ETHERNET)
    )]
    LinkType {
        /// Where: the file's header, or the interface's first packet.
        place: Place,
        /// Interface number in the section; 0 in a plain pcap file.
        interface: u32,
        /// Its link type.
        link_type: u32,
    },
    /// The file cannot be created.
    #[error("cannot create `{}`: {source}", path.display())]
    Create {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The name asks for a format that is not written.
    #[error("cannot write `{}`: compression `.{extension}` is not written, expected `.pcap`, `.pcapng` or one of these with `.xz`", path.display())]
    Compression {
        /// Which file.
        path: PathBuf,
        /// The extension that names the compression.
        extension: String,
    },
    /// Writing failed.
    #[error("cannot write `{file}` after {packets} packets: {source}")]
    Write {
        /// The file as the caller named it.
        file: String,
        /// Packets handed over before.
        packets: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A packet that the format cannot hold.
    #[error("cannot write packet {packet} to `{file}`: {what} is {found}, expected at most {limit}")]
    Unwritable {
        /// The file as the caller named it.
        file: String,
        /// Its number, counted from 1.
        packet: u64,
        /// What does not fit.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The largest value that fits.
        limit: u64,
    },
    /// The folder of captures cannot be listed.
    #[error("cannot list `{}`, the folder that `{variable}` names: {source}", folder.display())]
    Folder {
        /// Which folder.
        folder: PathBuf,
        /// The environment variable that names it.
        variable: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The folder of captures holds none.
    #[error("`{}`, the folder that `{variable}` names, holds no capture, expected `.pcap` or `.pcapng` files, plain or with `.xz`", folder.display())]
    NoCaptures {
        /// Which folder.
        folder: PathBuf,
        /// The environment variable that names it.
        variable: &'static str,
    },
    /// An option of made traffic has a value that is not possible.
    #[error("profile `{profile}`: {option} is {found}, expected {expected}")]
    TrafficOption {
        /// The profile's name.
        profile: &'static str,
        /// Which option.
        option: &'static str,
        /// Its value.
        found: String,
        /// What would be possible.
        expected: String,
    },
    /// An option that the kind of traffic has no use for.
    #[error("profile `{profile}` has no use for {option}, expected one of {takers}")]
    TrafficOptionUnused {
        /// The profile's name.
        profile: &'static str,
        /// Which option.
        option: &'static str,
        /// Profiles that take it.
        takers: String,
    },
}
