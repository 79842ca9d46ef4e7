// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::rng::Rng;

/// Offsets from the Ethernet header of lengths, versions, types and fragment bits, with and without a tag.
const HEADER_CONTROL_BYTES: [usize; 18] = [12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 38, 39, 46, 50, 54, 55];

/// Corrupts a packet: flips bits, replaces bytes, truncates, appends, edits lengths and types. The packet grows by at
/// most 64 bytes. Some mutations leave it valid or unchanged.
pub fn mutate(rng: &mut Rng, packet: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        match rng.below(8) {
            0 | 1 => flip(rng, packet),
            2 => packet.truncate(rng.below(packet.len() + 1)),
            3 => {
                let len = 1 + rng.below(16);
                let more = rng.bytes(len);
                packet.extend(more);
            }
            4 => replace(rng, packet),
            5 => swap_ranges(rng, packet),
            _ => edit_control_byte(rng, packet),
        }
    }
}

fn flip(rng: &mut Rng, packet: &mut [u8]) {
    let at = rng.below(packet.len());
    if let Some(byte) = packet.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

fn replace(rng: &mut Rng, packet: &mut [u8]) {
    let at = rng.below(packet.len());
    let any = rng.next_u64() as u8;
    let value = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, any]);
    if let Some(byte) = packet.get_mut(at) {
        *byte = value;
    }
}

/// Swaps the bytes of two ranges, such as two headers.
fn swap_ranges(rng: &mut Rng, packet: &mut [u8]) {
    let len = 1 + rng.below(8);
    if packet.len() >= 2 * len {
        let (left, right) = packet.split_at_mut(packet.len() / 2);
        let from = rng.below(left.len() - len + 1);
        let to = rng.below(right.len() - len + 1);
        left[from..from + len].swap_with_slice(&mut right[to..to + len]);
    }
}

/// Off by one, off by a header length, or another known value, in a byte that steers parsing.
fn edit_control_byte(rng: &mut Rng, packet: &mut [u8]) {
    let at = *rng.pick(&HEADER_CONTROL_BYTES);
    let choice = rng.below(5);
    let Some(byte) = packet.get_mut(at) else { return };
    *byte = match choice {
        0 => byte.wrapping_add(1),
        1 => byte.wrapping_sub(1),
        2 => byte.wrapping_sub(20),
        3 => *rng.pick(&[0, 1, 6, 17, 43, 44, 51, 58, 60, 0x45, 0x46, 0x4f, 0x60, 0x08, 0x81, 0x86, 0xdd]),
        _ => rng.next_u64() as u8,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_can_be_mutated() {
        let mut rng = Rng::from_env(2);
        let mut changed = 0;
        for _ in 0..10_000 {
            let len = rng.below(80);
            let before = rng.bytes(len);
            let mut after = before.clone();
            mutate(&mut rng, &mut after);
            assert!(after.len() <= before.len() + 64);
            changed += usize::from(before != after);
        }
        assert!(changed > 8_000, "{changed} of 10000 changed");
    }
}
