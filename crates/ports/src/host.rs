// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way of passed packets to the network stack.
//!
//! In the kernel, PASS lets the network stack have a packet. A device that has taken the packet from the kernel has to
//! hand it back:
//!
//! ```text
//!  Stack   frame ──► companion TAP ──program──► ingress of the port's own interface ──► network stack
//!  ToDevice  frame ──► transmitted through an interface, e.g. one end of a veth pair
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;

use flowloom_engine::Port;
use flowloom_exec::{Interface, Mode};

use crate::af_xdp::pass_token;
use crate::device::DeviceCounters;
use crate::error::{ADMIN_NEEDS, BPF_NEEDS, PortsError, RAW_NEEDS};
use crate::interfaces::{Bound, bind_all, device_name};
use crate::sys::bpf::{Program, TOKEN_BYTES};
use crate::sys::{self, packet};
use crate::tap;

/// The packets that wait for one system call, at most.
const BATCH: usize = 64;

/// A receiver of passed packets.
pub trait Host {
    /// Delivers a packet that was passed on `port`, at the latest with [`Host::flush`]. One that cannot be delivered is
    /// counted.
    ///
    /// # Errors
    /// The interface has disappeared, or a system call failed.
    fn deliver(&mut self, port: Port, bytes: &[u8]) -> Result<(), PortsError>;

    /// Delivers what is buffered.
    ///
    /// # Errors
    /// As for [`Host::deliver`].
    fn flush(&mut self) -> Result<(), PortsError> {
        Ok(())
    }

    /// The counters: `sent` are the packets delivered.
    fn counters(&self) -> DeviceCounters;
}

#[derive(Debug)]
struct Companion {
    _link: OwnedFd,
    _program: Program,
    port: Port,
    file: File,
    bound: Bound,
    /// Written before each packet, if the interface runs our program in mode skb, which lets such packets pass.
    token: Option<[u8; TOKEN_BYTES]>,
}

/// Returns passed packets to the network stack, as if the interface of their port had received them.
///
/// A TAP interface `flpassN` per port takes them, and a program at its ingress redirects them. A program in native mode
/// does not see them again; one of [`crate::AfXdp`] in mode skb knows them by a random token in front, and
/// [`crate::Raw`] by their mark. A packet for another station reaches what takes such packets, a bridge or a macvlan,
/// and is dropped by the network stack otherwise.
#[derive(Debug)]
pub struct Stack {
    name: String,
    companions: Vec<Companion>,
    counters: DeviceCounters,
}

impl Stack {
    /// Creates the companions of the interfaces, after the device has been opened. `modes` are those of the XDP program
    /// of each interface ([`crate::AfXdp::modes`]), none if the device has no such program.
    ///
    /// # Errors
    /// A privilege is missing, or the kernel has no TCX (Linux 6.6) or TAP.
    pub fn open(interfaces: &[Interface], modes: &[Mode]) -> Result<Stack, PortsError> {
        let name = device_name("pass", interfaces);
        let mut companions = Vec::new();
        for (number, interface) in interfaces.iter().enumerate() {
            let (file, tap) = sys::tap::open("flpass%d").map_err(|e| tap::opening(&name, "flpass%d", e))?;
            let admin = |action: &str, source| PortsError::of_call(&name, action, ADMIN_NEEDS, source);
            // No addresses: the interface itself sends nothing. Without IPv6 in the kernel there is no such file.
            _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{tap}/disable_ipv6"), "1");
            let mtu = sys::interface::mtu_bytes(interface.name()).map_err(|e| admin("read the MTU", e))?;
            sys::interface::set_mtu(&tap, mtu + TOKEN_BYTES).map_err(|e| admin("set the MTU of a companion", e))?;
            let found = Interface::find(interface.port, &tap)?;
            let attached = || {
                let program = Program::to_stack(interface.index())?;
                program.attach(found.index(), false).map(|link| (link, program))
            };
            let (link, program) = attached().map_err(|source| match source.raw_os_error() {
                Some(libc::EINVAL) => PortsError::Unsupported {
                    device: name.clone(),
                    feature: "a program at the ingress (TCX)".to_owned(),
                    remedy: "use Linux 6.6 or newer, or pass packets to another interface".to_owned(),
                    source,
                },
                _ => PortsError::of_call(&name, "attach a program to a companion", BPF_NEEDS, source),
            })?;
            sys::interface::turn_on(&tap, libc::IFF_NOARP).map_err(|e| admin("turn on a companion", e))?;
            let port = Port(interface.port);
            let bound = Bound::new(&name, port, &tap, found.index())?;
            let token = (modes.get(number) == Some(&Mode::Skb)).then(|| pass_token().to_ne_bytes());
            companions.push(Companion { _link: link, _program: program, port, file, bound, token });
        }
        Ok(Stack { name, companions, counters: DeviceCounters::default() })
    }
}

impl Host for Stack {
    fn deliver(&mut self, port: Port, bytes: &[u8]) -> Result<(), PortsError> {
        let Some(companion) = self.companions.iter().find(|companion| companion.port == port) else {
            self.counters.tx_refused += 1;
            return Ok(());
        };
        let written = match companion.token {
            None => tap::write(&companion.file, bytes, &mut self.counters),
            Some(token) => tap::write(&companion.file, &[&token, bytes].concat(), &mut self.counters),
        };
        written.map_err(|e| companion.bound.failed(&self.name, "pass through", e))
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

/// Transmits passed packets of all ports through an interface.
#[derive(Debug)]
pub struct ToDevice {
    name: String,
    bound: Bound,
    tx: OwnedFd,
    waiting: Vec<Vec<u8>>,
    counters: DeviceCounters,
}

impl ToDevice {
    /// Opens a socket on the interface; its port does not matter.
    ///
    /// # Errors
    /// A privilege is missing.
    pub fn open(interface: &Interface) -> Result<ToDevice, PortsError> {
        let interfaces = std::slice::from_ref(interface);
        let name = device_name("pass to", interfaces);
        let open = packet::open_tx(interface.index(), 8 << 20);
        let tx = open.map_err(|source| PortsError::of_call(&name, "open a socket", RAW_NEEDS, source))?;
        let bound = bind_all(&name, interfaces)?.remove(0);
        Ok(ToDevice { name, bound, tx, waiting: Vec::new(), counters: DeviceCounters::default() })
    }
}

impl Host for ToDevice {
    fn deliver(&mut self, _: Port, bytes: &[u8]) -> Result<(), PortsError> {
        self.waiting.push(bytes.to_vec());
        if self.waiting.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), PortsError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let packets: Vec<&[u8]> = waiting.iter().map(Vec::as_slice).collect();
        let (sent, error) = packet::send(&self.tx, &packets);
        sent.count(&mut self.counters);
        error.map_or(Ok(()), |e| Err(self.bound.failed(&self.name, "transmit through", e)))
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
