// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A peer of the live engines: a forwarder in the plain way, with the rings of AF_PACKET [Linux
//! Documentation/networking/packet_mmap.rst], one to receive and one to transmit, and nothing of Flowloom's devices.
//!
//! The network stack sees each packet as well, and drops it since no protocol takes it. `Raw` of Flowloom drops it
//! earlier, by a program at the ingress: that is part of its lead.
#![allow(unsafe_code, reason = "rings that are shared with the kernel")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use flowloom_exec::Interface;

use crate::error::BenchError;

const FRAME_BYTES: usize = 2048;
const FRAMES: usize = 4096;
const BLOCK_BYTES: usize = 1 << 16;
const TPACKET_V2: i32 = 1;
/// The packet of a frame to transmit follows the header.
const TX_OFFSET: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(16);
/// The packets between two system calls, at most.
const BATCH: usize = 64;

fn checked(action: &str, answer: i64) -> Result<i64, BenchError> {
    if answer >= 0 {
        return Ok(answer);
    }
    Err(BenchError::Peer { what: format!("AF_PACKET: could not {action}: {}", io::Error::last_os_error()) })
}

/// A socket on an interface whose ring is mapped.
struct Ring {
    fd: OwnedFd,
    start: *mut u8,
    next: usize,
}

impl Ring {
    fn open(name: &str, ring: libc::c_int, protocol: u16) -> Result<Ring, BenchError> {
        let found = Interface::find(0, name).map_err(|error| BenchError::Peer { what: error.to_string() })?;
        // SAFETY: takes no addresses.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd = checked("open a socket", fd.into())?;
        // SAFETY: the socket was created for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (FRAMES * FRAME_BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: FRAMES as u32,
        };
        set(&fd, libc::PACKET_VERSION, &TPACKET_V2)?;
        set(&fd, ring, &request)?;
        if ring == libc::PACKET_TX_RING {
            set(&fd, libc::PACKET_QDISC_BYPASS, &1i32)?;
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at an address chosen by the kernel.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), FRAMES * FRAME_BYTES, protection, flags, fd.as_raw_fd(), 0) };
        checked("map a ring", if start == libc::MAP_FAILED { -1 } else { 0 })?;
        // SAFETY: plain data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        (address.sll_protocol, address.sll_ifindex) = (protocol.to_be(), found.index() as i32);
        let bytes = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: a live address of the given size.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
        checked("bind to an interface", bound.into())?;
        Ok(Ring { fd, start: start.cast(), next: 0 })
    }

    /// The header of the next frame.
    fn header(&self) -> *mut libc::tpacket2_hdr {
        // SAFETY: frames follow each other without gaps, since their size divides that of a block.
        unsafe { self.start.add(self.next * FRAME_BYTES).cast() }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the status is an aligned word of the mapping, which lives as long as the ring.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header()).tp_status) }
    }

    fn advance(&mut self, status: u32) {
        self.status().store(status, Ordering::Release);
        self.next = (self.next + 1) % FRAMES;
    }

    /// Has the kernel transmit the frames that were handed over.
    fn kick(&self) {
        // SAFETY: no data and no address. A full queue is tried again by the next call.
        unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), FRAMES * FRAME_BYTES) };
    }
}

fn set<T>(fd: &OwnedFd, name: libc::c_int, value: &T) -> Result<(), BenchError> {
    let (value, bytes) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
    // SAFETY: the value is live and has the given size.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, value, bytes) };
    checked("set an option", answer.into()).map(drop)
}

/// Forwards what arrives at `from` through `to` until `stop` is set.
pub(crate) fn forward(from: &str, to: &str, stop: &AtomicBool, ready: &dyn Fn()) -> Result<(), BenchError> {
    let mut tx = Ring::open(to, libc::PACKET_TX_RING, 0)?;
    let mut rx = Ring::open(from, libc::PACKET_RX_RING, libc::ETH_P_ALL as u16)?;
    ready();
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        while count < BATCH && rx.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0 {
            while tx.status().load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
                tx.kick();
            }
            let (received, sent) = (rx.header(), tx.header());
            // SAFETY: both frames are ours until their status changes, and a packet, which the receiving ring has cut
            // to the size of a frame, fits the other one.
            unsafe {
                let len = ((*received).tp_snaplen as usize).min(FRAME_BYTES - TX_OFFSET);
                let packet = received.cast::<u8>().add(usize::from((*received).tp_mac));
                packet.copy_to_nonoverlapping(sent.cast::<u8>().add(TX_OFFSET), len);
                (*sent).tp_len = len as u32;
            }
            tx.advance(libc::TP_STATUS_SEND_REQUEST);
            rx.advance(libc::TP_STATUS_KERNEL);
            count += 1;
        }
        if count > 0 {
            tx.kick();
            continue;
        }
        let mut polled = libc::pollfd { fd: rx.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: a live, mutable entry.
        unsafe { libc::poll(&raw mut polled, 1, 10) };
    }
    Ok(())
}
