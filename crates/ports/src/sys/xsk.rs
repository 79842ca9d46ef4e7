// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP sockets: packet memory and the four rings that each socket shares with the kernel.
//!
//! ```text
//!            fill  ──► kernel ──►  rx            chunks to receive into, packets received
//!            tx    ──► kernel ──►  completion    packets to send, chunks sent
//! ```
//!
//! Deviation: the crate `xdp` 0.8 has one socket for each packet memory, so that forwarding between interfaces copies
//! each packet; here all sockets share one memory (XDP_SHARED_UMEM).

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Mapping, checked, get_option, set_option, socket};

/// A descriptor of the rx and tx rings.
use libc::xdp_desc as Descriptor;

const SO_PREFER_BUSY_POLL: libc::c_int = 69;

/// The right to a chunk of packet memory: there is one for each chunk that the kernel does not own.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chunk(u32);

/// Packet memory: chunks of equal size, each owned by the kernel or by the holder of its [`Chunk`].
#[derive(Debug)]
pub(crate) struct Umem {
    mapping: Mapping,
    chunk_bytes: usize,
    chunks: u32,
}

impl Umem {
    /// Maps memory; returns it with all its chunks.
    pub(crate) fn new(chunks: u32, chunk_bytes: usize) -> io::Result<(Umem, Vec<Chunk>)> {
        let mapping = Mapping::anonymous(chunks as usize * chunk_bytes)?;
        Ok((Umem { mapping, chunk_bytes, chunks }, (0..chunks).rev().map(Chunk).collect()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// The bytes of a chunk.
    pub(crate) fn chunk_mut<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        assert!(chunk.0 < self.chunks, "chunk {} of {}", chunk.0, self.chunks);
        // SAFETY: within the mapping, which lives as long as `self`; the kernel does not own the chunk, and the only
        // right to it is borrowed as long as the bytes are.
        unsafe {
            let start = self.mapping.start.as_ptr().add(chunk.0 as usize * self.chunk_bytes);
            std::slice::from_raw_parts_mut(start, self.chunk_bytes)
        }
    }

    /// The address of a byte of a chunk.
    fn address(&self, chunk: &Chunk, offset: usize) -> u64 {
        u64::from(chunk.0) * self.chunk_bytes as u64 + offset as u64
    }

    /// The chunk that the kernel gives back by an address in it, and the offset; `None` outside the memory.
    fn returned(&self, address: u64) -> Option<(Chunk, usize)> {
        let chunk = address / self.chunk_bytes as u64;
        (chunk < u64::from(self.chunks)).then_some((Chunk(chunk as u32), (address % self.chunk_bytes as u64) as usize))
    }
}

/// A packet in a chunk.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) chunk: Chunk,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// One side of a ring: we push to it as producer, or pop from it as consumer.
#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    /// Our index and the kernel's, as offsets in the mapping.
    ours: usize,
    theirs: usize,
    flags: usize,
    items: usize,
    entries: u32,
    /// Our index, published by [`Ring::publish`], and the kernel's when it was last read.
    own: u32,
    seen: u32,
    is_producer: bool,
    _items: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(
        fd: &OwnedFd,
        page: libc::off_t,
        offsets: &libc::xdp_ring_offset,
        entries: u32,
        is_producer: bool,
    ) -> io::Result<Ring<T>> {
        let items = offsets.desc as usize;
        let mapping = Mapping::ring(fd, items + entries as usize * size_of::<T>(), page)?;
        let (producer, consumer) = (offsets.producer as usize, offsets.consumer as usize);
        let (ours, theirs) = if is_producer { (producer, consumer) } else { (consumer, producer) };
        let flags = offsets.flags as usize;
        Ok(Ring { mapping, ours, theirs, flags, items, entries, own: 0, seen: 0, is_producer, _items: PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of an aligned word within the ring that is mapped.
        unsafe { AtomicU32::from_ptr(self.mapping.start.as_ptr().add(offset).cast()) }
    }

    fn item(&self, index: u32) -> *mut T {
        // The number of entries is a power of two.
        let at = (index & (self.entries - 1)) as usize;
        // SAFETY: the index is below the number of entries, for all of which the mapping has room.
        unsafe { self.mapping.start.as_ptr().add(self.items).cast::<T>().add(at) }
    }

    /// Pushes an item; returns false if the ring is full.
    #[inline]
    fn push(&mut self, item: T) -> bool {
        debug_assert!(self.is_producer);
        if self.own.wrapping_sub(self.seen) >= self.entries {
            self.seen = self.word(self.theirs).load(Ordering::Acquire);
            if self.own.wrapping_sub(self.seen) >= self.entries {
                return false;
            }
        }
        // SAFETY: a place in the ring that the kernel has consumed and reads only after it is published.
        unsafe { self.item(self.own).write(item) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Pops an item that the kernel has pushed.
    #[inline]
    fn pop(&mut self) -> Option<T> {
        debug_assert!(!self.is_producer);
        if self.own == self.seen {
            self.seen = self.word(self.theirs).load(Ordering::Acquire);
            if self.own == self.seen {
                return None;
            }
        }
        // SAFETY: a place in the ring that the kernel has published and writes only after it is released.
        let item = unsafe { self.item(self.own).read() };
        self.own = self.own.wrapping_add(1);
        Some(item)
    }

    /// Shows the kernel what was pushed or popped.
    #[inline]
    fn publish(&mut self) {
        self.word(self.ours).store(self.own, Ordering::Release);
    }

    /// True if the kernel wants to be woken to work on this ring.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The number of pushed items that the kernel has not consumed.
    fn pending(&mut self) -> u32 {
        self.seen = self.word(self.theirs).load(Ordering::Acquire);
        self.own.wrapping_sub(self.seen)
    }
}

/// How the driver and the socket exchange packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// Zero copy if the driver can, else by copy.
    Any,
    Copy,
    ZeroCopy,
}

/// A socket on one queue of an interface.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    fill: Ring<u64>,
    completion: Ring<u64>,
    rx: Ring<Descriptor>,
    tx: Ring<Descriptor>,
}

/// The result of waking the kernel to transmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Sent,
    /// The driver has no room: the rest is tried again.
    Full,
    /// In copy mode: the driver has dropped a packet [Linux net/xdp/xsk.c, NET_XMIT_DROP]. The kernel has taken it, but
    /// its index may show that only after a later call.
    Refused,
}

/// The step at which opening a socket failed.
pub(crate) type Failed = (&'static str, io::Error);

impl Socket {
    /// Opens a socket on a queue; `first` is a socket that already has the packet memory registered. `Transfer` counts
    /// for the first socket only.
    pub(crate) fn open(
        umem: &Umem,
        first: Option<&Socket>,
        ifindex: u32,
        queue: u32,
        entries: u32,
        transfer: Transfer,
    ) -> Result<Socket, Failed> {
        let at = |step: &'static str| move |error: io::Error| (step, error);
        let fd = socket(libc::AF_XDP, 0).map_err(at("open an AF_XDP socket"))?;
        if first.is_none() {
            let registered = libc::xdp_umem_reg {
                addr: umem.mapping.start.as_ptr() as u64,
                len: umem.bytes() as u64,
                chunk_size: umem.chunk_bytes as u32,
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            };
            set_option(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &registered).map_err(at("register packet memory"))?;
        }
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set_option(&fd, libc::SOL_XDP, ring, &entries).map_err(at("create a ring"))?;
        }
        // SAFETY: plain data, for which zeros are valid.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        get_option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets).map_err(at("locate the rings"))?;
        let map = at("map a ring");
        let page = |offset: libc::c_ulonglong| offset as libc::off_t;
        let fill = Ring::map(&fd, page(libc::XDP_UMEM_PGOFF_FILL_RING), &offsets.fr, entries, true).map_err(map)?;
        let completion =
            Ring::map(&fd, page(libc::XDP_UMEM_PGOFF_COMPLETION_RING), &offsets.cr, entries, false).map_err(map)?;
        let rx = Ring::map(&fd, libc::XDP_PGOFF_RX_RING, &offsets.rx, entries, false).map_err(map)?;
        let tx = Ring::map(&fd, libc::XDP_PGOFF_TX_RING, &offsets.tx, entries, true).map_err(map)?;
        let (flags, shared_fd) = match (first, transfer) {
            // Transfer and wakeups are those of the first socket.
            (Some(first), _) => (libc::XDP_SHARED_UMEM, first.fd.as_raw_fd() as u32),
            (None, Transfer::Any) => (libc::XDP_USE_NEED_WAKEUP, 0),
            (None, Transfer::Copy) => (libc::XDP_USE_NEED_WAKEUP | libc::XDP_COPY, 0),
            (None, Transfer::ZeroCopy) => (libc::XDP_USE_NEED_WAKEUP | libc::XDP_ZEROCOPY, 0),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared_fd,
        };
        let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the address is live and has the given size.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) };
        checked(bound).map_err(at("bind to a queue"))?;
        Ok(Socket { fd, fill, completion, rx, tx })
    }

    /// Lends a chunk to the kernel for reception; returns it if the ring is full.
    #[inline]
    pub(crate) fn lend(&mut self, umem: &Umem, chunk: Chunk) -> Result<(), Chunk> {
        if self.fill.push(umem.address(&chunk, 0)) { Ok(()) } else { Err(chunk) }
    }

    /// Shows the kernel the chunks lent. Returns true if it has to be woken to receive.
    pub(crate) fn publish_lent(&mut self) -> bool {
        self.fill.publish();
        self.fill.needs_wakeup()
    }

    /// The next received packet. Addresses outside the memory, which the kernel does not give, are skipped.
    #[inline]
    pub(crate) fn receive(&mut self, umem: &Umem) -> Option<Placed> {
        loop {
            let Descriptor { addr, len, .. } = self.rx.pop()?;
            if let Some((chunk, start)) = umem.returned(addr) {
                let end = (start + len as usize).min(umem.chunk_bytes);
                return Some(Placed { chunk, start, end });
            }
        }
    }

    /// Gives the places of received packets in the ring back to the kernel.
    pub(crate) fn publish_received(&mut self) {
        self.rx.publish();
    }

    /// Pushes a packet to be sent; returns it if the ring is full.
    #[inline]
    pub(crate) fn send(&mut self, umem: &Umem, packet: Placed) -> Result<(), Placed> {
        let addr = umem.address(&packet.chunk, packet.start);
        let len = (packet.end - packet.start) as u32;
        if self.tx.push(Descriptor { addr, len, options: 0 }) { Ok(()) } else { Err(packet) }
    }

    /// Shows the kernel the packets to be sent. Returns true if it has to be woken to send them.
    pub(crate) fn publish_sent(&mut self) -> bool {
        self.tx.publish();
        self.tx.needs_wakeup()
    }

    /// The pushed packets that the kernel has not taken.
    pub(crate) fn unsent(&mut self) -> u32 {
        self.tx.pending()
    }

    /// The next chunk whose packet was sent.
    #[inline]
    pub(crate) fn reclaim(&mut self, umem: &Umem) -> Option<Chunk> {
        let chunk = self.completion.pop().and_then(|address| umem.returned(address));
        match chunk {
            Some((chunk, _)) => Some(chunk),
            None => {
                self.completion.publish();
                None
            }
        }
    }

    /// True if the driver exchanges packets without copying them.
    pub(crate) fn is_zero_copy(&self) -> bool {
        let mut options: u32 = 0;
        get_option(&self.fd, libc::SOL_XDP, libc::XDP_OPTIONS, &mut options).is_ok()
            && options & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Lets receive calls process the queue for up to `timeout_us`, at most `budget` packets a call.
    pub(crate) fn busy_poll(&self, timeout_us: u32, budget: u32) -> io::Result<()> {
        set_option(&self.fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &timeout_us)?;
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &budget)
    }

    /// Wakes the kernel to transmit.
    pub(crate) fn wake_tx(&self) -> io::Result<Woken> {
        // SAFETY: no data and no address.
        let answer =
            unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        match checked(answer as libc::c_int) {
            Ok(_) => Ok(Woken::Sent),
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY) => Ok(Woken::Refused),
                Some(libc::EAGAIN | libc::ENOBUFS) => Ok(Woken::Full),
                _ => Err(error),
            },
        }
    }

    /// Wakes the kernel to receive.
    pub(crate) fn wake_rx(&self) -> io::Result<()> {
        let (null, flags) = (std::ptr::null_mut(), libc::MSG_DONTWAIT);
        // SAFETY: no data and no address.
        let answer =
            unsafe { libc::recvfrom(self.fd.as_raw_fd(), null, 0, flags, std::ptr::null_mut(), std::ptr::null_mut()) };
        match checked(answer as libc::c_int) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// The packets that the kernel dropped before the rx ring.
    pub(crate) fn rx_missed(&self) -> u64 {
        // SAFETY: plain data, for which zeros are valid.
        let mut counters: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        match get_option(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS, &mut counters) {
            Ok(()) => counters.rx_dropped + counters.rx_ring_full,
            Err(_) => 0,
        }
    }
}
