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
//!   call redirect                   r0 = 0
//!                                   if r2 != 0 goto +5
//!                                   r3 = .data.fl_record[0] ll
//!                                   *(u32 *)(r3 + 52) = r1
//!                                   *(u32 *)(r3 + 56) = 1
//!                                   r0 = 4
//! ```
//!
//! Steps: find the context and the maps by dataflow (`flow`), choose a replacement for each call and load concerned,
//! lay the new program out, relocate jumps, calls of local functions, callbacks and source lines.
//!
//! What holds before: nothing; what is no verified program is either refused here or left to the verifier as it is.
//! What holds after: calls change r0-r5 alone, loads their destination alone; all else is as it was. A replaced call
//! leaves r1-r5 readable, which a real one does not, so judge the program before it is rewritten.
//!
//! Limits: looking into a devmap is refused, because the kernel's would have to hold devices that exist; so are jumps
//! that no longer fit their offset, and a load that may or may not be from the context.
//!
//! # Source
//! [semantics 1].

mod bind;
mod flow;
mod record;

use flowloom_bpf::insn::{SRC_REG, alu, call, class, helper, imm64, jmp, mode, size};
use flowloom_bpf::{Insn, LineInfo, MapDef, MapKind, Program};

pub(crate) use bind::VERDICTS_BYTES;
pub use bind::{Bound, Fit, VERDICTS_MAP, bind};
use flow::{Flow, Value, access_bytes};
pub use record::{RECORD_BYTES, RECORD_MAP, Record, Redirect};

/// Offset of `ingress_ifindex` in `struct xdp_md`.
const INGRESS_IFINDEX: i64 = 12;
/// XDP_REDIRECT.
const REDIRECT: i32 = 4;
/// `redirect_map`: bits of the flags that are the verdict for an absent key.
const ACTION_MASK: i32 = 3;
/// `redirect_map`: to all ports of the map.
const BPF_F_BROADCAST: i32 = 1 << 3;
/// `redirect_map` to all ports: but for the one the packet came by; its bit number.
const EXCLUDE_INGRESS_BIT: i32 = 4;

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
    /// A redirect or a lookup through a map that is not known.
    #[error("instruction {insn} calls `{helper}` with a map that is not the same on all paths")]
    UnknownDevmap {
        /// The call.
        insn: usize,
        /// What it calls.
        helper: &'static str,
    },
    /// A lookup in a map that holds ports.
    #[error("instruction {insn} looks into devmap `{map}`, which the kernel fills with devices that exist only")]
    DevmapLookup {
        /// The call.
        insn: usize,
        /// The map.
        map: String,
    },
    /// A redirect through a map that holds no ports.
    #[error("instruction {insn} calls `redirect_map` with map `{map}`, which is no devmap")]
    NotDevmap {
        /// The call.
        insn: usize,
        /// The map.
        map: String,
    },
    /// A redirect to an interface by its index.
    #[error(
        "instruction {insn} calls `redirect`, which wants the index of an interface; ports are bound in devmaps only"
    )]
    RedirectByIndex {
        /// The call.
        insn: usize,
    },
    /// The program has a map of the name that one of ours needs.
    #[error("the program has a map `{map}` of its own")]
    NameTaken {
        /// The name.
        map: &'static str,
    },
}

impl RewriteError {
    /// The instruction it is about, where it is about one.
    pub fn insn(&self) -> Option<usize> {
        match *self {
            RewriteError::JumpOutside { insn, .. }
            | RewriteError::JumpTooFar { insn, .. }
            | RewriteError::PerhapsContext { insn, .. }
            | RewriteError::PartOfIngress { insn, .. }
            | RewriteError::UnknownDevmap { insn, .. }
            | RewriteError::DevmapLookup { insn, .. }
            | RewriteError::NotDevmap { insn, .. }
            | RewriteError::RedirectByIndex { insn } => Some(insn),
            RewriteError::NameTaken { .. } => None,
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
        return Err(RewriteError::NameTaken { map: RECORD_MAP });
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
    if replacements.iter().all(Option::is_none) {
        let origin = (0..insns.len()).collect();
        return Ok(Rewritten { program: program.clone(), record_map: None, origin });
    }
    let (mut program, origin) = spliced(program, replacements)?;
    program.maps.push(record::map());
    Ok(Rewritten { program, record_map: Some(record), origin })
}

/// The program with other code in the place of some of its instructions; for each slot of it, the slot of the old one that
/// it stands for. Jumps, calls, callbacks and lines move along.
fn spliced(program: &Program, replacements: Vec<Option<Vec<Insn>>>) -> Result<(Program, Vec<usize>), RewriteError> {
    let insns = &program.insns;
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
    Ok((Program { insns: out, lines, ..program.clone() }, origin))
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
            code.skip(class::JMP | jmp::JNE, 2, 0, Code::LOG_SLOTS).record(3).log_redirect(3, 1)
        }
        helper::REDIRECT_MAP => {
            let Value::Map(index) = flow.before(at, 1) else {
                return Err(RewriteError::UnknownDevmap { insn: at, helper: "redirect_map" });
            };
            redirect_map(&mut code, program, index, at)?
        }
        helper::MAP_LOOKUP_ELEM => {
            let devmap = |map: &&MapDef| map.kind == MapKind::Devmap;
            let found = match flow.before(at, 1) {
                Value::Map(index) => program.maps.get(index).filter(devmap),
                _ if program.maps.iter().any(|map| devmap(&map)) => {
                    return Err(RewriteError::UnknownDevmap { insn: at, helper: "map_lookup_elem" });
                }
                _ => None,
            };
            match found {
                Some(map) => return Err(RewriteError::DevmapLookup { insn: at, map: map.name.clone() }),
                None => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(std::mem::take(&mut code.insns)))
}

/// `redirect_map(r1 = the devmap at index, r2 = key, r3 = flags)`, as `__bpf_xdp_redirect_map` does it, on a devmap in which
/// every entry is its own number.
fn redirect_map<'a>(
    code: &'a mut Code,
    program: &Program,
    index: usize,
    at: usize,
) -> Result<&'a mut Code, RewriteError> {
    let map = program.maps.get(index).ok_or(RewriteError::UnknownDevmap { insn: at, helper: "redirect_map" })?;
    if map.kind != MapKind::Devmap {
        return Err(RewriteError::NotDevmap { insn: at, map: map.name.clone() });
    }
    let known = ACTION_MASK | BPF_F_BROADCAST | 1 << EXCLUDE_INGRESS_BIT;
    let to_one = |code: &mut Code| {
        // An absent key also forgets an earlier redirect: the last call counts.
        code.store_imm(5, record::REDIRECT_SET, 0)
            // The bits of the size, as the 32-bit comparison reads them.
            .skip(class::JMP32 | jmp::JGE, 2, map.max_entries as i32, Code::LOG_SLOTS - 2)
            .log_redirect(5, 2);
    };
    let one = Code::measure(to_one);
    let to_all = |code: &mut Code| {
        code.store_imm(5, record::REDIRECT_PORT, index as i32)
            .imm(alu::RSH, 3, EXCLUDE_INGRESS_BIT)
            .imm(alu::AND, 3, 1)
            .imm(alu::ADD, 3, record::SET_ALL)
            .store(5, record::REDIRECT_SET, 3)
            .imm(alu::MOV, 0, REDIRECT)
            .skip(class::JMP | jmp::JA, 0, 0, one);
    };
    let valid = |code: &mut Code| {
        code.reg(alu::MOV, 0, 3).imm(alu::AND, 0, ACTION_MASK).record(5).reg(alu::MOV, 4, 3);
        code.imm(alu::AND, 4, BPF_F_BROADCAST).skip(class::JMP | jmp::JEQ, 4, 0, Code::measure(to_all));
        to_all(code);
        to_one(code);
    };
    code.imm(alu::MOV, 0, 0).reg(alu::MOV, 4, 3).imm(alu::AND, 4, !known);
    code.skip(class::JMP | jmp::JNE, 4, 0, Code::measure(valid));
    valid(code);
    Ok(code)
}

fn ingress(flow: &Flow, at: usize, insn: Insn, record: usize) -> Result<Option<Vec<Insn>>, RewriteError> {
    let mut code = Code::new(record);
    Ok(reads_ingress(flow, at, insn)?.then(|| {
        code.record(insn.dst).load(size::W, insn.dst, insn.dst, record::INGRESS_PORT);
        code.insns
    }))
}

/// Whether the load at `at` is one of `ingress_ifindex`.
fn reads_ingress(flow: &Flow, at: usize, insn: Insn) -> Result<bool, RewriteError> {
    let bytes = access_bytes(insn);
    let touches = |offset: i64| offset < INGRESS_IFINDEX + 4 && offset + bytes > INGRESS_IFINDEX;
    match flow.before(at, insn.src) {
        Value::Context(base) => {
            let offset = base.saturating_add(i64::from(insn.off));
            if offset == INGRESS_IFINDEX && insn.code == class::LDX | mode::MEM | size::W {
                return Ok(true);
            }
            if touches(offset) {
                return Err(RewriteError::PartOfIngress { insn: at, found: bytes, offset });
            }
            Ok(false)
        }
        // Verifiers let a changed context be read nowhere, so its offset is that of the load.
        Value::Mixed if touches(i64::from(insn.off)) => {
            Err(RewriteError::PerhapsContext { insn: at, register: insn.src })
        }
        _ => Ok(false),
    }
}

/// A piece of code in the making. Builders return themselves; what they build is in `insns`.
struct Code {
    insns: Vec<Insn>,
    record: usize,
}

impl Code {
    /// Slots that an address of the record and [`Code::log_redirect`] take.
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

    /// *(u32 *)(dst + off) = imm
    fn store_imm(&mut self, dst: u8, off: i16, imm: i32) -> &mut Code {
        self.push(class::ST | mode::MEM | size::W, dst, 0, off, imm)
    }

    /// if the comparison of dst with imm holds, jump over the next `slots`
    fn skip(&mut self, code: u8, dst: u8, imm: i32, slots: i16) -> &mut Code {
        self.push(code, dst, 0, slots, imm)
    }

    /// Logs the port in `port` to the record whose address is in `record`, and returns REDIRECT.
    fn log_redirect(&mut self, record: u8, port: u8) -> &mut Code {
        self.store(record, record::REDIRECT_PORT, port);
        self.store_imm(record, record::REDIRECT_SET, record::SET_PORT).imm(alu::MOV, 0, REDIRECT)
    }

    /// How many slots a piece of code takes.
    fn measure(piece: impl Fn(&mut Code)) -> i16 {
        let mut code = Code::new(0);
        piece(&mut code);
        code.insns.len() as i16
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::print_stderr)]
mod tests;
