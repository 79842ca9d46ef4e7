// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network interfaces, and the programs already attached to them.

use std::fmt;
use std::io;

use crate::sys::netlink::{self, Attached, Device, Which};
use crate::sys::object::{self, Kind};
use crate::sys::{ethtool, program::RawProgram};

use super::error::{LiveError, Mode};

/// An interface and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The port, below 256.
    pub port: u32,
    pub(super) device: Device,
}

impl Interface {
    /// Finds the interface called `name`.
    ///
    /// # Errors
    /// There is none in this network namespace, or the kernel does not tell.
    pub fn find(port: u32, name: &str) -> Result<Interface, LiveError> {
        match netlink::device(Which::Name(name)) {
            Ok(device) => Ok(Interface { port, device }),
            Err(source) if source.raw_os_error() == Some(libc::ENODEV) => {
                Err(LiveError::NoInterface { name: name.to_owned() })
            }
            Err(source) => Err(LiveError::System { action: format!("inspect interface `{name}`"), source }),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// The interface index.
    pub fn index(&self) -> u32 {
        self.device.index
    }

    /// True if it is up.
    pub fn is_up(&self) -> bool {
        self.device.is_up
    }

    /// True if its link is up: for a TAP interface, if a process holds its other end.
    pub fn has_carrier(&self) -> bool {
        self.device.has_carrier
    }

    /// The number of receive queues in use: as many CPUs may process its packets at once.
    pub fn rx_queues(&self) -> u32 {
        let in_use = ethtool::rx_queues(&self.device.name).ok().filter(|queues| *queues > 0);
        in_use.unwrap_or(self.device.rx_queues).max(1)
    }

    /// Refuses an interface with another program.
    ///
    /// # Errors
    /// [`LiveError::Occupied`] names the program and how to remove it.
    pub fn require_free(&self) -> Result<(), LiveError> {
        match self.device.xdp.first() {
            None => Ok(()),
            Some(attached) => Err(LiveError::Occupied(Box::new(Occupant::of(&self.device, *attached)))),
        }
    }

    pub(super) fn attach(&self, program: &RawProgram, mode: Mode) -> Result<std::os::fd::OwnedFd, LiveError> {
        program.attach(self.device.index, mode == Mode::Native).map_err(|source| self.refusal(mode, source))
    }

    fn refusal(&self, mode: Mode, source: io::Error) -> LiveError {
        let name = self.device.name.clone();
        match source.raw_os_error() {
            // Another process was faster, or the interface has changed since.
            Some(libc::EBUSY | libc::EEXIST) => {
                let now = netlink::device(Which::Index(self.device.index, None)).ok();
                let occupied = now.and_then(|device| device.xdp.first().map(|xdp| Occupant::of(&device, *xdp)));
                match occupied {
                    Some(occupant) => LiveError::Occupied(Box::new(occupant)),
                    None => LiveError::Attach { name, mode, source, hint: String::new() },
                }
            }
            Some(libc::ENODEV) => LiveError::NoInterface { name },
            number => {
                let hint = match (mode, number) {
                    (Mode::Native, Some(libc::EOPNOTSUPP)) => {
                        "; its driver cannot run XDP itself: use `-m skb`".to_owned()
                    }
                    (Mode::Native, Some(libc::ERANGE | libc::EINVAL)) if self.largest_mtu() > 1500 => {
                        let (mtu, device) = (self.largest_mtu(), self.device_of_largest_mtu());
                        format!(
                            "; a frame must fit a page, and the MTU is {mtu}: `ip link set dev {device} mtu 1500`, or use \
                             `-m skb`"
                        )
                    }
                    (Mode::Native, Some(libc::ERANGE | libc::EINVAL)) => {
                        "; its driver refuses XDP in its current configuration (offloads, queues): see `dmesg`; \
                         or use `-m skb`"
                            .to_owned()
                    }
                    _ => String::new(),
                };
                LiveError::Attach { name, mode, source, hint }
            }
        }
    }

    /// The other end of a veth pair.
    pub(super) fn peer(&self) -> Option<Device> {
        let (index, namespace) = self.device.peer?;
        netlink::device(Which::Index(index, namespace)).ok()
    }

    fn largest_mtu(&self) -> u32 {
        self.device.mtu_bytes.max(self.peer().map_or(0, |peer| peer.mtu_bytes))
    }

    /// A veth receives the frames that its peer may send.
    fn device_of_largest_mtu(&self) -> String {
        let peer = self.peer().filter(|peer| peer.mtu_bytes >= self.device.mtu_bytes);
        peer.map_or_else(|| self.device.name.clone(), |peer| peer.name)
    }
}

/// A program that another process has attached to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The interface.
    pub interface: String,
    /// The name of the program, if it can be determined.
    pub program: Option<String>,
    /// The id of the program.
    pub id: u32,
    /// The mode of attachment: `native`, `skb` or `offloaded`.
    pub mode: &'static str,
    /// The link that holds it; none if it was attached without one (by `ip link`).
    pub link: Option<u32>,
}

impl Occupant {
    fn of(device: &Device, attached: Attached) -> Occupant {
        let opened = object::open(Kind::Program, attached.program).ok().flatten();
        let info = opened.and_then(|fd| object::program(std::os::fd::AsFd::as_fd(&fd)).ok());
        let holds = |id: &u32| {
            let link = object::open(Kind::Link, *id).ok().flatten()?;
            let info = object::link(std::os::fd::AsFd::as_fd(&link)).ok()?;
            (info.interface == Some(device.index) && info.program == attached.program).then_some(*id)
        };
        let link = object::ids(Kind::Link).unwrap_or_default().iter().find_map(holds);
        Occupant {
            interface: device.name.clone(),
            program: info.map(|info| info.name),
            id: attached.program,
            mode: attached.mode,
            link,
        }
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.as_deref().unwrap_or("?");
        write!(
            f,
            "interface `{}` already runs the XDP program `{name}` (id {}, {}",
            self.interface, self.id, self.mode
        )?;
        match self.link {
            Some(link) => write!(
                f,
                ", link {link}), and is not replaced; to remove it, end the process that `bpftool link show id {link}` \
                 names, or run `bpftool link detach id {link}`"
            ),
            None => {
                let word = match self.mode {
                    "skb" => "xdpgeneric",
                    "offloaded" => "xdpoffload",
                    _ => "xdpdrv",
                };
                write!(f, "), and is not replaced; to remove it: `ip link set dev {} {word} off`", self.interface)
            }
        }
    }
}
