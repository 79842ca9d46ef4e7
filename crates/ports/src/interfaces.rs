// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interfaces of a device, and whether they still exist.

use std::os::fd::OwnedFd;

use flowloom_engine::{HEADROOM_BYTES, Port};
use flowloom_exec::Interface;

use crate::PortsError;
use crate::error::{ADMIN_NEEDS, BPF_NEEDS};
use crate::sys::bpf;
use crate::sys::interface::{Presence, mtu_bytes};

/// Ethernet header and two VLAN tags.
const HEADERS_BYTES: usize = 14 + 8;
/// The least buffer: a page, as in the kernel.
const BUFFER_BYTES: usize = 4096;

/// An interface of a device.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) port: Port,
    pub(crate) name: String,
    pub(crate) index: u32,
    presence: Presence,
}

impl Bound {
    pub(crate) fn new(device: &str, port: Port, name: &str, index: u32) -> Result<Bound, PortsError> {
        let presence = Presence::of(index)
            .map_err(|source| PortsError::of_call(device, "open a socket", crate::error::RAW_NEEDS, source))?;
        Ok(Bound { port, name: name.to_owned(), index, presence })
    }

    /// Lets the interface receive packets for other stations, until the device is closed.
    ///
    /// # Errors
    /// The system call fails.
    pub(crate) fn receive_all(&self, device: &str) -> Result<(), PortsError> {
        self.presence
            .receive_all()
            .map_err(|source| self.failed(device, "receive packets for other stations by", source))
    }

    /// # Errors
    /// [`PortsError::Disappeared`].
    pub(crate) fn check(&self) -> Result<(), PortsError> {
        if self.presence.is_there() {
            return Ok(());
        }
        Err(PortsError::Disappeared { interface: self.name.clone(), port: self.port })
    }

    /// Checks that a program is still attached by its link.
    ///
    /// # Errors
    /// [`PortsError::Detached`].
    pub(crate) fn check_link(&self, link: &OwnedFd) -> Result<(), PortsError> {
        match bpf::link_interface(link) {
            Ok(index) if index == self.index => Ok(()),
            Ok(_) => Err(PortsError::Detached { interface: self.name.clone(), port: self.port }),
            Err(source) => Err(PortsError::of_call(&self.name, "inspect the link of a program", BPF_NEEDS, source)),
        }
    }

    /// Checks that a program at the ingress runs before those of others. Those that a missing privilege (CAP_SYS_ADMIN)
    /// hides are taken for harmless.
    ///
    /// # Errors
    /// [`PortsError::Overtaken`].
    pub(crate) fn check_first(&self, link: &OwnedFd) -> Result<(), PortsError> {
        let failed = |source| self.failed(&self.name, "list the programs at the ingress of", source);
        let own = bpf::link_program(link).map_err(failed)?;
        let found = bpf::at_ingress(self.index).map_err(failed)?;
        // Guards of other devices drop as well.
        match found.into_iter().take_while(|(id, _)| *id != own).find(|(_, name)| name != bpf::KEEP) {
            None => Ok(()),
            Some((_, program)) => Err(PortsError::Overtaken { interface: self.name.clone(), port: self.port, program }),
        }
    }

    /// The error of a system call on it: that it has disappeared, or the error itself.
    pub(crate) fn failed(&self, device: &str, action: &str, source: std::io::Error) -> PortsError {
        match self.check() {
            Err(disappeared) => disappeared,
            Ok(()) => PortsError::of_call(device, &format!("{action} `{}`", self.name), ADMIN_NEEDS, source),
        }
    }

    /// The size of a buffer for its packets: with headroom, and room for at least the MTU.
    pub(crate) fn buffer_bytes(&self, device: &str) -> Result<usize, PortsError> {
        let mtu = mtu_bytes(&self.name).map_err(|source| self.failed(device, "read the MTU of", source))?;
        Ok((HEADROOM_BYTES + HEADERS_BYTES + mtu).next_multiple_of(64).max(BUFFER_BYTES))
    }
}

/// The programs at the ingress of an interface (TCX) in the order in which they run: id and name.
///
/// # Errors
/// The kernel has no TCX (Linux 6.6), or a privilege is missing.
pub fn ingress_programs(interface: &Interface) -> Result<Vec<(u32, String)>, PortsError> {
    bpf::at_ingress(interface.index())
        .map_err(|source| PortsError::of_call(interface.name(), "list the programs at its ingress", BPF_NEEDS, source))
}

/// The name of a device in messages.
pub(crate) fn device_name(kind: &str, interfaces: &[Interface]) -> String {
    let names: Vec<&str> = interfaces.iter().map(Interface::name).collect();
    format!("{kind} {}", names.join(","))
}

/// The interfaces of a device, each once and with a port in range.
pub(crate) fn bind_all(device: &str, interfaces: &[Interface]) -> Result<Vec<Bound>, PortsError> {
    let mut bound: Vec<Bound> = Vec::new();
    for interface in interfaces {
        let port = Port(interface.port);
        if let Some(first) = bound.iter().find(|other| other.port == port) {
            let (first, second) = (first.name.clone(), interface.name().to_owned());
            return Err(PortsError::BoundTwice { port, first, second });
        }
        bound.push(Bound::new(device, port, interface.name(), interface.index())?);
    }
    Ok(bound)
}
