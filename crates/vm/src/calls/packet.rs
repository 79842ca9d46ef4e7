// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packet: its bounds, bytes, checksums, and redirects.

use flowloom_engine::{Output, Port, Verdict};

use super::{BAD_ADDRESS, INVALID, Run, length};
use crate::fault::Fault;
use crate::space::Space;
use flowloom_isa::MapKind;
use flowloom_wire::{Layers, Question};

/// The bits of `redirect_map`'s flags that are the verdict for an absent key.
const ACTION_MASK: u64 = 3;
/// `redirect_map`: to all ports of the map.
const BPF_F_BROADCAST: u64 = 1 << 3;
/// `redirect_map` to all ports: except the ingress port.
const BPF_F_EXCLUDE_INGRESS: u64 = 1 << 4;
/// The largest offset and length of `xdp_load_bytes` and `xdp_store_bytes`.
const MAX_SPAN: u32 = 0xffff;
/// The longest packet of `fl_emit`.
const MAX_EMITTED_BYTES: usize = 4096;

/// The limit of bytes that one packet may send besides itself; otherwise a program with a loop would exhaust memory.
const MAX_SENT_BYTES: usize = 1 << 24;
/// The minimum that each of those packets counts.
const MIN_SENT_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
/// The target of a redirect.
pub enum Redirect {
    /// One port.
    To(Port),
    /// Every bound port of a device map.
    All { map: usize, but_ingress: bool },
}

/// The sum of 32-bit words with end-around carry, zero-padded, as the kernel's `csum_partial` on a little-endian
/// machine.
fn sum(bytes: &[u8], seed: u32) -> u32 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let total: u64 = bytes.chunks(4).map(word).sum();
    carried(total + u64::from(seed))
}

/// Adds the carries to a sum.
fn carried(total: u64) -> u32 {
    let once = (total >> 32) + (total & 0xffff_ffff);
    ((once >> 32) + (once & 0xffff_ffff)) as u32
}

/// Folds a sum to 16 bits.
fn folded(sum: u32) -> u32 {
    let once = (sum >> 16) + (sum & 0xffff);
    (once >> 16) + (once & 0xffff)
}

impl<S: Space> Run<'_, S> {
    pub(super) fn xdp_adjust_head(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_adjust_head", args[0])?;
        Ok(if self.memory.adjust_head(args[1] as i32) { 0 } else { INVALID })
    }

    pub(super) fn xdp_adjust_tail(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_adjust_tail", args[0])?;
        Ok(if self.memory.adjust_tail(args[1] as i32) { 0 } else { INVALID })
    }

    pub(super) fn xdp_adjust_meta(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_adjust_meta", args[0])?;
        Ok(self.memory.adjust_meta(args[1] as i32) as u64)
    }

    pub(super) fn xdp_get_buff_len(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_get_buff_len", args[0])?;
        Ok(self.memory.packet().len() as u64)
    }

    /// A range of the packet, or the kernel's error.
    fn span(&self, offset: u32, len: u32) -> Result<std::ops::Range<usize>, u64> {
        if offset > MAX_SPAN || len > MAX_SPAN {
            return Err(BAD_ADDRESS);
        }
        let span = offset as usize..(offset + len) as usize;
        if span.end <= self.memory.packet().len() { Ok(span) } else { Err(INVALID) }
    }

    pub(super) fn xdp_load_bytes(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_load_bytes", args[0])?;
        let len = length("xdp_load_bytes", 4, args[3])?;
        let found = self.span(args[1] as u32, len as u32);
        let bytes = found.map(|span| self.memory.packet()[span].to_vec());
        Ok(match bytes {
            Ok(bytes) => {
                self.memory.write_any(args[2], len)?.copy_from_slice(&bytes);
                0
            }
            // The bytes stay as they were, initialised or not.
            Err(error) => {
                self.memory.may_fill(args[2], len)?;
                error
            }
        })
    }

    pub(super) fn xdp_store_bytes(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_store_bytes", args[0])?;
        let len = length("xdp_store_bytes", 4, args[3])?;
        let bytes = self.memory.read(args[2], len)?.to_vec();
        Ok(match self.span(args[1] as u32, len as u32) {
            Ok(span) => {
                self.memory.packet_mut()[span].copy_from_slice(&bytes);
                0
            }
            Err(error) => error,
        })
    }

    /// As `bpf_csum_diff` in Linux 6.18: of any lengths, folded to 16 bits [Linux net/core/filter.c].
    pub(super) fn csum_diff(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let [from, from_len, to, to_len, seed] = args;
        let (from_len, to_len) = (length("csum_diff", 2, from_len)?, length("csum_diff", 4, to_len)?);
        let bytes = |address, len| -> Result<Vec<u8>, Fault> {
            if len == 0 { Ok(Vec::new()) } else { self.memory.read(address, len).map(<[u8]>::to_vec) }
        };
        let (from, to) = (bytes(from, from_len)?, bytes(to, to_len)?);
        let seed = seed as u32;
        let difference = match (from_len, to_len) {
            (0, 0) => seed,
            (0, _) => sum(&to, seed),
            (_, 0) => !sum(&from, !seed),
            _ => carried(u64::from(sum(&to, seed)) + u64::from(!sum(&from, 0))),
        };
        Ok(folded(difference).into())
    }

    pub(super) fn fl_parse(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("fl_parse", args[0])?;
        let answer = Question::decode(args[1]).map(|question| {
            let layers = Layers::parse(self.headers, self.memory.packet());
            layers.answer(question)
        });
        Ok(answer.unwrap_or(0).into())
    }

    fn send(&mut self, helper: &'static str, port: u64, bytes: Vec<u8>) -> Result<u64, Fault> {
        self.sent_bytes += bytes.len().max(MIN_SENT_BYTES);
        if self.sent_bytes > MAX_SENT_BYTES {
            return Err(Fault::Sent { helper, limit: MAX_SENT_BYTES });
        }
        self.outputs.push(Output { port: Port(port as u32), bytes });
        Ok(0)
    }

    pub(super) fn fl_clone(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("fl_clone", args[0])?;
        self.send("fl_clone", args[1], self.memory.packet().to_vec())
    }

    pub(super) fn fl_emit(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("fl_emit", args[0])?;
        let len = usize::try_from(args[3]).unwrap_or(usize::MAX).min(MAX_EMITTED_BYTES);
        if len as u64 != args[3] {
            return Ok(INVALID);
        }
        let bytes = self.memory.read(args[2], len)?.to_vec();
        self.send("fl_emit", args[1], bytes)
    }

    pub(super) fn redirect(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        if args[1] != 0 {
            return Ok(Verdict::Aborted.number().into());
        }
        self.redirect = Some(Redirect::To(Port(args[0] as u32)));
        Ok(Verdict::Redirect.number().into())
    }

    /// As `__bpf_xdp_redirect_map` [Linux include/linux/filter.h].
    pub(super) fn redirect_map(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map_of("redirect_map", args[0], "a map of devices, CPUs or sockets", MapKind::is_redirect)?;
        let kind = self.memory.maps()[map].def().kind;
        let (key, flags) = (args[1] as u32, args[2]);
        let known = match kind {
            MapKind::Cpumap | MapKind::Xskmap => 0,
            _ => BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS,
        };
        if flags & !(ACTION_MASK | known) != 0 {
            return Ok(Verdict::Aborted.number().into());
        }
        if flags & BPF_F_BROADCAST != 0 {
            self.redirect = Some(Redirect::All { map, but_ingress: flags & BPF_F_EXCLUDE_INGRESS != 0 });
            return Ok(Verdict::Redirect.number().into());
        }
        let table = &mut self.memory.maps_mut()[map];
        let value = table.lookup(&key.to_le_bytes(), 0).and_then(|cell| table.value(cell.into()));
        let first = value.and_then(|value| Some(u32::from_le_bytes(*value.first_chunk()?)));
        // An absent key also cancels an earlier redirect: the last call counts.
        self.redirect = match kind {
            MapKind::Cpumap => first.map(|_| Redirect::To(Port::of_cpu(key))),
            MapKind::Xskmap => first.map(|_| Redirect::To(Port::of_socket(key))),
            _ => first.map(|port| Redirect::To(Port(port))),
        };
        match self.redirect {
            Some(_) => Ok(Verdict::Redirect.number().into()),
            None => Ok(flags & ACTION_MASK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_carry_around() {
        assert_eq!(sum(&[], 0), 0);
        assert_eq!(sum(&[255; 8], 0), 0xffff_ffff);
        assert_eq!(sum(&[1, 2, 3, 4, 5, 6], 0), 0x0403_0201 + 0x0605);
        assert_eq!(sum(&[1, 0, 0, 0], 0xffff_ffff), 1);
        assert_eq!((folded(0), folded(0xffff_ffff), folded(0x1_0000), folded(0xffff_0001)), (0, 0xffff, 1, 1));
    }
}
