// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headers, fields, keys and checksums of packets.
//!
//! Packet formats are data: [`Graph`] has the headers, their validity conditions and successors, [`field::FIELDS`] the
//! names of their bits, [`field::CHECKSUMS`] the checksums. Every parser derives from these tables: the reference
//! parser of this crate, the eBPF code of the lowering, the hardware parser. So all targets agree on every packet, and
//! a new header is a new row.
//!
//! ```text
//!             Graph                 field::FIELDS                     field::CHECKSUMS
//!                  │                     │                                   │
//!  packet ─► Layers::parse ─► Layers ─► read ─► values ─► KeySpec::extract   │
//!                                        │                                   ▼
//!                                        └──────────► new values ─► rewrite ─► packet
//! ```
//!
//! Malformed packets are valid input: [`Layers::parse`] keeps the headers before the first invalid one, fields of later
//! headers are absent, and nothing outside of the packet is read.
//!
//! ```
//! use flowloom_wire::{FieldId, Graph, Header, KeySpec, Layers, rewrite};
//! # let mut packet = [
//! #     0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0x66, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2,
//! #     0, 53, 0x30, 0x39, 0, 10, 0, 0, b'h', b'i',
//! # ];
//! let field = |name| FieldId::by_name(name).ok_or("no such field");
//!
//! // A DNS answer from 10.0.0.1 to 10.0.0.2.
//! let layers = Layers::parse(Graph::standard(), &packet);
//! assert!(layers.has(Header::Udp));
//! assert_eq!(layers.read(&packet, 0, field("l4.sport")?), Some(53));
//! assert_eq!(layers.read(&packet, 0, field("tcp.seq")?), None);
//!
//! // Both directions of the connection have the same key.
//! let key = KeySpec::of_fields(&[field("ipv4.src")?, field("ipv4.dst")?, field("udp.sport")?, field("udp.dport")?], true)?;
//! assert_eq!(key.extract(&layers, &packet, 0, &[]).as_deref(), Some(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 0x30, 0x39][..]));
//!
//! // A new address; the IPv4 header checksum is updated.
//! rewrite(&mut packet, &layers, &[(field("ip.dst")?, 0x0a00_0003)]);
//! assert_eq!(layers.read(&packet, 0, field("ipv4.checksum")?), Some(0x66cc));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod checksum;
pub mod edit;
pub mod field;
pub mod graph;
mod header;
mod key;
mod parse;
mod question;
pub mod stack;

pub use checksum::rewrite;
pub use field::{Field, FieldId};
pub use graph::Graph;
pub use header::{EtherType, Header};
pub use key::{KeyError, KeyPart, KeySpec};
pub use parse::Layers;
pub use question::Question;
pub use stack::{Stack, StackError};
