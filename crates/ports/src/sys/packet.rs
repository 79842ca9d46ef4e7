// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET sockets: every packet of an interface, many a call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use flowloom_engine::HEADROOM_BYTES;

use super::bpf::STACK_MARK;
use super::{checked, set_option, socket};
use crate::device::DeviceCounters;

/// `struct virtio_net_hdr` before each received packet.
const OFFLOAD_BYTES: usize = 10;
/// VIRTIO_NET_HDR_F_NEEDS_CSUM.
const NEEDS_CHECKSUM: u8 = 1;
const VLAN_TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;
const ETH_P_8021Q: u16 = 0x8100;
/// `CMSG_SPACE` of `struct tpacket_auxdata`.
const CONTROL_BYTES: usize = 40;
const ETH_P_ALL: u16 = 3;

fn address(ifindex: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

fn bind(fd: &OwnedFd, address: &libc::sockaddr_ll) -> io::Result<()> {
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is live and has the given size.
    checked(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), bytes) }).map(drop)
}

/// Opens a socket that receives what arrives at an interface, except the packets that [`super::bpf`] marks.
///
/// # Errors
/// The system's.
pub(crate) fn open_rx(ifindex: u32, buffer_bytes: usize) -> io::Result<OwnedFd> {
    // Protocol 0: nothing arrives before the filter is in place and the socket is bound.
    let fd = socket(libc::AF_PACKET, 0)?;
    let insn = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32),
        insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, STACK_MARK),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    set_option(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA, libc::PACKET_VNET_HDR] {
        set_option(&fd, libc::SOL_PACKET, option, &1i32)?;
    }
    let wanted = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
    set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted)
        .or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted))?;
    bind(&fd, &address(ifindex, ETH_P_ALL))?;
    receive_all(&fd, ifindex)?;
    Ok(fd)
}

/// Lets an interface receive packets for other stations, as long as the socket exists.
pub(super) fn receive_all(socket: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: ifindex as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Opens a socket that transmits through an interface, without queueing discipline.
///
/// # Errors
/// The system's.
pub(crate) fn open_tx(ifindex: u32, buffer_bytes: usize) -> io::Result<OwnedFd> {
    let fd = socket(libc::AF_PACKET, 0)?;
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)?;
    let wanted = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
    set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &wanted)
        .or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &wanted))?;
    bind(&fd, &address(ifindex, 0))?;
    Ok(fd)
}

/// The packets that a receiving socket dropped since the last call.
pub(crate) fn rx_dropped(fd: &OwnedFd) -> u64 {
    // `struct tpacket_stats`: packets, drops.
    let mut counters = [0u32; 2];
    match super::get_option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counters) {
        Ok(()) => counters[1].into(),
        Err(_) => 0,
    }
}

/// Aligned as `struct cmsghdr`.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// The place of a received packet in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// The number of the buffer.
    pub(crate) slot: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Buffers for a batch of packets, and what recvmmsg(2) needs for each.
#[derive(Debug)]
pub(crate) struct Slots {
    buffer_bytes: usize,
    bytes: Vec<u8>,
    offloads: Vec<[u8; OFFLOAD_BYTES]>,
    controls: Vec<Control>,
    pub(crate) received: Vec<Received>,
    /// The packets dropped here: longer than a buffer, or merged by an offload.
    pub(crate) missed: u64,
}

impl Slots {
    pub(crate) fn new(slots: usize, buffer_bytes: usize) -> Slots {
        Slots {
            buffer_bytes,
            bytes: vec![0; slots * buffer_bytes],
            offloads: vec![[0; OFFLOAD_BYTES]; slots],
            controls: vec![Control([0; CONTROL_BYTES]); slots],
            received: Vec::with_capacity(slots),
            missed: 0,
        }
    }

    /// The buffers of the slots.
    pub(crate) fn buffers_mut(&mut self) -> (std::slice::ChunksExactMut<'_, u8>, &[Received]) {
        (self.bytes.chunks_exact_mut(self.buffer_bytes), &self.received)
    }

    /// The bytes of slot number `slot`.
    pub(crate) fn bytes(&self, received: Received) -> &[u8] {
        let base = received.slot * self.buffer_bytes;
        &self.bytes[base + received.start..base + received.end]
    }

    /// Receives packets until there are no more or no more slots. Restores VLAN tags, and completes checksums that the
    /// sender left to hardware.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn receive(&mut self, fd: &OwnedFd) -> io::Result<()> {
        self.received.clear();
        let buffers = self.bytes.chunks_exact_mut(self.buffer_bytes);
        let mut vectors: Vec<[libc::iovec; 2]> = buffers
            .zip(&mut self.offloads)
            .map(|(buffer, offload)| {
                let place = &mut buffer[HEADROOM_BYTES..];
                [
                    libc::iovec { iov_base: offload.as_mut_ptr().cast(), iov_len: OFFLOAD_BYTES },
                    libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() },
                ]
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = vectors
            .iter_mut()
            .zip(&mut self.controls)
            .map(|(vectors, control)| {
                // SAFETY: plain data, for which zeros are valid.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (vectors.as_mut_ptr(), 2);
                message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                message.msg_hdr.msg_controllen = CONTROL_BYTES as _;
                message
            })
            .collect();
        // SAFETY: each message refers to live, mutable, disjoint memory of the given sizes; no timeout.
        let answer = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = match checked(answer) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => 0,
            // The kernel has dropped a packet whose offload it cannot describe (merged, but neither TCP nor UDP).
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.missed += 1;
                0
            }
            other => other? as usize,
        };
        let messages: Vec<(usize, bool, Option<[u8; VLAN_TAG_BYTES]>)> = messages[..count]
            .iter()
            .map(|message| {
                let is_cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
                (message.msg_len as usize, is_cut, vlan_tag(&message.msg_hdr))
            })
            .collect();
        let buffers = self.bytes.chunks_exact_mut(self.buffer_bytes).enumerate();
        for (((slot, buffer), offload), (bytes, is_cut, tag)) in buffers.zip(&self.offloads).zip(messages) {
            let (mut start, end) = (HEADROOM_BYTES, HEADROOM_BYTES + bytes.saturating_sub(OFFLOAD_BYTES));
            let word = |at: usize| usize::from(u16::from_ne_bytes([offload[at], offload[at + 1]]));
            // Byte 1 is the kind of merged packets.
            if is_cut || bytes < OFFLOAD_BYTES || offload[1] != 0 {
                self.missed += 1;
                continue;
            }
            if offload[0] & NEEDS_CHECKSUM != 0 && !complete_checksum(&mut buffer[start..end], word(6), word(8)) {
                self.missed += 1;
                continue;
            }
            if let Some(tag) = tag.filter(|_| end - start >= ADDRESSES_BYTES) {
                buffer.copy_within(start..start + ADDRESSES_BYTES, start - VLAN_TAG_BYTES);
                start -= VLAN_TAG_BYTES;
                buffer[start + ADDRESSES_BYTES..][..VLAN_TAG_BYTES].copy_from_slice(&tag);
            }
            self.received.push(Received { slot, start, end });
        }
        Ok(())
    }
}

/// The VLAN tag that the kernel has removed from a received packet.
fn vlan_tag(header: &libc::msghdr) -> Option<[u8; VLAN_TAG_BYTES]> {
    // SAFETY: the kernel has filled in the control messages of this header and their length.
    let found = unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        if message.is_null()
            || (*message).cmsg_level != libc::SOL_PACKET
            || (*message).cmsg_type != libc::PACKET_AUXDATA
        {
            return None;
        }
        libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned()
    };
    if found.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_type = found.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if has_type { found.tp_vlan_tpid } else { ETH_P_8021Q };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), found.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// The offset of the checksum in the header of SCTP, which no protocol with an Internet checksum shares.
const SCTP_CHECKSUM: usize = 8;

/// Completes a checksum over the bytes from `start` on: CRC32c for SCTP, else an Internet checksum, whose field at
/// `start + field` holds the sum of the pseudo-header. Returns false if that is not in the packet.
fn complete_checksum(packet: &mut [u8], start: usize, field: usize) -> bool {
    let Some(covered) = packet.get_mut(start..).filter(|covered| field + 2 <= covered.len()) else { return false };
    if field == SCTP_CHECKSUM {
        let Some(place) = covered.get_mut(field..field + 4) else { return false };
        place.fill(0);
        let checksum = crc32c(covered).to_le_bytes();
        covered[field..field + 4].copy_from_slice(&checksum);
        return true;
    }
    let words = covered.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !(sum as u16) {
        // UDP's 0 means none; for TCP the two are equal.
        0 => 0xffff,
        checksum => checksum,
    };
    covered[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// CRC32c by byte [RFC 9260 appendix A].
const CRC32C: [u32; 256] = {
    let (mut table, mut at) = ([0u32; 256], 0);
    while at < 256 {
        let (mut word, mut bit) = (at as u32, 0);
        while bit < 8 {
            word = if word & 1 == 1 { word >> 1 ^ 0x82f6_3b78 } else { word >> 1 };
            bit += 1;
        }
        table[at] = word;
        at += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ CRC32C[usize::from(crc as u8 ^ byte)])
}

/// The result of a transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Dropped since buffers were full.
    pub(crate) full: u64,
    /// Refused: too long or too short, or the link is down; all that follow an error.
    pub(crate) refused: u64,
}

impl Sent {
    /// Adds these packets to the counters of a device.
    pub(crate) fn count(self, counters: &mut DeviceCounters) {
        counters.sent += self.packets;
        counters.sent_bytes += self.bytes;
        counters.tx_full += self.full;
        counters.tx_refused += self.refused;
    }
}

/// Transmits packets, in order, without waiting. The error, if any: the interface is gone, or a failure that is not
/// about one packet.
pub(crate) fn send(fd: &OwnedFd, packets: &[&[u8]]) -> (Sent, Option<io::Error>) {
    let mut vectors: Vec<libc::iovec> = packets
        .iter()
        .map(|bytes| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = vectors
        .iter_mut()
        .map(|vector| {
            // SAFETY: plain data, for which zeros are valid.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (vector, 1);
            message
        })
        .collect();
    let (mut sent, mut at) = (Sent::default(), 0);
    while at < messages.len() {
        let rest = &mut messages[at..];
        // SAFETY: each message refers to live memory of the given size, which is only read.
        let answer = unsafe {
            libc::sendmmsg(fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as libc::c_uint, libc::MSG_DONTWAIT)
        };
        match checked(answer) {
            Ok(count) => {
                let count = count as usize;
                sent.packets += count as u64;
                sent.bytes += packets[at..at + count].iter().map(|bytes| bytes.len() as u64).sum::<u64>();
                at += count;
            }
            // The error is that of the first packet that was not sent.
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    sent.full += 1;
                    at += 1;
                }
                Some(libc::EMSGSIZE | libc::EINVAL | libc::ENETDOWN | libc::EIO) => {
                    sent.refused += 1;
                    at += 1;
                }
                _ => {
                    sent.refused += (packets.len() - at) as u64;
                    return (sent, Some(error));
                }
            },
        }
    }
    (sent, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_checksums_are_completed() {
        // UDP from 10.0.0.1:1 to 10.0.0.2:2 with payload `abc`; the field holds the sum of the pseudo-header.
        let mut packet = vec![0, 1, 0, 2, 0, 11, 0, 0, b'a', b'b', b'c'];
        let pseudo: u32 = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 11;
        packet[6..8].copy_from_slice(&(pseudo as u16).to_be_bytes());
        assert!(complete_checksum(&mut packet, 0, 6));
        let sum: u32 = packet.chunks(2).map(|p| u32::from(p[0]) << 8 | u32::from(*p.get(1).unwrap_or(&0))).sum();
        let sum = sum + pseudo;
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        // SCTP [RFC 9260]: the check value of CRC32c, and a packet whose field is not zero before.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut sctp = [7u8; 20];
        assert!(complete_checksum(&mut sctp, 2, SCTP_CHECKSUM));
        let found = u32::from_le_bytes([sctp[10], sctp[11], sctp[12], sctp[13]]);
        let mut zeroed = sctp;
        zeroed[10..14].fill(0);
        assert_eq!((found, &sctp[..10]), (crc32c(&zeroed[2..]), &[7u8; 10][..]));
        assert!(!complete_checksum(&mut sctp[..12], 2, SCTP_CHECKSUM));
        assert!(!complete_checksum(&mut packet, 5, 6));
        assert!(!complete_checksum(&mut packet, 12, 0));
    }

    #[test]
    fn packets_after_an_error_are_counted_as_refused() {
        let closed = OwnedFd::from(std::fs::File::open("/dev/null").expect("no socket"));
        let (sent, error) = send(&closed, &[&[0; 60], &[0; 61]]);
        assert_eq!(error.and_then(|error| error.raw_os_error()), Some(libc::ENOTSOCK));
        assert_eq!(sent, Sent { refused: 2, ..Sent::default() });
    }
}
