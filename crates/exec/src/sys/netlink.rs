// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces by rtnetlink: RTM_GETLINK and RTM_GETNSID.
//!
//! Requests and answers are encoded and parsed here; only the socket is the system's.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::text;

// The attributes in `IFLA_XDP`.
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
/// The modes in order: none, native, generic, in hardware, several.
const XDP_ATTACHED_DRV: u8 = 1;
const XDP_ATTACHED_SKB: u8 = 2;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const HEADER_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;
const ANSWER_BYTES: usize = 1 << 16;

/// An XDP program on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attached {
    /// The id of the program.
    pub(crate) program: u32,
    /// The mode: `native`, `skb` or `offloaded`.
    pub(crate) mode: &'static str,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
    pub(crate) mtu_bytes: u32,
    /// The kind of virtual device, e.g. `veth`; none for hardware.
    pub(crate) kind: Option<String>,
    /// The peer of a veth: its index, and its namespace if that is another one.
    pub(crate) peer: Option<(u32, Option<i32>)>,
    pub(crate) rx_queues: u32,
    pub(crate) xdp: Vec<Attached>,
}

/// Identification of an interface.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    Name(&'a str),
    /// An index, in the namespace with this id if one is given.
    Index(u32, Option<i32>),
}

fn round(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn put(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(round(message.len()), 0);
}

fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?) & libc::NLA_TYPE_MASK as u16;
        let value = rest.get(4..len)?;
        rest = rest.get(round(len)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn word(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// Sends a request; returns the type and body of the first answer.
fn ask(kind: u16, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let socket = super::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    // SAFETY: the message is live and has this size.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0; ANSWER_BYTES];
    // SAFETY: the answer is mutable and has this size.
    let received = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    answer.truncate(received);
    let truncated = || io::Error::new(io::ErrorKind::InvalidData, "truncated answer of rtnetlink");
    let len = word(&answer).ok_or_else(truncated)? as usize;
    let kind = u16::from_ne_bytes(*answer.get(4..).and_then(<[u8]>::first_chunk).ok_or_else(truncated)?);
    let body = answer.get(HEADER_BYTES..len).ok_or_else(truncated)?.to_vec();
    if libc::c_int::from(kind) == libc::NLMSG_ERROR {
        let number = body.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
        return Err(io::Error::from_raw_os_error(-number));
    }
    Ok((kind, body))
}

/// Looks up an interface.
///
/// # Errors
/// There is none of that name or index (`ENODEV`), or the kernel does not answer.
pub(crate) fn device(which: Which<'_>) -> io::Result<Device> {
    let mut request = vec![0; IFINFO_BYTES];
    match which {
        // The kernel ignores longer names.
        Which::Name(name) if name.is_empty() || name.len() > 15 => {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        Which::Name(name) => put(&mut request, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat()),
        Which::Index(index, namespace) => {
            request[4..8].copy_from_slice(&index.to_ne_bytes());
            if let Some(namespace) = namespace {
                put(&mut request, libc::IFLA_TARGET_NETNSID, &namespace.to_ne_bytes());
            }
        }
    }
    // Without statistics.
    put(&mut request, libc::IFLA_EXT_MASK, &libc::RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    let (_, answer) = ask(libc::RTM_GETLINK, &request)?;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "truncated answer of rtnetlink"))
}

fn parse(answer: &[u8]) -> Option<Device> {
    let mut device = Device { index: word(answer.get(4..)?)?, rx_queues: 1, ..Device::default() };
    let flags = word(answer.get(8..)?)?;
    device.is_up = flags & libc::IFF_UP as u32 != 0;
    device.has_carrier = flags & libc::IFF_RUNNING as u32 != 0;
    let (mut link, mut namespace) = (None, None);
    for (kind, value) in attributes(answer.get(IFINFO_BYTES..)?) {
        match kind {
            libc::IFLA_IFNAME => device.name = text(value),
            libc::IFLA_MTU => device.mtu_bytes = word(value)?,
            libc::IFLA_LINK => link = word(value),
            libc::IFLA_LINK_NETNSID => namespace = word(value).map(|n| n as i32),
            libc::IFLA_NUM_RX_QUEUES => device.rx_queues = word(value)?,
            libc::IFLA_LINKINFO => {
                device.kind = attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND).map(|(_, v)| text(v));
            }
            libc::IFLA_XDP => device.xdp = attached(value),
            _ => {}
        }
    }
    if device.kind.as_deref() == Some("veth") {
        device.peer = link.map(|index| (index, namespace));
    }
    Some(device)
}

fn attached(value: &[u8]) -> Vec<Attached> {
    let mut found = Vec::new();
    let mut only = (None, None);
    for (kind, value) in attributes(value) {
        let mode = match kind {
            IFLA_XDP_DRV_PROG_ID => "native",
            IFLA_XDP_SKB_PROG_ID => "skb",
            IFLA_XDP_HW_PROG_ID => "offloaded",
            IFLA_XDP_PROG_ID => {
                only.0 = word(value);
                continue;
            }
            IFLA_XDP_ATTACHED => {
                only.1 = value.first().copied();
                continue;
            }
            _ => continue,
        };
        found.extend(word(value).map(|program| Attached { program, mode }));
    }
    // Old kernels report only this.
    if let (true, Some(program), Some(mode)) = (found.is_empty(), only.0, only.1) {
        let mode = match mode {
            XDP_ATTACHED_DRV => "native",
            XDP_ATTACHED_SKB => "skb",
            _ => "offloaded",
        };
        found.push(Attached { program, mode });
    }
    found
}

/// The id of the namespace of `file` in ours; `None` if it has none.
///
/// # Errors
/// The kernel's.
pub(crate) fn namespace_number(file: RawFd) -> io::Result<Option<i32>> {
    // `struct rtgenmsg`, padded.
    let mut request = vec![0; 4];
    put(&mut request, NETNSA_FD, &file.to_ne_bytes());
    let (kind, answer) = ask(libc::RTM_GETNSID, &request)?;
    if kind != libc::RTM_NEWNSID {
        return Ok(None);
    }
    let attributes = answer.get(4..).unwrap_or_default();
    let number = self::attributes(attributes).find(|(kind, _)| *kind == NETNSA_NSID).and_then(|(_, v)| word(v));
    Ok(number.map(|n| n as i32).filter(|n| *n >= 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_loopback_interface() {
        let device = device(Which::Name("lo")).expect("every namespace has one");
        assert_eq!((device.name.as_str(), device.peer, device.kind.as_deref()), ("lo", None, None));
        assert_eq!(super::device(Which::Index(device.index, None)).expect("by its index"), device);
    }

    #[test]
    fn missing_interfaces_are_reported() {
        for name in ["", "no-such-dev", "a-name-that-is-far-too-long"] {
            let error = device(Which::Name(name)).expect_err("not there");
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}: {error}");
        }
    }

    #[test]
    fn truncated_answers_are_errors() {
        let mut answer = vec![0; IFINFO_BYTES];
        put(&mut answer, libc::IFLA_IFNAME, b"eth0\0");
        put(&mut answer, libc::IFLA_MTU, &1500_u32.to_ne_bytes());
        for len in 0..IFINFO_BYTES {
            // The first bytes alone already have index and flags.
            assert!(parse(&answer[..len]).is_none(), "{len}");
        }
        for len in IFINFO_BYTES..answer.len() {
            assert_eq!(parse(&answer[..len]).map(|d| d.mtu_bytes), Some(0), "{len}");
        }
        assert_eq!(parse(&answer).map(|d| (d.name, d.mtu_bytes)), Some(("eth0".to_owned(), 1500)));
    }
}
