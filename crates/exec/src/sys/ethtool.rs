// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Offloads and queues of an interface, by SIOCETHTOOL.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use super::text;

const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const GCHANNELS: u32 = 0x3c;
/// ETH_SS_FEATURES
const FEATURES: u32 = 4;
/// ETH_GSTRING_LEN
const STRING_BYTES: usize = 32;
/// The bound on features; no kernel has as many.
const MAX_FEATURES: usize = 4096;

/// The enabled offloads of an interface, by their names in `ethtool -k`; whether each can be changed.
pub(crate) type Features = BTreeMap<String, bool>;

/// Sends a request of words, which the kernel answers in place.
fn ask(device: &str, request: &mut [u32]) -> io::Result<()> {
    let socket = super::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: plain data, for which zeros are valid.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in ifreq.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(device.bytes()) {
        *place = byte as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    // SAFETY: the request is live and mutable, and has the size of its command's answer.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, std::ptr::from_mut(&mut ifreq)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The enabled offloads.
///
/// # Errors
/// The interface does not exist, or its kernel does not tell.
pub(crate) fn features(device: &str) -> io::Result<Features> {
    // cmd, reserved, sset_mask (u64), one answer.
    let mut sets = [GSSET_INFO, 0, 1 << FEATURES, 0, 0];
    ask(device, &mut sets)?;
    let count = sets[4] as usize;
    if count > MAX_FEATURES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{count} offloads")));
    }
    // cmd, string_set, len, then the names.
    let mut names = vec![0; 3 + count * STRING_BYTES / 4];
    names[..3].copy_from_slice(&[GSTRINGS, FEATURES, count as u32]);
    ask(device, &mut names)?;
    let names: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    // cmd, size, then for each 32 offloads: available, requested, active, never changed.
    let blocks = count.div_ceil(32);
    let mut bits = vec![0; 2 + 4 * blocks];
    bits[..2].copy_from_slice(&[GFEATURES, blocks as u32]);
    ask(device, &mut bits)?;
    let mut features = Features::new();
    for (i, name) in names.chunks_exact(STRING_BYTES).enumerate() {
        let [available, _, active, fixed] = *bits[2 + i / 32 * 4..].first_chunk().unwrap_or(&[0; 4]);
        let bit = |word: u32| word >> (i % 32) & 1 != 0;
        if bit(active) {
            features.insert(text(name), bit(available) && !bit(fixed));
        }
    }
    Ok(features)
}

/// The number of receive queues in use.
///
/// # Errors
/// The interface does not exist, or its driver does not tell.
pub(crate) fn rx_queues(device: &str) -> io::Result<u32> {
    // cmd, largest rx, tx, other, combined, then the same in use.
    let mut channels = [GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    ask(device, &mut channels)?;
    Ok(channels[5] + channels[8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_offloads_of_the_loopback_interface() {
        let features = features("lo").expect("every namespace has one");
        assert_eq!(features.get("loopback"), Some(&false), "{features:?}");
        assert!(super::features("no-such-dev").is_err());
        assert!(rx_queues("no-such-dev").is_err());
    }
}
