// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses, MTUs and flags of interfaces, by ioctl(2).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::checked;

/// A request about interface `name`.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        let message = format!("`{name}` is not an interface name: expected 1 to {} bytes", libc::IFNAMSIZ - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

/// Sends a request about an interface, which the kernel answers in place.
fn ask(command: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket: OwnedFd = super::socket(libc::AF_PACKET, 0)?;
    // SAFETY: the request is live, mutable, and of the type of these commands.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), command as _, std::ptr::from_mut(request)) }).map(drop)
}

/// The MTU of an interface.
pub(crate) fn mtu_bytes(name: &str) -> io::Result<usize> {
    let mut request = request(name)?;
    ask(libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: this command fills in the MTU.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Sets the MTU of an interface.
pub(crate) fn set_mtu(name: &str, bytes: usize) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    ask(libc::SIOCSIFMTU, &mut request)
}

/// Turns an interface on, with further flags.
pub(crate) fn turn_on(name: &str, further: libc::c_int) -> io::Result<()> {
    let mut request = request(name)?;
    ask(libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: this command fills in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | further) as libc::c_short;
    ask(libc::SIOCSIFFLAGS, &mut request)
}

/// Tells whether an interface exists, in the network namespace in which this was created.
#[derive(Debug)]
pub(crate) struct Presence {
    socket: OwnedFd,
    ifindex: u32,
}

impl Presence {
    pub(crate) fn of(ifindex: u32) -> io::Result<Presence> {
        Ok(Presence { socket: super::socket(libc::AF_PACKET, 0)?, ifindex })
    }

    /// Lets the interface receive packets for other stations, as long as this exists.
    pub(crate) fn receive_all(&self) -> io::Result<()> {
        super::packet::receive_all(&self.socket, self.ifindex)
    }

    /// True if it still exists.
    pub(crate) fn is_there(&self) -> bool {
        // SAFETY: plain data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = self.ifindex as libc::c_int;
        let (fd, request) = (self.socket.as_raw_fd(), std::ptr::from_mut(&mut request));
        // SAFETY: the request is live, mutable, and of the type of this command.
        checked(unsafe { libc::ioctl(fd, libc::SIOCGIFNAME as _, request) }).is_ok()
    }
}
