// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacements of calls: code that reads or writes the record.
//!
//! Each piece only changes r0 to r5, as the call that it replaces; if the call itself remains, its arguments are
//! unchanged. If arguments are constants, the piece has no branch on them: the kernel removes dead code place by place
//! and moves the rest of the program each time.

use flowloom_isa::insn::{SRC_REG, alu, call, class, helper, imm64, jmp, mode, size};
use flowloom_isa::{Insn, MapDef, MapKind, Program};

use super::error::RewriteError;
use super::flow::{Flow, Maps, Value};
use super::plan::{
    DELETIONS_LOGGED, EVENT_BYTES, EVENTS_LOGGED, LOGGED_DELETION, LOGGED_INSERTION, Plan, Shadow, TABLE_ENTRY_BYTES,
    TABLE_PRESENT,
};
use super::{FIRST_INDEX, record};

/// XDP_REDIRECT.
const REDIRECT: i32 = 4;
/// `map_update_elem`: only if there is no entry.
const BPF_NOEXIST: i32 = 1;
const STACK_BYTES: i64 = flowloom_isa::limits::STACK_BYTES as i64;
/// The size of `struct bpf_fib_lookup` in bytes.
const FIB_BYTES: i32 = 64;
/// The offset of the interface in it.
const FIB_INTERFACE: i16 = 8;
/// `redirect_map`: the bits of the flags that are the verdict for an absent key.
const ACTION_MASK: i32 = 3;
/// `redirect_map`: to all ports of the map.
const BPF_F_BROADCAST: i32 = 1 << 3;
/// `redirect_map` to all ports: except the ingress port; the bit number.
const EXCLUDE_INGRESS_BIT: i32 = 4;

/// The replacement of the call at `at`, if it needs one.
pub(super) fn replaced(
    program: &Program,
    flow: &Flow,
    at: usize,
    plan: &Plan,
) -> Result<Option<Vec<Insn>>, RewriteError> {
    let insn = program.insns[at];
    if insn.class() != class::JMP || insn.op() != jmp::CALL || insn.src != call::HELPER {
        return Ok(None);
    }
    let site = Site { program, flow, plan, at };
    let mut code = Code::new(plan.record);
    match insn.imm {
        helper::KTIME_GET_NS | helper::KTIME_GET_BOOT_NS | helper::KTIME_GET_COARSE_NS | helper::KTIME_GET_TAI_NS => {
            code.record(0).load(size::DW, 0, 0, record::NOW);
        }
        helper::JIFFIES64 => {
            code.record(0).load(size::DW, 0, 0, record::JIFFIES);
        }
        helper::GET_SMP_PROCESSOR_ID => {
            code.record(0).load(size::W, 0, 0, record::CPU);
        }
        helper::GET_NUMA_NODE_ID => {
            code.imm(alu::MOV, 0, 0);
        }
        helper::GET_PRANDOM_U32 => {
            code.record(1)
                .load(size::W, 2, 1, record::RANDOM_INDEX)
                .reg(alu::MOV, 3, 2)
                .imm(alu::ADD, 2, 1)
                .store(1, record::RANDOM_INDEX, 2)
                .imm(alu::AND, 3, 7)
                .imm(alu::LSH, 3, 2)
                .reg(alu::ADD, 1, 3)
                .load(size::W, 0, 1, record::RANDOM);
        }
        helper::REDIRECT => {
            code.imm(alu::MOV, 0, 0);
            let has_flags = site.constant(2).map(|flags| flags != 0);
            code.unless(has_flags, (class::JMP | jmp::JNE, 2, 0), |code| {
                code.record(3).log_redirect(3, 1);
            });
        }
        helper::REDIRECT_MAP => {
            let maps = site.maps(1, "redirect_map", |map| map.kind.is_redirect())?;
            let maps = maps.ok_or(RewriteError::UnknownDevmap { insn: at, helper: "redirect_map" })?;
            code.by_map(1, &maps, |code, index| redirect_map(code, &site, index))?;
        }
        helper::MAP_LOOKUP_ELEM => {
            let Some(maps) = site.maps(1, "map_lookup_elem", |map| map.kind.is_redirect())? else { return Ok(None) };
            if maps.iter().all(|index| !plan.shadows.contains_key(index)) {
                return Ok(None);
            }
            code.by_map(1, &maps, |code, index| {
                match plan.shadows.get(&index) {
                    None => drop(code.push_insn(insn)),
                    Some(Shadow::Hash(shadow)) => drop(code.map(1, *shadow).call(helper::MAP_LOOKUP_ELEM)),
                    Some(Shadow::Table(offset)) => lookup_table(code, program.maps[index].max_entries, *offset),
                }
                Ok(())
            })?;
        }
        helper::MAP_UPDATE_ELEM => {
            let Some(log) = plan.deletions.filter(|_| site.may_evict(1)) else { return Ok(None) };
            log_update(&mut code, &site, log, insn);
        }
        helper::MAP_DELETE_ELEM => {
            let Some(log) = plan.deletions.filter(|_| site.may_evict(1)) else { return Ok(None) };
            match site.key() {
                Some(key) => log_key(&mut code, key, log, LOGGED_DELETION),
                // The map and its key size are unknown: counted as an overflow of the log.
                None => drop(code.record(0).count(0, 5, record::DELETIONS, DELETIONS_LOGGED as i32 + 1)),
            }
            code.push_insn(insn);
        }
        helper::FIB_LOOKUP => {
            // Below the program's own stack, since the caller's registers are not available.
            let slot = (flow.stack_depth(&program.insns) & !7) - 8;
            if slot < -STACK_BYTES {
                return Err(RewriteError::FullStack { insn: at });
            }
            let (slot, index) = (slot as i16, FIB_INTERFACE);
            let with_index = |code: &mut Code| {
                code.store_long(10, slot, 2).load(size::W, 0, 2, index).imm(alu::ADD, 0, FIRST_INDEX as i32);
                code.store(2, index, 0).push_insn(insn);
                code.load(size::DW, 1, 10, slot).load(size::W, 2, 1, index).imm(alu::SUB, 2, FIRST_INDEX as i32);
                code.store(1, index, 2);
            };
            // The kernel reads nothing from a truncated structure.
            match site.constant(3) {
                Some(bytes) if bytes as i32 >= FIB_BYTES => with_index(&mut code),
                Some(_) => {}
                None => {
                    code.skip(class::JMP32 | jmp::JSLT, 3, FIB_BYTES, Code::measure(with_index) + 1);
                    with_index(&mut code);
                    code.skip(class::JMP | jmp::JA, 0, 0, 1);
                }
            }
            if site.constant(3).is_none_or(|bytes| (bytes as i32) < FIB_BYTES) {
                code.push_insn(insn);
            }
        }
        helper::CHECK_MTU => {
            // No interface equals the ingress interface.
            code.zero_extend(2).skip(class::JMP | jmp::JNE, 2, 0, 3).record(2).load(
                size::W,
                2,
                2,
                record::INGRESS_PORT,
            );
            code.imm(alu::ADD, 2, FIRST_INDEX as i32).push_insn(insn);
        }
        helper::PERF_EVENT_OUTPUT => {
            let Some(events) = plan.events else { return Ok(None) };
            let maps = site.maps(2, "perf_event_output", |map| map.kind == MapKind::PerfEventArray)?;
            let maps = maps.ok_or(RewriteError::UnknownDevmap { insn: at, helper: "perf_event_output" })?;
            code.by_map(2, &maps, |code, index| {
                log_event(code, events, index, insn);
                Ok(())
            })?;
        }
        _ => return Ok(None),
    }
    Ok(Some(code.insns))
}

/// The key that a call is given.
#[derive(Debug, Clone, Copy)]
struct Key {
    index: usize,
    key_bytes: u32,
    /// The alignment that its address is known to have, at most 8.
    align_bytes: u32,
}

/// A call, and the values known there.
struct Site<'a> {
    program: &'a Program,
    flow: &'a Flow,
    plan: &'a Plan,
    at: usize,
}

impl Site<'_> {
    /// The maps that `register` may hold; `None` if none of them is `wanted`.
    ///
    /// # Errors
    /// It may hold one of them, or a map that no instruction refers to.
    fn maps(
        &self,
        register: u8,
        helper: &'static str,
        wanted: impl Fn(&MapDef) -> bool,
    ) -> Result<Option<Vec<usize>>, RewriteError> {
        let maps = &self.program.maps;
        let (some, is_named) = match self.flow.before(self.at, register) {
            Value::Maps(some) => ((0..maps.len()).filter(|index| some.may_be(*index)).collect(), some.is_exact()),
            // No instruction refers to it: a map from a map of maps.
            Value::Other | Value::Constant(_) => (Vec::new(), false),
            _ => ((0..maps.len()).collect::<Vec<_>>(), false),
        };
        match some.iter().any(|index| wanted(&maps[*index])) {
            true if is_named => Ok(Some(some)),
            true => Err(RewriteError::UnknownDevmap { insn: self.at, helper }),
            // Verifiers refuse maps that do not fit the helper; the first one appears in the message.
            false => Ok(Some(some).filter(|some| is_named && some.len() == 1)),
        }
    }

    /// The key in r2 of the map in r1, if that is known.
    fn key(&self) -> Option<Key> {
        let Value::Maps(Maps::One(index)) = self.flow.before(self.at, 1) else { return None };
        let align_bytes = match self.flow.before(self.at, 2) {
            // Accesses to the stack must be aligned; keys of 32-bit fields are aligned to 4 bytes.
            Value::Stack(Some(offset)) => 1 << offset.trailing_zeros().min(3),
            // In a packet or in a map value: any access will do.
            Value::Other => 8,
            _ => 1,
        };
        self.program.maps.get(index).map(|map| Key { index, key_bytes: map.key_bytes, align_bytes })
    }

    /// The number in `register`, if it is a constant on all paths.
    fn constant(&self, register: u8) -> Option<u64> {
        match self.flow.before(self.at, register) {
            Value::Constant(number) => Some(number),
            _ => None,
        }
    }

    /// True if the map in `register` may be an LRU table.
    fn may_evict(&self, register: u8) -> bool {
        match self.flow.before(self.at, register) {
            Value::Maps(Maps::One(index)) => self.program.maps.get(index).is_some_and(|map| map.kind.is_lru()),
            Value::Maps(some) => {
                let mut maps = self.program.maps.iter().enumerate();
                maps.any(|(index, map)| map.kind.is_lru() && some.may_be(index)) || some.may_be_unreferenced()
            }
            _ => true,
        }
    }
}

/// `redirect_map(r1 = the map at index, r2 = key, r3 = flags)`, as `__bpf_xdp_redirect_map`, on the map's shadow.
fn redirect_map(code: &mut Code, site: &Site<'_>, index: usize) -> Result<(), RewriteError> {
    let not_devmap = |name: &str| RewriteError::NotDevmap { insn: site.at, map: name.to_owned() };
    let map = &site.program.maps[index];
    let shadow = *site.plan.shadows.get(&index).ok_or_else(|| not_devmap(&map.name))?;
    let may_broadcast = matches!(map.kind, MapKind::Devmap | MapKind::DevmapHash);
    let to_key = if map.kind == MapKind::Xskmap { record::SET_SOCKET } else { record::SET_CPU };
    let known = if may_broadcast { ACTION_MASK | BPF_F_BROADCAST | 1 << EXCLUDE_INGRESS_BIT } else { ACTION_MASK };
    let (key, flags) = (site.constant(2).map(|key| key as u32), site.constant(3));
    // An absent key also cancels an earlier redirect: the last call counts.
    let forget = |code: &mut Code| {
        code.store_imm(5, record::REDIRECT_SET, 0);
    };
    let to_one = |code: &mut Code| match shadow {
        Shadow::Table(offset) => {
            forget(code);
            let found = |code: &mut Code| {
                if may_broadcast {
                    code.load(size::W, 2, 4, 0).log_redirect(5, 2);
                } else {
                    code.store(5, record::REDIRECT_PORT, 2);
                    code.store_imm(5, record::REDIRECT_SET, to_key).imm(alu::MOV, 0, REDIRECT);
                }
            };
            let inside = |code: &mut Code| {
                match key {
                    Some(key) => code.record_at(4, offset + key * TABLE_ENTRY_BYTES),
                    None => code.table_entry(4, 2, offset),
                };
                code.load(size::W, 1, 4, TABLE_PRESENT).skip_over((class::JMP | jmp::JEQ, 1, 0), found);
            };
            if key.is_none() {
                code.zero_extend(2);
            }
            // The bits of the size, as the 32-bit comparison reads them.
            let is_outside = key.map(|key| key >= map.max_entries);
            code.unless(is_outside, (class::JMP32 | jmp::JGE, 2, map.max_entries as i32), inside);
        }
        Shadow::Hash(shadow) => {
            forget(code);
            code.store(5, record::KEY, 2).store_long(5, record::SAVED, 3).map(1, shadow);
            code.reg(alu::MOV, 2, 5).imm(alu::ADD, 2, i32::from(record::KEY)).call(helper::MAP_LOOKUP_ELEM);
            code.record(5).skip_over((class::JMP | jmp::JEQ, 0, 0), |code| {
                code.load(size::W, 2, 0, 0).log_redirect(5, 2).skip(class::JMP | jmp::JA, 0, 0, 2);
            });
            code.load(size::DW, 0, 5, record::SAVED).imm(alu::AND, 0, ACTION_MASK);
        }
    };
    let to_all = |code: &mut Code| {
        code.store_imm(5, record::REDIRECT_PORT, index as i32)
            .imm(alu::RSH, 3, EXCLUDE_INGRESS_BIT)
            .imm(alu::AND, 3, 1)
            .imm(alu::ADD, 3, record::SET_ALL)
            .store(5, record::REDIRECT_SET, 3)
            .imm(alu::MOV, 0, REDIRECT);
    };
    let is_to_all = if may_broadcast { flags.map(|flags| flags as i32 & BPF_F_BROADCAST != 0) } else { Some(false) };
    let valid = |code: &mut Code| {
        code.reg(alu::MOV, 0, 3).imm(alu::AND, 0, ACTION_MASK).record(5);
        match is_to_all {
            Some(true) => to_all(code),
            Some(false) => to_one(code),
            None => {
                code.reg(alu::MOV, 4, 3).imm(alu::AND, 4, BPF_F_BROADCAST);
                code.skip(class::JMP | jmp::JEQ, 4, 0, Code::measure(to_all) + 1);
                to_all(code);
                code.skip(class::JMP | jmp::JA, 0, 0, Code::measure(to_one));
                to_one(code);
            }
        }
    };
    code.imm(alu::MOV, 0, 0);
    if flags.is_none() {
        code.reg(alu::MOV, 4, 3).imm(alu::AND, 4, !known);
    }
    let is_unknown = flags.map(|flags| flags & i64::from(!known) as u64 != 0);
    code.unless(is_unknown, (class::JMP | jmp::JNE, 4, 0), valid);
    Ok(())
}

/// `map_lookup_elem(r1 = a device map, r2 = address of the key)` in its table.
fn lookup_table(code: &mut Code, max_entries: u32, offset: u32) {
    code.imm(alu::MOV, 0, 0).load(size::W, 2, 2, 0);
    code.skip_over((class::JMP32 | jmp::JGE, 2, max_entries as i32), |code| {
        code.table_entry(4, 2, offset).load(size::W, 1, 4, TABLE_PRESENT);
        code.skip(class::JMP | jmp::JEQ, 1, 0, 1).reg(alu::MOV, 0, 4);
    });
}

/// Logs the key in r2 of the map with this index and key size, with the pending operation; only changes r0 and r5.
fn log_key(code: &mut Code, key: Key, (log, entry_bytes): (u32, u32), what: u32) {
    let Key { index, key_bytes, align_bytes } = key;
    code.record(0).load(size::W, 5, 0, record::DELETIONS);
    code.skip_over((class::JMP | jmp::JGE, 5, DELETIONS_LOGGED as i32), |code| {
        code.imm(alu::MUL, 5, entry_bytes as i32).record_at(0, log).reg(alu::ADD, 0, 5);
        code.store_imm(0, 0, index as i32).store_imm(0, 4, what as i32);
        let mut done = 0;
        while done < key_bytes {
            let (bytes, length) = match (key_bytes - done).min(align_bytes) {
                8.. => (size::DW, 8),
                4..8 => (size::W, 4),
                2..4 => (size::H, 2),
                _ => (size::B, 1),
            };
            code.load(bytes, 5, 2, done as i16);
            code.push(class::STX | mode::MEM | bytes, 0, 5, 8 + done as i16, 0);
            done += length;
        }
    });
    code.record(0).count(0, 5, record::DELETIONS, 1);
}

/// Counts an update of an LRU table. If it succeeds although an entry with its key must not exist, the key is logged:
/// an existing entry has been evicted by this very call.
fn log_update(code: &mut Code, site: &Site<'_>, log: (u32, u32), call: Insn) {
    code.record(0).count(0, 5, record::UPDATES, 1);
    let Some(key) = site.key() else {
        code.push_insn(call);
        return;
    };
    let to_new = |code: &mut Code| {
        log_key(code, key, log, LOGGED_INSERTION);
        code.store_imm(0, record::SAVED, 1);
    };
    code.store_imm(0, record::SAVED, 0);
    let may_exist = site.constant(4).map(|flags| flags != BPF_NOEXIST as u64);
    code.unless(may_exist, (class::JMP | jmp::JNE, 4, BPF_NOEXIST), to_new);
    code.push_insn(call);
    code.skip_over((class::JMP | jmp::JEQ, 0, 0), |code| {
        code.record(1).load(size::W, 2, 1, record::SAVED).load(size::W, 3, 1, record::DELETIONS);
        code.reg(alu::SUB, 3, 2).store(1, record::DELETIONS, 3);
    });
}

/// Logs the length of the pending event, and takes it back if the call fails: the kernel's buffer holds padded lengths.
/// r1 to r5 are the call's; r3, the flags, is not an address and is saved in the record.
fn log_event(code: &mut Code, log: u32, index: usize, call: Insn) {
    code.record(0).store_long(0, record::SAVED, 3).load(size::W, 3, 0, record::EVENTS);
    code.skip_over((class::JMP | jmp::JGE, 3, EVENTS_LOGGED as i32), |code| {
        code.imm(alu::MUL, 3, EVENT_BYTES as i32).record_at(0, log).reg(alu::ADD, 0, 3);
        code.store(0, 0, 5).store_imm(0, 4, index as i32);
        code.record(3).load(size::DW, 3, 3, record::SAVED).store_long(0, 8, 3);
    });
    code.record(0).count(0, 3, record::EVENTS, 1).load(size::DW, 3, 0, record::SAVED).push_insn(call);
    code.skip_over((class::JMP | jmp::JEQ, 0, 0), |code| {
        code.record(1).count(1, 2, record::EVENTS, -1);
    });
}

/// A builder of code: its methods return itself; the result is in `insns`.
pub(super) struct Code {
    pub(super) insns: Vec<Insn>,
    record: usize,
}

impl Code {
    pub(super) fn new(record: usize) -> Code {
        Code { insns: Vec::new(), record }
    }

    pub(super) fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> &mut Code {
        self.push_insn(Insn { code, dst, src, off, imm })
    }

    fn push_insn(&mut self, insn: Insn) -> &mut Code {
        self.insns.push(insn);
        self
    }

    /// dst = address of the record
    pub(super) fn record(&mut self, dst: u8) -> &mut Code {
        self.record_at(dst, 0)
    }

    /// dst = address of the record, plus an offset
    fn record_at(&mut self, dst: u8, offset: u32) -> &mut Code {
        let map = self.record as i32;
        self.push(class::LD | mode::IMM | size::DW, dst, imm64::MAP_VALUE, 0, map).push(0, 0, 0, 0, offset as i32)
    }

    /// dst = the map with this index
    fn map(&mut self, dst: u8, index: usize) -> &mut Code {
        self.push(class::LD | mode::IMM | size::DW, dst, imm64::MAP, 0, index as i32).push(0, 0, 0, 0, 0)
    }

    /// dst = address of the entry, in the table at `offset` of the record, with the number in `index`; changes that
    fn table_entry(&mut self, dst: u8, index: u8, offset: u32) -> &mut Code {
        let shift = TABLE_ENTRY_BYTES.trailing_zeros() as i32;
        self.record_at(dst, offset);
        self.push(class::ALU64 | alu::MOV | SRC_REG, 1, index, 0, 0).imm(alu::LSH, 1, shift).reg(alu::ADD, dst, 1)
    }

    /// Selects the code of `each` by the map in `register`, one of `maps`; changes r0 before it.
    fn by_map(
        &mut self,
        register: u8,
        maps: &[usize],
        each: impl Fn(&mut Code, usize) -> Result<(), RewriteError>,
    ) -> Result<(), RewriteError> {
        let piece = |index: usize| -> Result<Vec<Insn>, RewriteError> {
            let mut code = Code::new(self.record);
            each(&mut code, index)?;
            Ok(code.insns)
        };
        let Some((last, others)) = maps.split_last() else { return Ok(()) };
        let mut all = piece(*last)?;
        for index in others.iter().rev() {
            let one = piece(*index)?;
            let mut code = Code::new(self.record);
            code.map(0, *index).push(class::JMP | jmp::JNE | SRC_REG, register, 0, one.len() as i16 + 1, 0);
            code.insns.extend(one);
            code.skip(class::JMP | jmp::JA, 0, 0, all.len() as i16);
            code.insns.extend(all);
            all = code.insns;
        }
        self.insns.extend(all);
        Ok(())
    }

    pub(super) fn load(&mut self, bytes: u8, dst: u8, src: u8, off: i16) -> &mut Code {
        self.push(class::LDX | mode::MEM | bytes, dst, src, off, 0)
    }

    /// *(u32 *)(dst + off) = src
    fn store(&mut self, dst: u8, off: i16, src: u8) -> &mut Code {
        self.push(class::STX | mode::MEM | size::W, dst, src, off, 0)
    }

    /// *(u64 *)(dst + off) = src
    fn store_long(&mut self, dst: u8, off: i16, src: u8) -> &mut Code {
        self.push(class::STX | mode::MEM | size::DW, dst, src, off, 0)
    }

    pub(super) fn reg(&mut self, op: u8, dst: u8, src: u8) -> &mut Code {
        self.push(class::ALU64 | op | SRC_REG, dst, src, 0, 0)
    }

    pub(super) fn imm(&mut self, op: u8, dst: u8, imm: i32) -> &mut Code {
        self.push(class::ALU64 | op, dst, 0, 0, imm)
    }

    /// The upper half of dst = 0
    fn zero_extend(&mut self, dst: u8) -> &mut Code {
        self.push(class::ALU | alu::MOV | SRC_REG, dst, dst, 0, 0)
    }

    /// *(u32 *)(dst + off) = imm
    fn store_imm(&mut self, dst: u8, off: i16, imm: i32) -> &mut Code {
        self.push(class::ST | mode::MEM | size::W, dst, 0, off, imm)
    }

    /// *(u32 *)(base + off) += amount, through `scratch`
    fn count(&mut self, base: u8, scratch: u8, off: i16, amount: i32) -> &mut Code {
        self.load(size::W, scratch, base, off).imm(alu::ADD, scratch, amount).store(base, off, scratch)
    }

    fn call(&mut self, number: i32) -> &mut Code {
        self.push(class::JMP | jmp::CALL, 0, call::HELPER, 0, number)
    }

    /// if the comparison of dst with imm holds, jump over the next `slots`
    pub(super) fn skip(&mut self, code: u8, dst: u8, imm: i32, slots: i16) -> &mut Code {
        self.push(code, dst, 0, slots, imm)
    }

    /// A piece that is skipped by a jump with this code, register and immediate.
    fn skip_over(&mut self, (code, dst, imm): (u8, u8, i32), piece: impl Fn(&mut Code)) {
        self.skip(code, dst, imm, Code::measure(&piece));
        piece(self);
    }

    /// The same, without the jump if its direction is known.
    fn unless(&mut self, known: Option<bool>, jump: (u8, u8, i32), piece: impl Fn(&mut Code)) {
        match known {
            Some(true) => {}
            Some(false) => piece(self),
            None => self.skip_over(jump, piece),
        }
    }

    /// Logs the port in `port` to the record whose address is in `record`, and returns REDIRECT.
    fn log_redirect(&mut self, record: u8, port: u8) -> &mut Code {
        self.store(record, record::REDIRECT_PORT, port);
        self.store_imm(record, record::REDIRECT_SET, record::SET_PORT).imm(alu::MOV, 0, REDIRECT)
    }

    /// The length of a piece of code in slots.
    fn measure(piece: impl Fn(&mut Code)) -> i16 {
        let mut code = Code::new(0);
        piece(&mut code);
        code.insns.len() as i16
    }
}
