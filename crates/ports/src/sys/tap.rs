// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TAP interfaces.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::interface::request;
use super::{checked, text};

/// Opens TAP interface `name`, which is created if there is none; `%d` stands for the first free number. Returns its
/// name. An interface created here is removed with the file.
///
/// # Errors
/// The system's; EBUSY if another process has it open.
pub(crate) fn open(name: &str) -> io::Result<(File, String)> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is live and mutable.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, std::ptr::from_mut(&mut request)) })?;
    let bytes: Vec<u8> = request.ifr_name.iter().map(|byte| *byte as u8).collect();
    Ok((file, text(&bytes)))
}
