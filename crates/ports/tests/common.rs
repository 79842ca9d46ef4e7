// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Namespaces with veth pairs, independent senders and receivers, and test engines.
#![allow(unsafe_code, reason = "raw sockets and namespaces of the tests")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowloom_engine::{EngineError, Fate, Frame, InPlace, Output, Port, Ports, Verdict};
use flowloom_exec::Interface;
use flowloom_ports::{Device, Hooks, Host, LoopOptions, PortsError, Statistics, run_loop};

/// The EtherType of test packets: for local experiments [IEEE 802].
pub(crate) const TEST_TYPE: [u8; 2] = [0x88, 0xb5];
/// The time after which a missing packet is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) fn ip(words: &str) -> io::Result<String> {
    let said = Command::new("ip").args(words.split_whitespace()).output()?;
    if said.status.success() {
        return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
    }
    Err(io::Error::other(format!("ip {words}: {}", String::from_utf8_lossy(&said.stderr).trim())))
}

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// A network namespace that lives as long as this.
pub(crate) struct Namespace {
    file: File,
}

impl Namespace {
    pub(crate) fn new() -> io::Result<Namespace> {
        let made = std::thread::spawn(|| {
            // SAFETY: takes no addresses; only this thread moves.
            checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            // No packets but those of the test.
            _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            ip("link set lo up")?;
            File::open("/proc/thread-self/ns/net").map(|file| Namespace { file })
        });
        made.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace failed")))
    }

    /// Runs `job` in it, in a thread of its own.
    pub(crate) fn within<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let run = || {
            // SAFETY: takes no addresses; only this thread moves.
            checked(unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) }).expect("permitted");
            job()
        };
        match std::thread::scope(|scope| scope.spawn(run).join()) {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// The path that `ip link set DEV netns` accepts.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Two namespaces joined by veth pairs `nearN` (here) and `farN` (there), with N from 1.
pub(crate) struct Wires {
    pub(crate) here: Namespace,
    pub(crate) there: Namespace,
}

impl Wires {
    pub(crate) fn new(pairs: u32, queues: u32) -> Result<Wires, String> {
        let made = || {
            let (here, there) = (Namespace::new()?, Namespace::new()?);
            let path = there.path();
            here.within(|| {
                (1..=pairs).try_for_each(|n| {
                    ip(&format!(
                        "link add near{n} numrxqueues {queues} numtxqueues {queues} type veth peer name far{n} \
                         numrxqueues {queues} numtxqueues {queues} netns {path}"
                    ))?;
                    ip(&format!("link set near{n} up")).map(drop)
                })
            })?;
            there.within(|| (1..=pairs).try_for_each(|n| ip(&format!("link set far{n} up")).map(drop)))?;
            Ok(Wires { here, there })
        };
        made().map_err(|error: io::Error| format!("namespaces with veth pairs: {error}"))
    }
}

/// Opens a device. What an earlier one held is free a moment later if another test starts a process, which has a copy
/// of all descriptors until it runs its program.
pub(crate) fn opened<T>(open: impl Fn() -> Result<T, PortsError>) -> T {
    let start = Instant::now();
    loop {
        match open() {
            Ok(device) => return device,
            Err(error) if start.elapsed() > PATIENCE => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn interface(port: u32, name: &str) -> Interface {
    Interface::find(port, name).unwrap_or_else(|error| panic!("{error}"))
}

/// The interfaces `near1`, `near2`, ... as ports 1, 2, ...
pub(crate) fn near(count: u32) -> Vec<Interface> {
    (1..=count).map(|n| interface(n, &format!("near{n}"))).collect()
}

/// Has the network stack compute checksums before it sends through `name`, as `ethtool -K NAME tx off` does.
pub(crate) fn without_checksum_offload(name: &str) {
    // ETHTOOL_STXCSUM, and the value.
    let mut request = [0x17u32, 0];
    // SAFETY: plain data, for which zeros are valid.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: the request is live, mutable, and has the size of its command.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut ifreq) };
    checked(answer).expect("a veth interface can");
}

/// A raw socket of the test, independent of the crate.
pub(crate) struct Wire {
    fd: OwnedFd,
}

impl Wire {
    /// In the namespace of the calling thread.
    pub(crate) fn open(name: &str) -> Wire {
        let index = interface(0, name).index();
        let protocol = 3u16.to_be();
        // SAFETY: takes no addresses.
        let fd = checked(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) });
        // SAFETY: the socket was created for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.expect("privileges")) };
        let option = |level, name, value: i32| {
            // SAFETY: a live integer of the given size.
            checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) })
                .expect("an option");
        };
        option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        option(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1);
        option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20);
        // SAFETY: plain data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        (address.sll_protocol, address.sll_ifindex) = (protocol, index as i32);
        // SAFETY: a live address of the given size.
        let bound =
            unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32) };
        checked(bound).expect("binds");
        Wire { fd }
    }

    pub(crate) fn send(&self, packet: &[u8]) {
        let start = Instant::now();
        loop {
            // SAFETY: live bytes of the given size.
            let sent = unsafe { libc::send(self.fd.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) };
            match checked(sent as libc::c_int) {
                Ok(_) => return,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(error) => panic!("send: {error}"),
            }
        }
    }

    /// The next packet of the test's type that arrives within `patience`.
    pub(crate) fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + patience;
        loop {
            let (_, packet) = self.receive_tagged(end.saturating_duration_since(Instant::now()))?;
            if packet.get(12..14) == Some(&TEST_TYPE) {
                return Some(packet);
            }
        }
    }

    /// The next packet that arrives within `patience`, and the VLAN tag that the kernel has taken out of it.
    pub(crate) fn receive_tagged(&self, patience: Duration) -> Option<(Option<[u8; 4]>, Vec<u8>)> {
        let end = Instant::now() + patience;
        let mut bytes = vec![0; 1 << 14];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut polled = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: a live, mutable entry.
            let ready = unsafe { libc::poll(&raw mut polled, 1, left.as_millis() as libc::c_int) };
            if checked(ready).expect("poll") == 0 {
                return None;
            }
            let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut control = [0u64; 16];
            // SAFETY: plain data, for which zeros are valid.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
            (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
            // SAFETY: the header refers to live, mutable memory of the given sizes.
            let len = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, 0) };
            // An interface that was turned off reports that once.
            let Ok(len) = checked(len as libc::c_int) else { continue };
            // SAFETY: the kernel has filled in the control messages.
            let tag = unsafe {
                let message = libc::CMSG_FIRSTHDR(&raw const header);
                (!message.is_null()).then(|| libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned())
            };
            let tag = tag.filter(|tag| tag.tp_status & libc::TP_STATUS_VLAN_VALID != 0).map(|tag| {
                let ([a, b], [c, d]) = (tag.tp_vlan_tpid.to_be_bytes(), tag.tp_vlan_tci.to_be_bytes());
                [a, b, c, d]
            });
            return Some((tag, bytes[..len as usize].to_vec()));
        }
    }
}

/// Test packet number `number`: of a length and with bytes that depend on it.
pub(crate) fn packet(number: u64) -> Vec<u8> {
    let len = 60 + (number as usize * 37) % 1400;
    let mut bytes = vec![2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 0xbb, TEST_TYPE[0], TEST_TYPE[1]];
    bytes.extend(number.to_be_bytes());
    bytes.extend((bytes.len()..len).map(|at| (at as u64 ^ number) as u8));
    bytes
}

/// The packet with its Ethernet addresses exchanged.
pub(crate) fn swapped(packet: &[u8]) -> Vec<u8> {
    [&packet[6..12], &packet[..6], &packet[12..]].concat()
}

/// An engine that the test keeps.
pub(crate) struct ByReference<'a, E>(pub &'a mut E);

impl<E: InPlace> InPlace for ByReference<'_, E> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.0.bind_ports(ports);
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        self.0.run(frames, extra)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.0.sweep(now_ns)
    }
}

/// Swaps the Ethernet addresses, and redirects port 1 to 2 and 2 to 1.
pub(crate) struct Cross;

impl InPlace for Cross {
    fn name(&self) -> &str {
        "cross"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        for frame in frames {
            let (first, second) = frame.bytes_mut().split_at_mut(6);
            first.swap_with_slice(&mut second[..6]);
            frame.fate = Fate::Redirect(Port(3 - frame.port.0));
        }
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Sets the same fate for every frame.
pub(crate) struct Always(pub Fate);

impl InPlace for Always {
    fn name(&self) -> &str {
        "always"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        frames.iter_mut().for_each(|frame| frame.fate = self.0);
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
}

/// What runs in the loop's thread.
pub(crate) struct Running<'a> {
    pub(crate) devices: Vec<Box<dyn Device + 'a>>,
    pub(crate) engine: Box<dyn InPlace + 'a>,
    pub(crate) host: Option<Box<dyn Host + 'a>>,
    pub(crate) options: LoopOptions,
}

impl<'a> Running<'a> {
    pub(crate) fn new(devices: Vec<Box<dyn Device + 'a>>, engine: impl InPlace + 'a) -> Running<'a> {
        Running { devices, engine: Box::new(engine), host: None, options: LoopOptions::default() }
    }
}

/// Runs the loop that `prepare` makes in namespace `here` beside `test`, which it stops when that returns.
pub(crate) fn beside<'a, T: Send>(
    here: &Namespace,
    prepare: impl FnOnce() -> Running<'a> + Send,
    test: impl FnOnce() -> T + Send,
) -> (T, Result<Statistics, PortsError>) {
    stopped_after(Duration::ZERO, here, prepare, test)
}

/// As [`beside`], but what `test` does ends the loop.
pub(crate) fn ended_by<'a>(
    here: &Namespace,
    prepare: impl FnOnce() -> Running<'a> + Send,
    test: impl FnOnce() + Send,
) -> PortsError {
    let ((), found) = stopped_after(10 * PATIENCE, here, prepare, test);
    found.expect_err("the loop ends by itself")
}

/// As [`beside`]; the loop has `patience` to end by itself after the test.
pub(crate) fn stopped_after<'a, T: Send>(
    patience: Duration,
    here: &Namespace,
    prepare: impl FnOnce() -> Running<'a> + Send,
    test: impl FnOnce() -> T + Send,
) -> (T, Result<Statistics, PortsError>) {
    let stop = AtomicBool::new(false);
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let stop = &stop;
        let running = scope.spawn(move || {
            here.within(|| {
                let Running { mut devices, mut engine, mut host, options } = prepare();
                ready.send(()).expect("the test waits");
                let host = host.as_deref_mut().map(|host| host as &mut dyn Host);
                let found = run_loop(&mut devices, &mut *engine, host, &options, stop, Hooks::default());
                devices.iter().for_each(|device| device.check_invariants());
                found
            })
        });
        let result = is_ready.recv().ok().map(|()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)));
        let start = Instant::now();
        while !running.is_finished() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let found = match running.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        match result {
            Some(Ok(value)) => (value, found),
            Some(Err(panic)) => {
                let found = found.map_or_else(|error| error.to_string(), |found| format!("{found:?}"));
                eprintln!("the loop: {found}");
                std::panic::resume_unwind(panic)
            }
            None => panic!("the loop did not start"),
        }
    })
}

/// Sends packets `numbers` on `from`, at most `window` on the way at once, and expects each once and in order on `to`,
/// changed by `change`.
pub(crate) fn exchange(
    from: &Wire,
    to: &Wire,
    numbers: std::ops::Range<u64>,
    window: u64,
    change: impl Fn(&[u8]) -> Vec<u8>,
) {
    let mut next = numbers.start;
    for number in numbers.clone() {
        while next < numbers.end && next < number + window {
            from.send(&packet(next));
            next += 1;
        }
        let found = to.receive(PATIENCE);
        let expected = change(&packet(number));
        assert!(found.as_deref() == Some(&expected), "packet {number}: found {found:02x?}, expected {expected:02x?}");
    }
    assert_eq!(to.receive(Duration::from_millis(20)), None, "no packet is doubled");
}

/// Asserts that all packets were received and redirected, and that nothing was lost.
pub(crate) fn assert_lossless(found: &Statistics, packets: u64) {
    assert_eq!((found.packets, found.count(Verdict::Redirect)), (packets, packets), "{found:?}");
    let devices = found.devices;
    assert_eq!((devices.sent, devices.tx_full, devices.tx_refused, devices.rx_missed), (packets, 0, 0, 0), "{found:?}");
    assert_eq!(devices.sent_bytes, found.bytes, "{found:?}");
}
