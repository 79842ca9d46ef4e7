// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP: packets of interfaces without the network stack, in one memory that all queues share.
//!
//! ```text
//!          ┌───────────── free chunks ◄────────────┐
//!          ▼                                       │
//!  fill ──► kernel ──► rx ──► engine ──┬─ dropped ─┤
//!                                      └─► tx ──► kernel ──► completion
//! ```
//!
//! A packet that is forwarded stays in its chunk: only the owner of the chunk changes. Between calls, each chunk is
//! free, lent to the kernel for reception, or being sent:
//!
//! ```text
//!  chunks = free + sum over queues (lent + sending),  lent <= entries,  sending <= entries
//! ```

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flowloom_engine::{Fate, Frame, HEADROOM_BYTES, PORT_COUNT, Port};
use flowloom_exec::{Interface, Mode};

use crate::device::{Departure, Device, DeviceCounters, RunBatch};
use crate::error::{BPF_NEEDS, PortsError, RAW_NEEDS};
use crate::interfaces::{Bound, bind_all, device_name};
use crate::sys::bpf::{Program, SocketMap};
use crate::sys::locked_limit_bytes;
use crate::sys::xsk::{Chunk, Failed, Placed, Socket, Transfer, Umem, Woken};

/// The bytes of a chunk: the largest packet has 3840, since 256 are headroom.
const CHUNK_BYTES: usize = 4096;
/// The packets of a batch, at most.
const BATCH: usize = 64;
/// The attempts to open a queue that is in use, and the time between them.
const BUSY_ATTEMPTS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const MAX_ENTRIES: u32 = 1 << 16;

/// The first bytes of packets that this process hands to the network stack through an interface in mode skb. Random, so
/// that nothing from outside begins with it.
pub(crate) fn pass_token() -> u64 {
    static TOKEN: OnceLock<u64> = OnceLock::new();
    *TOKEN.get_or_init(|| RandomState::new().hash_one("pass"))
}

/// How packets are exchanged with the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// Without copying if all drivers can, else by copy.
    #[default]
    Any,
    /// By copy.
    Copy,
    /// Without copying, or not at all.
    ZeroCopy,
}

/// Busy polling: receive calls run the driver instead of interrupts [Linux Documentation/networking/napi.rst].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// The time that a call may poll.
    pub timeout_us: u32,
    /// The packets that a call processes, at most.
    pub budget: u32,
}

/// The options of AF_XDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AfXdpOptions {
    /// The mode of the program that redirects packets to the sockets; `None`: native if the driver can, else skb.
    pub mode: Option<Mode>,
    /// How packets are exchanged with the driver.
    pub copy: CopyMode,
    /// The entries of each ring, a power of two.
    pub ring_entries: u32,
    /// Busy polling, if wanted.
    pub busy_poll: Option<BusyPoll>,
}

impl Default for AfXdpOptions {
    fn default() -> AfXdpOptions {
        AfXdpOptions { mode: None, copy: CopyMode::Any, ring_entries: 2048, busy_poll: None }
    }
}

/// An interface whose packets go to sockets until this is dropped.
#[derive(Debug)]
struct Attachment {
    // Detached first, so that packets reach the network stack again.
    link: OwnedFd,
    _program: Program,
    map: SocketMap,
    mode: Mode,
    /// The receive queues, each of which has a socket.
    queues: u32,
}

impl Attachment {
    fn new(device: &str, interface: &Interface, mode: Option<Mode>) -> Result<Attachment, PortsError> {
        interface.require_free()?;
        let failed = |action: &str, source| PortsError::of_call(device, action, BPF_NEEDS, source);
        let queues = interface.rx_queues();
        let map = SocketMap::new(queues).map_err(|e| failed("create a map of sockets", e))?;
        let attach = |mode: Mode| {
            // Only socket buffers come by the program again on their way to the network stack.
            let token = (mode == Mode::Skb).then(pass_token);
            let program = Program::to_sockets(&map, token)?;
            program.attach(interface.index(), mode == Mode::Native).map(|link| (link, program, mode))
        };
        let first = mode.unwrap_or(Mode::Native);
        let attached = match attach(first) {
            Err(error) if mode.is_none() && error.raw_os_error() == Some(libc::EOPNOTSUPP) => attach(Mode::Skb),
            other => other,
        };
        let (link, program, mode) = attached.map_err(|source| match source.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ERANGE) => PortsError::Unsupported {
                device: device.to_owned(),
                feature: format!("XDP in mode {first} on `{}`", interface.name()),
                remedy: format!("`ip link set dev {} mtu 1500`, or use --mode raw", interface.name()),
                source,
            },
            _ => failed("attach the program that redirects", source),
        })?;
        Ok(Attachment { link, _program: program, map, mode, queues })
    }
}

/// A queue of an interface.
#[derive(Debug)]
struct Queue {
    socket: Socket,
    /// The index of its interface, and the number of the queue there.
    interface: usize,
    number: u32,
    /// The chunks lent for reception, and those being sent.
    lent: u32,
    sending: u32,
    /// True if descriptors were pushed since the kernel was last told.
    is_dirty: bool,
}

/// Interfaces whose packets go to AF_XDP sockets. Dropping it returns them to the network stack.
///
/// Packets of a receive queue without a socket are dropped: queues that are added during a run end it. Packets longer
/// than 3840 bytes are dropped by the kernel and counted as missed.
#[derive(Debug)]
pub struct AfXdp {
    // Dropped before the sockets.
    attachments: Vec<Arc<Attachment>>,
    name: String,
    interfaces: Vec<Bound>,
    queues: Vec<Queue>,
    umem: Umem,
    entries: u32,
    chunks: u32,
    free: Vec<Chunk>,
    /// The queues of each port.
    egress: Vec<Vec<usize>>,
    batch: Vec<Placed>,
    is_busy_polling: bool,
    counters: DeviceCounters,
}

impl AfXdp {
    /// Attaches to all receive queues of the interfaces, for one thread.
    ///
    /// # Errors
    /// An interface has another program; a privilege, a feature or memory is missing.
    pub fn open(interfaces: &[Interface], options: &AfXdpOptions) -> Result<AfXdp, PortsError> {
        let mut workers = AfXdp::open_workers(interfaces, options, 1)?;
        let device = device_name("af_xdp", interfaces);
        workers.pop().ok_or_else(|| PortsError::Option {
            device,
            option: "the number of interfaces",
            found: "0".to_owned(),
            expected: "at least 1".to_owned(),
        })
    }

    /// Attaches to all receive queues of the interfaces, for `workers` threads: queue `q` of each interface belongs to
    /// worker `q` modulo `workers`. Each worker has packet memory of its own.
    ///
    /// # Errors
    /// As for [`AfXdp::open`]; or an interface has fewer queues than there are workers.
    pub fn open_workers(
        interfaces: &[Interface],
        options: &AfXdpOptions,
        workers: u32,
    ) -> Result<Vec<AfXdp>, PortsError> {
        let device = device_name("af_xdp", interfaces);
        let entries = options.ring_entries;
        if !entries.is_power_of_two() || entries > MAX_ENTRIES {
            let expected = format!("a power of two up to {MAX_ENTRIES}");
            return Err(PortsError::Option { device, option: "ring_entries", found: entries.to_string(), expected });
        }
        // Before anything is attached.
        if let Some(bound) = bind_all(&device, interfaces)?.iter().find(|bound| bound.port.0 >= PORT_COUNT) {
            return Err(PortsError::PortNumber { port: bound.port, device });
        }
        for interface in interfaces {
            let found = interface.rx_queues();
            if workers > found {
                let interface = interface.name().to_owned();
                return Err(PortsError::NoQueue { interface, found, expected: workers - 1 });
            }
        }
        let attachments: Vec<Arc<Attachment>> = interfaces
            .iter()
            .map(|interface| Attachment::new(&device, interface, options.mode).map(Arc::new))
            .collect::<Result<_, _>>()?;
        (0..workers)
            .map(|worker| {
                let queues = |interface: &Interface| (worker..interface.rx_queues()).step_by(workers as usize);
                let numbers: Vec<(usize, u32)> =
                    interfaces.iter().enumerate().flat_map(|(i, found)| queues(found).map(move |q| (i, q))).collect();
                AfXdp::worker(&device, interfaces, &attachments, &numbers, options)
            })
            .collect()
    }

    fn worker(
        device: &str,
        interfaces: &[Interface],
        attachments: &[Arc<Attachment>],
        numbers: &[(usize, u32)],
        options: &AfXdpOptions,
    ) -> Result<AfXdp, PortsError> {
        let bound = bind_all(device, interfaces)?;
        for interface in &bound {
            interface.receive_all(device)?;
        }
        let entries = options.ring_entries;
        let chunks = numbers.len() as u32 * 2 * entries;
        let (umem, free) = Umem::new(chunks, CHUNK_BYTES)
            .map_err(|source| PortsError::of_call(device, "map packet memory", "CAP_IPC_LOCK", source))?;
        let open = |transfer: Transfer| {
            let mut sockets: Vec<Socket> = Vec::with_capacity(numbers.len());
            for (interface, queue) in numbers {
                let index = bound[*interface].index;
                match Socket::open(&umem, sockets.first(), index, *queue, entries, transfer) {
                    Ok(socket) => sockets.push(socket),
                    Err(failed) => return Err((*queue, failed)),
                }
            }
            Ok(sockets)
        };
        let wanted = match options.copy {
            CopyMode::Any => Transfer::Any,
            CopyMode::Copy => Transfer::Copy,
            CopyMode::ZeroCopy => Transfer::ZeroCopy,
        };
        // The kernel releases the queue of a closed socket later: of a process before this one, or of a first attempt.
        let open = |transfer: Transfer| {
            let is_busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
            let mut attempt = 1;
            loop {
                match open(transfer) {
                    Err((_, (_, error))) if is_busy(&error) && attempt < BUSY_ATTEMPTS => {
                        attempt += 1;
                        std::thread::sleep(BUSY_PAUSE);
                    }
                    other => return other,
                }
            }
        };
        let sockets = match open(wanted) {
            // The first driver transfers without copying, but another one cannot.
            Err((_, (_, error))) if wanted == Transfer::Any && is_refusal(&error) => open(Transfer::Copy),
            other => other,
        };
        let sockets = sockets.map_err(|(queue, failed)| refusal(device, queue, umem.bytes(), failed))?;
        let mut egress = vec![Vec::new(); PORT_COUNT as usize];
        let mut queues = Vec::with_capacity(sockets.len());
        for (socket, (interface, number)) in sockets.into_iter().zip(numbers) {
            let port = bound[*interface].port;
            if let Some(list) = egress.get_mut(port.0 as usize) {
                list.push(queues.len());
            }
            let action = |action: &str, source| PortsError::of_call(device, action, RAW_NEEDS, source);
            if let Some(BusyPoll { timeout_us, budget }) = options.busy_poll {
                socket.busy_poll(timeout_us, budget).map_err(|e| action("set up busy polling", e))?;
            }
            queues.push(Queue { socket, interface: *interface, number: *number, lent: 0, sending: 0, is_dirty: false });
        }
        let mut device = AfXdp {
            attachments: attachments.to_vec(),
            name: device.to_owned(),
            interfaces: bound,
            queues,
            umem,
            entries,
            chunks,
            free,
            egress,
            batch: Vec::with_capacity(BATCH),
            is_busy_polling: options.busy_poll.is_some(),
            counters: DeviceCounters::default(),
        };
        for number in 0..device.queues.len() {
            device.refill(number)?;
            // From now on packets arrive here.
            let queue = &device.queues[number];
            let map = &device.attachments[queue.interface].map;
            map.set(queue.number, &queue.socket.fd)
                .map_err(|e| PortsError::of_call(&device.name, "add a socket to the map", BPF_NEEDS, e))?;
        }
        Ok(device)
    }

    /// True if no packet is copied between the driver and the packet memory.
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(|queue| queue.socket.is_zero_copy())
    }

    /// The mode of the program of each interface.
    pub fn modes(&self) -> Vec<Mode> {
        self.attachments.iter().map(|attachment| attachment.mode).collect()
    }

    /// The number of chunks of the packet memory.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Takes back the chunks that were sent.
    fn reclaim(&mut self, number: usize) {
        let queue = &mut self.queues[number];
        while let Some(chunk) = queue.socket.reclaim(&self.umem) {
            self.free.push(chunk);
            queue.sending -= 1;
        }
    }

    /// Lends chunks for reception.
    fn refill(&mut self, number: usize) -> Result<(), PortsError> {
        let queue = &mut self.queues[number];
        while queue.lent < self.entries {
            let Some(chunk) = self.free.pop() else { break };
            if let Err(chunk) = queue.socket.lend(&self.umem, chunk) {
                self.free.push(chunk);
                break;
            }
            queue.lent += 1;
        }
        if queue.socket.publish_lent() || self.is_busy_polling {
            let interface = &self.interfaces[queue.interface];
            return queue.socket.wake_rx().or_else(|e| ignore_down(interface, &self.name, "receive from", e));
        }
        Ok(())
    }

    fn receive_from(&mut self, number: usize, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let queue = &mut self.queues[number];
        let port = self.interfaces[queue.interface].port;
        while self.batch.len() < BATCH {
            let Some(placed) = queue.socket.receive(&self.umem) else { break };
            queue.lent -= 1;
            self.batch.push(placed);
        }
        if self.batch.is_empty() {
            return Ok(0);
        }
        queue.socket.publish_received();
        let umem = &self.umem;
        let mut frames: Vec<Frame<'_>> = self
            .batch
            .iter_mut()
            .map(|placed| Frame::new(umem.chunk_mut(&mut placed.chunk), placed.start, placed.end, port, now_ns))
            .collect();
        let ran = run(&mut frames);
        let fates: Vec<(Fate, usize, usize)> =
            frames.iter().map(|frame| (frame.fate, frame.start(), frame.end())).collect();
        drop(frames);
        let count = fates.len();
        let mut batch = std::mem::take(&mut self.batch);
        let mut failed = ran;
        for (Placed { chunk, .. }, (fate, start, end)) in batch.drain(..).zip(fates) {
            match fate {
                Fate::Redirect(port) => failed = failed.and(self.send(Placed { chunk, start, end }, port, number)),
                _ => self.free.push(chunk),
            }
        }
        self.batch = batch;
        failed.map(|()| count)
    }

    /// Sends a packet through a port, on the queue with the number of `from` if there is one.
    fn send(&mut self, packet: Placed, port: Port, from: usize) -> Result<(), PortsError> {
        let queues = self.egress.get(port.0 as usize).map_or(&[][..], Vec::as_slice);
        let Some(&number) = queues.get(self.queues[from].number as usize % queues.len().max(1)) else {
            self.free.push(packet.chunk);
            self.counters.tx_refused += 1;
            return Ok(());
        };
        if self.queues[number].sending >= self.entries {
            if let Err(error) = self.kick(number) {
                self.free.push(packet.chunk);
                self.counters.tx_refused += 1;
                return Err(error);
            }
            self.reclaim(number);
        }
        let queue = &mut self.queues[number];
        let len_bytes = packet.end - packet.start;
        let pushed = if queue.sending < self.entries { queue.socket.send(&self.umem, packet) } else { Err(packet) };
        if let Err(packet) = pushed {
            self.free.push(packet.chunk);
            self.counters.tx_full += 1;
            return Ok(());
        }
        queue.sending += 1;
        queue.is_dirty = true;
        self.counters.sent += 1;
        self.counters.sent_bytes += len_bytes as u64;
        Ok(())
    }

    /// Has the kernel transmit what was pushed.
    fn kick(&mut self, number: usize) -> Result<(), PortsError> {
        let queue = &mut self.queues[number];
        queue.is_dirty = false;
        if !queue.socket.publish_sent() {
            return Ok(());
        }
        let pushed = queue.socket.unsent();
        let (mut pending, mut refused) = (pushed, 0);
        // In copy mode a call sends a few packets; stop when one sends none.
        while pending > 0 {
            let woken = match queue.socket.wake_tx() {
                Ok(woken) => woken,
                Err(error) => {
                    queue.is_dirty = true;
                    let interface = &self.interfaces[queue.interface];
                    return ignore_down(interface, &self.name, "transmit through", error);
                }
            };
            let left = queue.socket.unsent();
            if woken == Woken::Refused && refused < pushed {
                refused += 1;
                self.counters.sent -= 1;
                self.counters.tx_refused += 1;
            } else if left == pending {
                break;
            }
            pending = left;
        }
        queue.is_dirty = pending > 0;
        Ok(())
    }
}

/// True if a socket cannot have what was requested.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// An interface that is down refuses packets and may come up again; one that is gone is an error.
fn ignore_down(interface: &Bound, device: &str, action: &str, error: std::io::Error) -> Result<(), PortsError> {
    match error.raw_os_error() {
        Some(libc::ENETDOWN) => interface.check(),
        _ => Err(interface.failed(device, action, error)),
    }
}

/// The error for a socket that could not be opened.
fn refusal(device: &str, queue: u32, bytes: usize, (action, source): Failed) -> PortsError {
    let name = device.to_owned();
    match source.raw_os_error() {
        Some(libc::EBUSY) => PortsError::QueueInUse { device: name, queue },
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            PortsError::LockedMemory { device: name, bytes, limit_bytes: locked_limit_bytes(), source }
        }
        Some(libc::EAFNOSUPPORT) => PortsError::Unsupported {
            device: name,
            feature: "AF_XDP".to_owned(),
            remedy: "use a kernel with CONFIG_XDP_SOCKETS".to_owned(),
            source,
        },
        Some(libc::EOPNOTSUPP | libc::EINVAL) => PortsError::Unsupported {
            device: name,
            feature: format!("AF_XDP on queue {queue} without copying"),
            remedy: "use a driver with zero copy, or --mode raw".to_owned(),
            source,
        },
        _ => PortsError::of_call(device, action, RAW_NEEDS, source),
    }
}

impl Device for AfXdp {
    fn name(&self) -> &str {
        &self.name
    }

    fn ports(&self) -> Vec<(Port, String)> {
        self.interfaces.iter().map(|bound| (bound.port, bound.name.clone())).collect()
    }

    fn receive(&mut self, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let mut count = 0;
        for number in 0..self.queues.len() {
            self.reclaim(number);
            self.refill(number)?;
            count += self.receive_from(number, now_ns, run)?;
        }
        self.flush()?;
        Ok(count)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        let bytes = departure.bytes;
        let Some(&number) = self.egress.get(departure.port.0 as usize).and_then(|queues| queues.first()) else {
            self.counters.tx_refused += 1;
            return Ok(());
        };
        if bytes.len() > CHUNK_BYTES {
            self.counters.tx_refused += 1;
            return Ok(());
        }
        if self.free.is_empty() {
            let kicked = self.kick(number);
            self.counters.tx_refused += u64::from(kicked.is_err());
            kicked?;
            self.reclaim(number);
        }
        let Some(mut chunk) = self.free.pop() else {
            self.counters.tx_full += 1;
            return Ok(());
        };
        let start = HEADROOM_BYTES.min(CHUNK_BYTES - bytes.len());
        let end = start + bytes.len();
        self.umem.chunk_mut(&mut chunk)[start..end].copy_from_slice(bytes);
        self.send(Placed { chunk, start, end }, departure.port, number)
    }

    fn flush(&mut self) -> Result<(), PortsError> {
        let mut failed = Ok(());
        for number in 0..self.queues.len() {
            if self.queues[number].is_dirty {
                failed = failed.and(self.kick(number));
            }
        }
        failed
    }

    fn has_unsent(&self) -> bool {
        self.queues.iter().any(|queue| queue.is_dirty)
    }

    fn check(&mut self) -> Result<(), PortsError> {
        for (bound, attachment) in self.interfaces.iter().zip(&self.attachments) {
            bound.check()?;
            bound.check_link(&attachment.link)?;
            let found = Interface::find(bound.port.0, &bound.name).ok().filter(|found| found.index() == bound.index);
            let (found, expected) = (found.map_or(attachment.queues, |found| found.rx_queues()), attachment.queues);
            if found > expected {
                let (interface, port) = (bound.name.clone(), bound.port);
                return Err(PortsError::QueuesChanged { interface, port, found, expected });
            }
        }
        Ok(())
    }

    fn wait_on(&self, fds: &mut Vec<RawFd>) {
        fds.extend(self.queues.iter().map(|queue| queue.socket.fd.as_raw_fd()));
    }

    fn counters(&mut self) -> DeviceCounters {
        let missed: u64 = self.queues.iter().map(|queue| queue.socket.rx_missed()).sum();
        DeviceCounters { rx_missed: missed, ..self.counters }
    }

    fn check_invariants(&self) {
        let owned: u32 = self.queues.iter().map(|queue| queue.lent + queue.sending).sum();
        assert_eq!(self.free.len() as u32 + owned, self.chunks, "{self:?}");
        let mut free: Vec<&Chunk> = self.free.iter().collect();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), self.free.len(), "a chunk is free twice");
        assert!(self.queues.iter().all(|queue| queue.lent <= self.entries && queue.sending <= self.entries));
    }
}
