//! Makes a program's environment visible: what it takes from the kernel, it takes from a record that we write; where it
//! redirects to, it logs there.
//!
//! Goal: BPF_PROG_TEST_RUN does not say where `redirect` goes, has its own clock, random numbers and processor, and gives
//! every packet the same `ingress_ifindex`. After rewriting, all of these are in one map entry that the engine writes
//! before a packet and reads after it, so that the kernel can be asked for exactly the run that another engine made.
//!
//! ```text
//!   before                          after
//!   call ktime_get_ns               r0 = .data.fl_record[0] ll
//!                                   r0 = *(u64 *)(r0 + 0)
//!   r6 = *(u32 *)(r1 + 12)          r6 = .data.fl_record[0] ll        where r1 is the context
//!                                   r6 = *(u32 *)(r6 + 8)
//!   call redirect_map               r0 = r3; r0 &= 3                  where r1 is a devmap of N entries
//!                                   if w2 >= N goto +5
//!                                   r3 = .data.fl_record[0] ll
//!                                   *(u32 *)(r3 + 52) = r2
//!                                   *(u32 *)(r3 + 56) = 1
//!                                   r0 = 4
//! ```
//!
//! Steps: find the context and the maps by dataflow ([`flow`]), choose a replacement for each call and load concerned,
//! lay the new program out, relocate jumps, calls of local functions, callbacks and source lines.
//!
//! What holds before: nothing; what is no verified program is either refused here or left to the verifier as it is.
//! What holds after: calls change r0-r5 alone, loads their destination alone; all else is as it was. A replaced call
//! leaves r1-r5 readable, which a real one does not, so judge the program before it is rewritten.
//!
//! Limits: jumps that no longer fit their offset are refused, as is a load that may or may not be from the context.
//!
//! # Source
//! [semantics 1].

mod flow;
mod record;

use flowloom_bpf::insn::{SRC_REG, alu, call, class, helper, imm64, jmp, mode, size};
use flowloom_bpf::{Insn, LineInfo, MapKind, Program};

use flow::{Flow, Value, access_bytes};
pub use record::{RECORD_BYTES, RECORD_MAP, Record};

/// Offset of `ingress_ifindex` in `struct xdp_md`.
const INGRESS_IFINDEX: i64 = 12;
/// XDP_REDIRECT.
const REDIRECT: i32 = 4;

/// A program that cannot be rewritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// A jump or call leaves the program.
    #[error("instruction {insn} jumps to {target}, the program has {slots} slots")]
    JumpOutside {
        /// The jump.
        insn: usize,
        /// Where it goes.
        target: i64,
        /// Length of the program.
        slots: usize,
    },
    /// A jump would no longer fit.
    #[error("instruction {insn} would have to jump {distance} slots, its offset holds {limit}")]
    JumpTooFar {
        /// The jump, by its index before rewriting.
        insn: usize,
        /// The distance it would need.
        distance: i64,
        /// The largest distance it can hold.
        limit: i64,
    },
    /// A load that may be one of `ingress_ifindex`.
    #[error("instruction {insn} may read `ingress_ifindex`, but `r{register}` is not the context on all paths")]
    PerhapsContext {
        /// The load.
        insn: usize,
        /// The register with the address.
        register: u8,
    },
    /// A load of a part of `ingress_ifindex`.
    #[error("instruction {insn} reads `ingress_ifindex` with {found} bytes at offset {offset}, expected 4 at 12")]
    PartOfIngress {
        /// The load.
        insn: usize,
        /// Its length.
        found: i64,
        /// Its offset in the context.
        offset: i64,
    },
    /// A redirect through a map that is not known.
    #[error("instruction {insn} calls `redirect_map` with a map that is not the same on all paths")]
    UnknownDevmap {
        /// The call.
        insn: usize,
    },
    /// A redirect through a map that holds no ports.
    #[error("instruction {insn} calls `redirect_map` with map `{map}`, which is no devmap")]
    NotDevmap {
        /// The call.
        insn: usize,
        /// The map.
        map: String,
    },
    /// The program has a map of the name that the record needs.
    #[error("the program has a map `{RECORD_MAP}` of its own")]
    NameTaken,
}

impl RewriteError {
    /// The instruction it is about, where it is about one.
    pub fn insn(&self) -> Option<usize> {
        match *self {
            RewriteError::JumpOutside { insn, .. }
            | RewriteError::JumpTooFar { insn, .. }
            | RewriteError::PerhapsContext { insn, .. }
            | RewriteError::PartOfIngress { insn, .. }
            | RewriteError::UnknownDevmap { insn }
            | RewriteError::NotDevmap { insn, .. } => Some(insn),
            RewriteError::NameTaken => None,
        }
    }
}

/// A rewritten program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The program.
    pub program: Program,
    /// Index of the record's map; `None` where the program needed no rewriting and is as it was.
    pub record_map: Option<usize>,
    /// For each slot of the new program, the slot of the old one that it stands for.
    pub origin: Vec<usize>,
}

/// Where the jump, call or function address at `at` leads.
///
/// # Errors
/// It leads out of the program.
fn jump_target(at: usize, insn: Insn, slots: usize) -> Result<usize, RewriteError> {
    let target = (at as i64).saturating_add(1).saturating_add(distance(insn));
    usize::try_from(target).ok().filter(|t| *t < slots).ok_or(RewriteError::JumpOutside { insn: at, target, slots })
}

/// How far a jump, call or function address leads from the slot behind it.
fn distance(insn: Insn) -> i64 {
    if far(insn) { i64::from(insn.imm) } else { i64::from(insn.off) }
}

/// Whether the distance is in the 32-bit immediate.
fn far(insn: Insn) -> bool {
    insn.is_wide() || insn.op() == jmp::CALL || insn.code == class::JMP32 | jmp::JA
}

/// Whether the instruction carries a distance.
fn relocatable(insn: Insn) -> bool {
    match insn.class() {
        class::LD => insn.is_wide() && insn.src == imm64::FUNC,
        class::JMP => match insn.op() {
            jmp::EXIT => false,
            jmp::CALL => insn.src == call::LOCAL,
            _ => true,
        },
        class::JMP32 => true,
        _ => false,
    }
}

/// Rewrites `program`.
///
/// # Errors
/// The program cannot be rewritten; the error names the instruction.
///
/// # Cost
/// Linear in the program for straight code; about 1.2 kB of memory an instruction.
pub fn rewrite(program: &Program) -> Result<Rewritten, RewriteError> {
    if program.map_index(RECORD_MAP).is_some() {
        return Err(RewriteError::NameTaken);
    }
    let insns = &program.insns;
    let flow = Flow::of(insns)?;
    let record = program.maps.len();

    let mut replacements: Vec<Option<Vec<Insn>>> = vec![None; insns.len()];
    let mut at = 0;
    while at < insns.len() {
        if flow.reached(at) {
            replacements[at] = replacement(program, &flow, at, record)?;
        }
        at += insns[at].slots();
    }
    let origin_of_all = || (0..insns.len()).collect();
    if replacements.iter().all(Option::is_none) {
        return Ok(Rewritten { program: program.clone(), record_map: None, origin: origin_of_all() });
    }

    // Where each old slot begins in the new program; one more for the end.
    let mut moved = Vec::with_capacity(insns.len() + 1);
    let mut length = 0;
    for replacement in &replacements {
        moved.push(length);
        length += replacement.as_ref().map_or(1, Vec::len);
    }
    moved.push(length);

    let mut out = Vec::with_capacity(length);
    let mut origin = Vec::with_capacity(length);
    let mut second_slot = false;
    for (at, replacement) in replacements.into_iter().enumerate() {
        let insn = insns[at];
        match replacement {
            Some(code) => out.extend(code),
            None if !second_slot && relocatable(insn) => out.push(relocated(at, insn, &moved)?),
            None => out.push(insn),
        }
        origin.resize(out.len(), at);
        second_slot = !second_slot && insn.is_wide();
    }

    let lines =
        program.lines.iter().map(|line| LineInfo { insn: moved[line.insn.min(insns.len())], ..line.clone() }).collect();
    let mut maps = program.maps.clone();
    maps.push(record::map());
    let program = Program { insns: out, maps, lines, ..program.clone() };
    Ok(Rewritten { program, record_map: Some(record), origin })
}

fn relocated(at: usize, insn: Insn, moved: &[usize]) -> Result<Insn, RewriteError> {
    let target = jump_target(at, insn, moved.len() - 1)?;
    let distance = moved[target] as i64 - moved[at] as i64 - 1;
    let too_far = |limit: i64| RewriteError::JumpTooFar { insn: at, distance, limit };
    if far(insn) {
        let imm = i32::try_from(distance).map_err(|_| too_far(i32::MAX.into()))?;
        Ok(Insn { imm, ..insn })
    } else {
        let off = i16::try_from(distance).map_err(|_| too_far(i16::MAX.into()))?;
        Ok(Insn { off, ..insn })
    }
}

/// The code that takes the place of the instruction at `at`, where it needs any.
fn replacement(program: &Program, flow: &Flow, at: usize, record: usize) -> Result<Option<Vec<Insn>>, RewriteError> {
    let insn = program.insns[at];
    if insn.class() == class::LDX {
        return ingress(flow, at, insn, record);
    }
    if insn.class() != class::JMP || insn.op() != jmp::CALL || insn.src != call::HELPER {
        return Ok(None);
    }
    let mut code = Code::new(record);
    match insn.imm {
        helper::KTIME_GET_NS => code.record(0).load(size::DW, 0, 0, record::NOW),
        helper::GET_SMP_PROCESSOR_ID => code.record(0).load(size::W, 0, 0, record::CPU),
        helper::GET_PRANDOM_U32 => code
            .record(1)
            .load(size::W, 2, 1, record::RANDOM_INDEX)
            .reg(alu::MOV, 3, 2)
            .imm(alu::ADD, 2, 1)
            .store(1, record::RANDOM_INDEX, 2)
            .imm(alu::AND, 3, 7)
            .imm(alu::LSH, 3, 2)
            .reg(alu::ADD, 1, 3)
            .load(size::W, 0, 1, record::RANDOM),
        helper::REDIRECT => {
            code.imm(alu::MOV, 0, 0);
            code.unless(class::JMP | jmp::JNE, 2, 0).log_redirect(1)
        }
        helper::REDIRECT_MAP => {
            let ports = devmap_entries(program, flow.before(at, 1), at)?;
            code.reg(alu::MOV, 0, 3).imm(alu::AND, 0, 3);
            // The bits of the size, as the 32-bit comparison reads them.
            code.unless(class::JMP32 | jmp::JGE, 2, ports as i32).log_redirect(2)
        }
        _ => return Ok(None),
    };
    Ok(Some(code.insns))
}

fn devmap_entries(program: &Program, value: Value, at: usize) -> Result<u32, RewriteError> {
    let Value::Map(index) = value else { return Err(RewriteError::UnknownDevmap { insn: at }) };
    let map = program.maps.get(index).ok_or(RewriteError::UnknownDevmap { insn: at })?;
    if map.kind != MapKind::Devmap {
        return Err(RewriteError::NotDevmap { insn: at, map: map.name.clone() });
    }
    Ok(map.max_entries)
}

fn ingress(flow: &Flow, at: usize, insn: Insn, record: usize) -> Result<Option<Vec<Insn>>, RewriteError> {
    let bytes = access_bytes(insn);
    let touches = |offset: i64| offset < INGRESS_IFINDEX + 4 && offset + bytes > INGRESS_IFINDEX;
    match flow.before(at, insn.src) {
        Value::Context(base) => {
            let offset = base.saturating_add(i64::from(insn.off));
            if offset == INGRESS_IFINDEX && insn.code == class::LDX | mode::MEM | size::W {
                let mut code = Code::new(record);
                code.record(insn.dst).load(size::W, insn.dst, insn.dst, record::INGRESS_PORT);
                return Ok(Some(code.insns));
            }
            if touches(offset) {
                return Err(RewriteError::PartOfIngress { insn: at, found: bytes, offset });
            }
            Ok(None)
        }
        // Verifiers let a changed context be read nowhere, so its offset is that of the load.
        Value::Mixed if touches(i64::from(insn.off)) => {
            Err(RewriteError::PerhapsContext { insn: at, register: insn.src })
        }
        _ => Ok(None),
    }
}

/// A piece of code in the making.
struct Code {
    insns: Vec<Insn>,
    record: usize,
}

impl Code {
    /// Slots that [`Code::log_redirect`] takes.
    const LOG_SLOTS: i16 = 5;

    fn new(record: usize) -> Code {
        Code { insns: Vec::new(), record }
    }

    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> &mut Code {
        self.insns.push(Insn { code, dst, src, off, imm });
        self
    }

    /// dst = address of the record
    fn record(&mut self, dst: u8) -> &mut Code {
        let map = self.record as i32;
        self.push(class::LD | mode::IMM | size::DW, dst, imm64::MAP_VALUE, 0, map).push(0, 0, 0, 0, 0)
    }

    fn load(&mut self, bytes: u8, dst: u8, src: u8, off: i16) -> &mut Code {
        self.push(class::LDX | mode::MEM | bytes, dst, src, off, 0)
    }

    /// *(u32 *)(dst + off) = src
    fn store(&mut self, dst: u8, off: i16, src: u8) -> &mut Code {
        self.push(class::STX | mode::MEM | size::W, dst, src, off, 0)
    }

    fn reg(&mut self, op: u8, dst: u8, src: u8) -> &mut Code {
        self.push(class::ALU64 | op | SRC_REG, dst, src, 0, 0)
    }

    fn imm(&mut self, op: u8, dst: u8, imm: i32) -> &mut Code {
        self.push(class::ALU64 | op, dst, 0, 0, imm)
    }

    /// if the comparison holds, jump over the logging that follows
    fn unless(&mut self, code: u8, dst: u8, imm: i32) -> &mut Code {
        self.push(code, dst, 0, Code::LOG_SLOTS, imm)
    }

    /// Logs the port in `port` (not r3) and returns REDIRECT.
    fn log_redirect(&mut self, port: u8) -> &mut Code {
        self.record(3).store(3, record::REDIRECT_PORT, port);
        self.push(class::ST | mode::MEM | size::W, 3, 0, record::REDIRECT_SET, 1).imm(alu::MOV, 0, REDIRECT)
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
