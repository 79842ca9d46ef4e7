//! What helpers do: a table from number to function.

use flowloom_engine::{Choices, Output, Port, RANDOM_WORDS, Verdict};

use super::fault::{Access, Fault};
use super::memory::{CONTEXT_ADDRESS, Memory, map_at, value_address};
use super::trail::Trail;
use crate::helpers::{EVICT_HIGHEST, EVICT_SIGNED, HELPERS, HelperInfo};
use crate::insn::helper;
use crate::map_kind::MapKind;

/// Bits of `redirect_map`'s flags that are the verdict for an absent key.
const ACTION_MASK: u64 = 3;
/// `redirect_map`: to all ports of the map.
const BPF_F_BROADCAST: u64 = 1 << 3;
/// `redirect_map` to all ports: but not to the one the packet came from.
const BPF_F_EXCLUDE_INGRESS: u64 = 1 << 4;

/// -EINVAL
const INVALID: u64 = -22i64 as u64;
/// The longest packet that `fl_emit` takes.
const MOST_EMITTED_BYTES: usize = 4096;

/// Where a redirect goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redirect {
    /// To one port.
    To(Port),
    /// To every bound port of a devmap.
    All { map: usize, but_ingress: bool },
}

/// What helpers see of a run.
pub(super) struct Run<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) choices: &'a Choices,
    /// How many random words have been drawn.
    pub(super) drawn: usize,
    pub(super) redirect: Option<Redirect>,
    /// What has left besides the packet, be the ports bound or not.
    pub(super) outputs: Vec<Output>,
    /// Room for a key and a value that a helper copies, kept between calls.
    pub(super) scratch: &'a mut (Vec<u8>, Vec<u8>),
    /// Where decisions are written down, if anywhere.
    pub(super) trail: Option<&'a mut Trail>,
}

/// A helper that can be called.
#[derive(Clone, Copy)]
pub(super) struct Helper {
    pub(super) info: HelperInfo,
    /// Takes `r1` to `r5`, of which those beyond `info.args` mean nothing.
    pub(super) run: fn(&mut Run<'_>, [u64; 5]) -> Result<u64, Fault>,
}

/// The helper with this number.
pub(super) fn find(number: i32) -> Option<Helper> {
    let info = *HELPERS.iter().find(|h| h.number == number)?;
    let run: fn(&mut Run<'_>, [u64; 5]) -> Result<u64, Fault> = match number {
        helper::MAP_LOOKUP_ELEM => |run, args| run.map_lookup_elem(args),
        helper::MAP_UPDATE_ELEM => |run, args| run.map_update_elem(args),
        helper::MAP_DELETE_ELEM => |run, args| run.map_delete_elem(args),
        helper::KTIME_GET_NS => |run, _| Ok(run.choices.now_ns),
        helper::GET_PRANDOM_U32 => |run, args| run.get_prandom_u32(args),
        helper::GET_SMP_PROCESSOR_ID => |run, _| Ok(run.choices.cpu.into()),
        helper::REDIRECT => |run, args| run.redirect(args),
        helper::REDIRECT_MAP => |run, args| run.redirect_map(args),
        helper::XDP_ADJUST_HEAD => |run, args| run.xdp_adjust_head(args),
        helper::FL_CLONE => |run, args| run.fl_clone(args),
        helper::FL_EMIT => |run, args| run.fl_emit(args),
        helper::FL_EVICT => |run, args| run.fl_evict(args),
        _ => return None,
    };
    Some(Helper { info, run })
}

impl Run<'_> {
    /// The map whose address is the first argument.
    fn map(&self, helper: &'static str, found: u64) -> Result<usize, Fault> {
        let index = map_at(found).filter(|index| *index < self.memory.maps.len());
        index.ok_or(Fault::NoMap { helper, found })
    }

    /// Only redirects may be asked of a devmap, and looking into it.
    fn no_devmap(&self, helper: &'static str, map: usize) -> Result<(), Fault> {
        let map = &self.memory.maps[map];
        let fits = map.def().kind != MapKind::Devmap;
        let expected = "a hash or an array";
        if fits { Ok(()) } else { Err(Fault::MapKind { helper, map: map.def().name.clone(), expected }) }
    }

    fn may_change(&self, map: usize) -> Result<(), Fault> {
        let map = &self.memory.maps[map];
        let (access, name) = (Access::Write, &map.def().name);
        if map.is_writable() { Ok(()) } else { Err(Fault::ReadOnly { access, map: name.clone() }) }
    }

    /// The first argument must be the context.
    fn context(&self, helper: &'static str, found: u64) -> Result<(), Fault> {
        if found == CONTEXT_ADDRESS { Ok(()) } else { Err(Fault::NoContext { helper, found }) }
    }

    fn map_lookup_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map("map_lookup_elem", args[0])?;
        let table = &self.memory.maps[map];
        let def = table.def();
        let key = self.memory.read(args[1], def.key_bytes as usize)?;
        let slot = table.lookup(key);
        if let Some(trail) = &mut self.trail {
            trail.lookup(map, key, slot.is_some());
        }
        Ok(slot.map_or(0, |slot| value_address(map, def.value_bytes, slot, 0)))
    }

    fn map_update_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map("map_update_elem", args[0])?;
        self.no_devmap("map_update_elem", map)?;
        let def = self.memory.maps[map].def();
        let (key_bytes, value_bytes) = (def.key_bytes as usize, def.value_bytes as usize);
        let (key, value) = &mut *self.scratch;
        key.clear();
        value.clear();
        key.extend_from_slice(self.memory.read(args[1], key_bytes)?);
        value.extend_from_slice(self.memory.read(args[2], value_bytes)?);
        self.may_change(map)?;
        let (key, value) = &*self.scratch;
        Ok(self.memory.maps[map].update(key, value, args[3]) as u64)
    }

    fn map_delete_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map("map_delete_elem", args[0])?;
        self.no_devmap("map_delete_elem", map)?;
        let key_bytes = self.memory.maps[map].def().key_bytes as usize;
        let (key, _) = &mut *self.scratch;
        key.clear();
        key.extend_from_slice(self.memory.read(args[1], key_bytes)?);
        self.may_change(map)?;
        Ok(self.memory.maps[map].delete(&self.scratch.0) as u64)
    }

    fn get_prandom_u32(&mut self, _: [u64; 5]) -> Result<u64, Fault> {
        let word = self.choices.random[self.drawn % RANDOM_WORDS];
        self.drawn += 1;
        Ok(word.into())
    }

    fn xdp_adjust_head(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("xdp_adjust_head", args[0])?;
        Ok(if self.memory.adjust_head(args[1] as i32) { 0 } else { INVALID })
    }

    fn fl_clone(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("fl_clone", args[0])?;
        self.outputs.push(Output { port: Port(args[1] as u32), bytes: self.memory.packet().to_vec() });
        Ok(0)
    }

    fn fl_emit(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("fl_emit", args[0])?;
        let len = usize::try_from(args[3]).unwrap_or(usize::MAX).min(MOST_EMITTED_BYTES);
        if len as u64 != args[3] {
            return Ok(INVALID);
        }
        let bytes = self.memory.read(args[2], len)?.to_vec();
        self.outputs.push(Output { port: Port(args[1] as u32), bytes });
        Ok(0)
    }

    fn fl_evict(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map("fl_evict", args[0])?;
        let def = self.memory.maps[map].def();
        if def.kind != MapKind::Hash {
            let (map, expected) = (def.name.clone(), "a hash");
            return Err(Fault::MapKind { helper: "fl_evict", map, expected });
        }
        self.may_change(map)?;
        let (offset, size) = (args[1], args[2] & !(EVICT_SIGNED | EVICT_HIGHEST));
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= def.value_bytes.into());
        if !matches!(size, 1 | 2 | 4 | 8) || !is_inside {
            return Ok(INVALID);
        }
        let field = offset as usize..(offset + size) as usize;
        let (signed, highest) = (args[2] & EVICT_SIGNED != 0, args[2] & EVICT_HIGHEST != 0);
        Ok(self.memory.maps[map].evict(field, signed, highest) as u64)
    }

    fn redirect(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        if args[1] != 0 {
            return Ok(Verdict::Aborted.number().into());
        }
        self.redirect = Some(Redirect::To(Port(args[0] as u32)));
        Ok(Verdict::Redirect.number().into())
    }

    /// As `__bpf_xdp_redirect_map` does it [Linux include/linux/filter.h].
    fn redirect_map(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map("redirect_map", args[0])?;
        let def = self.memory.maps[map].def();
        if def.kind != MapKind::Devmap {
            let map = def.name.clone();
            return Err(Fault::MapKind { helper: "redirect_map", map, expected: "a devmap" });
        }
        let (key, flags) = (args[1] as u32, args[2]);
        if flags & !(ACTION_MASK | BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS) != 0 {
            return Ok(Verdict::Aborted.number().into());
        }
        let to_all = flags & BPF_F_BROADCAST != 0;
        self.redirect = match to_all {
            true => Some(Redirect::All { map, but_ingress: flags & BPF_F_EXCLUDE_INGRESS != 0 }),
            // An absent key also forgets an earlier redirect: the last call counts.
            false => (key < def.max_entries).then_some(Redirect::To(Port(key))),
        };
        match self.redirect {
            Some(_) => Ok(Verdict::Redirect.number().into()),
            None => Ok(flags & ACTION_MASK),
        }
    }
}
