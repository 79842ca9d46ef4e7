// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The implementation of helpers: a table from number to function.
//!
//! | here | helpers |
//! | --- | --- |
//! | this file | maps, time, random numbers, locks |
//! | `packet` | the packet's bounds and bytes, checksums, redirects |
//! | `records` | records for user space |
//! | `text` | strings and numbers |
//! | `format` | format strings |
//! | `fib` | routes |
//!
//! `tail_call`, `loop` and `for_each_map_elem` change the control flow; they are in [`super::run`].

mod fib;
mod format;
mod packet;
mod records;
mod text;

use flowloom_engine::{Choices, Event, Output, Port, Ports, RANDOM_WORDS, Verdict};

use super::environment::{Destination, destination, ports_of};

use super::fault::{Access, Fault};
use super::maps::{MAX_PAGED_BYTES, Rank};
use super::memory::{CONTEXT_ADDRESS, map_address, map_at};
use super::observer::Observer;
use super::space::Space;
use super::trail::Trail;
use crate::fib::Table;
use flowloom_isa::helpers::{EVICT_HIGHEST, EVICT_SIGNED, by_number};
use flowloom_isa::insn::helper;
use flowloom_isa::{MapDef, MapKind};
use flowloom_wire::Graph;
pub use packet::Redirect;

/// -EINVAL
const INVALID: u64 = -22i64 as u64;
/// -EFAULT
const BAD_ADDRESS: u64 = -14i64 as u64;
/// -ENOSPC
const NO_SPACE: u64 = -28i64 as u64;
/// -E2BIG
const TOO_BIG: u64 = -7i64 as u64;
/// The unit of `jiffies64` in nanoseconds, at 250 Hz.
const JIFFY_NS: u64 = 4_000_000;

/// The state of a run that helpers access.
pub struct Run<'a, S> {
    /// The memory.
    pub memory: &'a mut S,
    /// The choices for the packet.
    pub choices: Choices,
    /// The ports.
    pub ports: &'a Ports,
    /// The definitions of the maps.
    pub(super) maps: &'a [MapDef],
    pub(super) routes: Option<&'a Table>,
    /// The headers that the program knows.
    pub(super) headers: &'a Graph,
    /// The random words drawn so far.
    pub(super) drawn: usize,
    /// The last redirect.
    pub redirect: Option<Redirect>,
    /// The outputs besides the packet, whether their ports are bound or not.
    pub outputs: Vec<Output>,
    pub(super) sent_bytes: usize,
    /// The map whose lock is held.
    pub(super) locked: Option<usize>,
    /// Buffers for a key and a value that a helper copies, reused between calls.
    pub(super) scratch: &'a mut (Vec<u8>, Vec<u8>),
    pub(super) trail: Option<&'a mut Trail>,
    pub(super) observer: Option<&'a mut dyn Observer>,
}

/// Takes `r1` to `r5`; those beyond the arguments of a helper are 0 if they are uninitialised.
type Function<S> = fn(&mut Run<'_, S>, [u64; 5]) -> Result<u64, Fault>;

pub struct Helper<S> {
    /// The number of argument registers that it reads.
    pub(super) args: usize,
    pub(super) run: Function<S>,
}

impl<S> Helper<S> {
    /// Calls it with `r1` to `r5`.
    ///
    /// # Errors
    /// A fault, which no verified program meets, besides those of limits on memory.
    pub fn call(&self, run: &mut Run<'_, S>, arguments: [u64; 5]) -> Result<u64, Fault> {
        (self.run)(run, arguments)
    }
}

/// The helper with this number, except those that change the control flow.
pub fn find<S: Space>(number: i32) -> Option<Helper<S>> {
    let args = by_number(number)?.parameters.len();
    let run: Function<S> = match number {
        helper::MAP_LOOKUP_ELEM => |run, args| run.map_lookup_elem(args),
        helper::MAP_LOOKUP_PERCPU_ELEM => |run, args| run.map_lookup_percpu_elem(args),
        helper::MAP_UPDATE_ELEM => |run, args| run.map_update_elem(args),
        helper::MAP_DELETE_ELEM => |run, args| run.map_delete_elem(args),
        helper::KTIME_GET_NS | helper::KTIME_GET_BOOT_NS | helper::KTIME_GET_COARSE_NS | helper::KTIME_GET_TAI_NS => {
            |run, _| Ok(run.choices.now_ns)
        }
        helper::JIFFIES64 => |run, _| Ok(run.choices.now_ns / JIFFY_NS),
        helper::GET_PRANDOM_U32 => |run, args| run.get_prandom_u32(args),
        helper::GET_SMP_PROCESSOR_ID => |run, _| Ok(run.choices.cpu.into()),
        helper::GET_NUMA_NODE_ID => |_, _| Ok(0),
        helper::SPIN_LOCK => |run, args| run.spin_lock(args),
        helper::SPIN_UNLOCK => |run, args| run.spin_unlock(args),
        helper::REDIRECT => |run, args| run.redirect(args),
        helper::REDIRECT_MAP => |run, args| run.redirect_map(args),
        helper::XDP_ADJUST_HEAD => |run, args| run.xdp_adjust_head(args),
        helper::XDP_ADJUST_META => |run, args| run.xdp_adjust_meta(args),
        helper::XDP_ADJUST_TAIL => |run, args| run.xdp_adjust_tail(args),
        helper::XDP_GET_BUFF_LEN => |run, args| run.xdp_get_buff_len(args),
        helper::XDP_LOAD_BYTES => |run, args| run.xdp_load_bytes(args),
        helper::XDP_STORE_BYTES => |run, args| run.xdp_store_bytes(args),
        helper::CSUM_DIFF => |run, args| run.csum_diff(args),
        helper::CHECK_MTU => |run, args| run.check_mtu(args),
        helper::FIB_LOOKUP => |run, args| run.fib_lookup(args),
        helper::PERF_EVENT_OUTPUT => |run, args| run.perf_event_output(args),
        helper::RINGBUF_OUTPUT => |run, args| run.ringbuf_output(args),
        helper::RINGBUF_RESERVE => |run, args| run.ringbuf_reserve(args),
        helper::RINGBUF_SUBMIT => |run, args| run.ringbuf_release("ringbuf_submit", args, true),
        helper::RINGBUF_DISCARD => |run, args| run.ringbuf_release("ringbuf_discard", args, false),
        helper::RINGBUF_QUERY => |run, args| run.ringbuf_query(args),
        helper::STRTOL => |run, args| run.strtol(args),
        helper::STRTOUL => |run, args| run.strtoul(args),
        helper::STRNCMP => |run, args| run.strncmp(args),
        helper::SNPRINTF => |run, args| run.snprintf(args),
        helper::TRACE_PRINTK => |run, args| run.trace_printk(args),
        helper::TRACE_VPRINTK => |run, args| run.trace_vprintk(args),
        helper::PROBE_READ_KERNEL => |run, args| run.probe_read_kernel(args),
        helper::PROBE_READ_KERNEL_STR => |run, args| run.probe_read_kernel_str(args),
        helper::FL_CLONE => |run, args| run.fl_clone(args),
        helper::FL_EMIT => |run, args| run.fl_emit(args),
        helper::FL_EVICT => |run, args| run.fl_evict(args),
        helper::FL_PARSE => |run, args| run.fl_parse(args),
        _ => return None,
    };
    Some(Helper { args, run })
}

/// A length argument: bounded as in the kernel's verifier, so that an excessive one is a fault and not an allocation.
fn length(helper: &'static str, argument: usize, found: u64) -> Result<usize, Fault> {
    const MAX_LENGTH: u64 = 1 << 29;
    if found < MAX_LENGTH {
        return Ok(found as usize);
    }
    Err(Fault::Argument { helper, argument, found: found.to_string(), expected: "a length below 2^29" })
}

impl<S: Space> Run<'_, S> {
    /// Begins the run of another packet, after one that had no fault. The caller sets the packet and the choices.
    #[inline]
    pub fn reset(&mut self) {
        (self.drawn, self.sent_bytes) = (0, 0);
        (self.redirect, self.locked) = (None, None);
        self.outputs.clear();
        self.memory.end_run();
    }

    /// The records that have been written for user space since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        self.memory.rings_mut().drain(self.maps)
    }

    /// The verdict of the run on a packet from `ingress`, and where the packet goes.
    #[inline]
    pub fn destination(&self, ingress: Port, r0: u64) -> (Verdict, Destination) {
        destination(self.ports, ingress, r0, self.redirect)
    }

    /// The ports that a redirect to all ports of a map reaches, without `but`.
    pub fn ports_of(&self, map: usize, but: Option<Port>) -> Vec<Port> {
        ports_of(self.ports, &self.memory.maps()[map], but)
    }

    pub(super) fn map(&self, helper: &'static str, found: u64) -> Result<usize, Fault> {
        let index = map_at(found).filter(|index| *index < self.memory.maps().len());
        index.ok_or(Fault::NoMap { helper, found })
    }

    /// The map in an argument, of a suitable kind.
    pub(super) fn map_of(
        &self,
        helper: &'static str,
        found: u64,
        expected: &'static str,
        fits: fn(MapKind) -> bool,
    ) -> Result<usize, Fault> {
        let map = self.map(helper, found)?;
        let def = self.memory.maps()[map].def();
        if fits(def.kind) { Ok(map) } else { Err(Fault::MapKind { helper, map: def.name.clone(), expected }) }
    }

    fn may_change(&self, map: usize) -> Result<(), Fault> {
        let map = &self.memory.maps()[map];
        let (access, name) = (Access::Write, &map.def().name);
        if map.is_writable() { Ok(()) } else { Err(Fault::ReadOnly { access, map: name.clone() }) }
    }

    /// Checks that the first argument is the context.
    pub(super) fn context(&self, helper: &'static str, found: u64) -> Result<(), Fault> {
        if found == CONTEXT_ADDRESS { Ok(()) } else { Err(Fault::NoContext { helper, found }) }
    }

    fn map_lookup_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.look_up("map_lookup_elem", args, self.choices.cpu)
    }

    fn map_lookup_percpu_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.map_of("map_lookup_percpu_elem", args[0], "one with a value for each CPU", MapKind::is_per_cpu)?;
        self.look_up("map_lookup_percpu_elem", args, args[2] as u32)
    }

    fn look_up(&mut self, helper: &'static str, args: [u64; 5], cpu: u32) -> Result<u64, Fault> {
        let fits = |kind: MapKind| {
            let is_looked_up = matches!(kind, MapKind::Devmap | MapKind::DevmapHash | MapKind::Xskmap);
            kind.has_values() || kind.is_of_maps() || is_looked_up
        };
        let map = self.map_of(helper, args[0], "one with values, of maps, of devices or of sockets", fits)?;
        let def = self.memory.maps()[map].def();
        let key_bytes = def.key_bytes as usize;
        let is_of_maps = def.kind.is_of_maps();
        let (key, _) = &mut *self.scratch;
        key.clear();
        key.extend_from_slice(self.memory.read(args[1], key_bytes)?);
        let table = &mut self.memory.maps_mut()[map];
        let found = match is_of_maps {
            true => table.member(key).map(|inner| map_address(inner as usize)),
            false => table.lookup(key, cpu).map(|cell| self.memory.value_address(map, cell)),
        };
        if let Some(trail) = &mut self.trail {
            trail.lookup(map, key, found.is_some());
        }
        Ok(found.unwrap_or(0))
    }

    fn map_update_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map_of("map_update_elem", args[0], "one with values", MapKind::has_values)?;
        let def = self.memory.maps()[map].def();
        let (key_bytes, value_bytes) = (def.key_bytes as usize, def.value_bytes as usize);
        let (key, value) = &mut *self.scratch;
        key.clear();
        value.clear();
        key.extend_from_slice(self.memory.read(args[1], key_bytes)?);
        value.extend_from_slice(self.memory.read(args[2], value_bytes)?);
        self.may_change(map)?;
        let (key, value) = &*self.scratch;
        if let Some(trail) = &mut self.trail {
            trail.change(map, key);
        }
        let table = &self.memory.maps()[map];
        if !table.has_room_for(key, self.choices.cpu) {
            return Err(Fault::MapMemory { map: table.def().name.clone(), limit: MAX_PAGED_BYTES });
        }
        Ok(self.memory.maps_mut()[map].update(key, value, args[3], self.choices.cpu) as u64)
    }

    fn map_delete_elem(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map_of("map_delete_elem", args[0], "one with values", MapKind::has_values)?;
        let key_bytes = self.memory.maps()[map].def().key_bytes as usize;
        let (key, _) = &mut *self.scratch;
        key.clear();
        key.extend_from_slice(self.memory.read(args[1], key_bytes)?);
        self.may_change(map)?;
        if let Some(trail) = &mut self.trail {
            trail.change(map, &self.scratch.0);
        }
        Ok(self.memory.maps_mut()[map].delete(&self.scratch.0) as u64)
    }

    fn get_prandom_u32(&mut self, _: [u64; 5]) -> Result<u64, Fault> {
        let word = self.choices.random[self.drawn % RANDOM_WORDS];
        self.drawn += 1;
        Ok(word.into())
    }

    fn spin_lock(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.lock("spin_lock", args[0])?;
        self.locked = Some(map);
        Ok(0)
    }

    fn spin_unlock(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.lock("spin_unlock", args[0])?;
        if self.locked.take() != Some(map) {
            let map = self.memory.maps()[map].def().name.clone();
            return Err(Fault::Lock { map, what: "it is given up, but not held" });
        }
        Ok(0)
    }

    fn lock(&self, helper: &'static str, address: u64) -> Result<usize, Fault> {
        let found = || format!("0x{address:x}");
        let expected = "the `struct bpf_spin_lock` of a map's value";
        self.memory.lock_at(address).ok_or_else(|| Fault::Argument { helper, argument: 1, found: found(), expected })
    }

    fn fl_evict(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let map = self.map_of("fl_evict", args[0], "a hash", |kind| kind == MapKind::Hash)?;
        let value_bytes = self.memory.maps()[map].def().value_bytes;
        self.may_change(map)?;
        let (offset, size) = (args[1], args[2] & !(EVICT_SIGNED | EVICT_HIGHEST));
        let is_inside = offset.checked_add(size).is_some_and(|end| end <= value_bytes.into());
        if !matches!(size, 1 | 2 | 4 | 8) || !is_inside {
            return Ok(INVALID);
        }
        let field = offset as usize..(offset + size) as usize;
        let (is_signed, is_highest) = (args[2] & EVICT_SIGNED != 0, args[2] & EVICT_HIGHEST != 0);
        Ok(self.memory.maps_mut()[map].evict(&Rank { field, is_signed, is_highest }) as u64)
    }
}
