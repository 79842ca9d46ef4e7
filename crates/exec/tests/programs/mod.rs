// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs on the interpreter and in the kernel.

mod generator;
mod verifiers;

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, PORT_COUNT, Packet, Port, Ports, Verdict};
use flowloom_exec::{ExecError, KernelEngine};
use flowloom_isa::insn::{class, jmp};
use flowloom_isa::op::{AluOp, Cond, Op, Operand, Reg, Width};
use flowloom_isa::{Program, ProgramError, disasm};
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;
use verifiers::{VerifierResults, verifier_results};

/// Number of packets per program.
const PACKETS: u64 = 5;
/// Set when the test reruns itself without the privilege that lets programs leak addresses.
const WITHOUT_RIGHTS: &str = "FLOWLOOM_WITHOUT_PERFMON";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The kernel accepts most of them.
    Valid,
    /// Valid programs with a few mutations.
    Mutants,
}

/// Results for some programs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) programs: u64,
    /// Programs that the kernel accepted.
    pub(crate) accepted: u64,
    /// Programs that ran on both, with equal results for every packet.
    pub(crate) agreed: u64,
    pub(crate) packets: u64,
    /// Packets that the interpreter ran for programs that the kernel refused.
    pub(crate) interpreted: u64,
    pub(crate) verdicts: BTreeMap<String, u64>,
    /// Refusals of the kernel, by message without numbers.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Programs with an invalid instruction that is unreachable, which the kernel does not check; they were compared
    /// without it.
    pub(crate) unreached: u64,
    /// Programs that the kernel accepted but that are not compared, by reason.
    pub(crate) excluded: BTreeMap<&'static str, u64>,
    /// Instructions of programs that ran on both, by kind.
    pub(crate) instructions: BTreeMap<String, u64>,
    /// Combined results of our verifier and the kernel's, with the reasons for differences.
    pub(crate) verdicts_of_verifiers: BTreeMap<String, u64>,
    pub(crate) disagreements: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.programs += other.programs;
        self.accepted += other.accepted;
        self.agreed += other.agreed;
        self.packets += other.packets;
        self.interpreted += other.interpreted;
        self.unreached += other.unreached;
        let sum = |to: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>| {
            from.into_iter().for_each(|(what, count)| *to.entry(what).or_default() += count);
        };
        sum(&mut self.verdicts, other.verdicts);
        sum(&mut self.refused, other.refused);
        sum(&mut self.instructions, other.instructions);
        sum(&mut self.verdicts_of_verifiers, other.verdicts_of_verifiers);
        other.excluded.into_iter().for_each(|(what, count)| *self.excluded.entry(what).or_default() += count);
        self.disagreements.extend(other.disagreements);
    }

    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "{} programs: {} taken by the kernel, {} of them ran on both engines alike on {} packets\n",
            self.programs, self.accepted, self.agreed, self.packets
        );
        let mut line = |what: &str, counts: &mut dyn Iterator<Item = (String, u64)>| {
            let counts: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
            if !counts.is_empty() {
                text += &format!("{what}: {}\n", counts.join(", "));
            }
        };
        let wrong = [("wrong only in what is never reached".to_owned(), self.unreached)];
        line("among those taken", &mut wrong.into_iter().filter(|(_, count)| *count > 0));
        line("verdicts", &mut self.verdicts.clone().into_iter());
        line("taken and not compared", &mut self.excluded.iter().map(|(what, count)| ((*what).to_owned(), *count)));
        let mut refused: Vec<_> = self.refused.clone().into_iter().collect();
        refused.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        line("refused for", &mut refused.into_iter().take(8));
        line("instructions of what ran on both", &mut self.instructions.clone().into_iter());
        for (message, count) in &self.verdicts_of_verifiers {
            text += &format!("verifiers: {count:>6} {message}\n");
        }
        text
    }
}

pub(crate) fn run(kind: Kind, seed: u64, numbers: Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for number in numbers {
        let mut rng =
            Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 1 ^ u64::from(kind == Kind::Mutants));
        let program = match kind {
            Kind::Valid => generator::valid(&mut rng),
            Kind::Mutants => generator::mutant(&mut rng),
        };
        tally.programs += 1;
        compare(&program, &mut rng, &mut tally).unwrap_or_else(|what| {
            let text = disasm::disassemble(&program.insns, &program.maps).unwrap_or_else(|error| error.to_string());
            tally.disagreements.push(format!("{kind:?} {number} of seed {seed}: {what}\n{text}"));
        });
    }
    tally
}

/// Known deviation of the interpreter, if this is one.
fn known(words: &str, program: &Program) -> Option<&'static str> {
    let ops = |wanted: fn(&Op) -> bool| {
        (0..program.insns.len()).any(|at| Op::decode(&program.insns, at).is_ok_and(|op| wanted(&op)))
    };
    if words.contains("is not supported, expected") {
        Some("a helper that Flowloom does not run")
    } else if ["db is 256,", "db is 272,", "c3 is 256,", "c3 is 272,"]
        .iter()
        .any(|field| words.contains(&format!("imm of opcode 0x{field}")))
    {
        Some("loads that acquire and stores that release")
    } else if words.contains("off of opcode 0x95") {
        Some("an exit with an offset")
    } else if words.contains("of opcode 0x85 is") && words.contains("expected 0 (reserved)") {
        // The verifier refuses such a call where it is reachable; one to a function cannot be replaced, because the
        // function would become unreachable.
        Some("a call with a reserved field in what is never reached")
    } else if words.contains("was never written") {
        // A helper may read a slot of which only a part was written.
        Some("a read of a stack that was never written")
    } else if words.contains("instructions for one packet") && ops(|op| matches!(op, Op::MayGoto { .. })) {
        Some("a loop that only time ends")
    } else {
        None
    }
}

/// The verifier checks the fields of reachable instructions only; the interpreter checks all. Returns the program
/// without its invalid instructions if all of these are unreachable.
fn without_unreached(program: &Program, error: &ProgramError) -> Option<Program> {
    let with = |probe: bool| {
        let mut cleaned = program.clone();
        for finding in &error.findings {
            let at = finding.insn?;
            let insn = cleaned.insns[at];
            let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
            let is_branch = is_jump && !matches!(insn.op(), jmp::JA | jmp::CALL | jmp::EXIT | jmp::JCOND | 0xf0);
            let (width, dst, src) = (Width::W64, Reg::FP, Operand::Imm(0));
            let is_exit = is_jump && insn.op() == jmp::EXIT;
            let op = match (is_branch, probe) {
                // Ends a function; every verifier refuses a jump to itself where it is reachable.
                _ if is_exit && probe => Op::Jump { off: -1 },
                _ if is_exit => Op::Exit,
                // Every verifier refuses these where they are reachable: a comparison of an address, a write to r10.
                (true, true) => Op::Branch { width, cond: Cond::Sgt, dst, src, off: insn.off },
                (false, true) => Op::Alu { width, op: AluOp::Mov, dst, src },
                (true, false) => Op::Branch { width, cond: Cond::Eq, dst, src, off: insn.off },
                (false, false) => Op::Jump { off: 0 },
            };
            let mut one = Vec::new();
            op.encode(&mut one);
            cleaned.insns.iter_mut().skip(at).take(insn.slots()).for_each(|insn| *insn = one[0]);
        }
        Some(cleaned)
    };
    KernelEngine::load(&with(true)?).ok()?;
    with(false)
}

/// True if our verifier promises the absence of a fault: it treats uninitialized stack bytes as numbers, like the
/// kernel, and the instruction budget is the user's choice.
fn is_excluded_by_proof(fault: &str) -> bool {
    !fault.contains("was never written") && !fault.contains("instructions for one packet")
}

/// Runs one program; returns the difference, if any.
fn compare(program: &Program, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    let interp = Interpreter::new(Arc::new(program.clone()));
    let kernel = KernelEngine::load(program);
    let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(rng)).collect();
    let choices = |index| Choices { cpu: 9, ..Choices::seeded(7, 11, index) };
    let all = Ports::bound((0..PORT_COUNT).map(Port));
    let mut interp = match interp {
        // Uninitialized stack bytes depend on the kernel, so such programs are excluded.
        Ok(interp) => flowloom_proofcheck::checked(interp).with_budget(2_000_000).with_strict_stack(),
        Err(error) => {
            let words = error.to_string();
            if kernel.is_err() {
                *tally.refused.entry("both, before it runs".to_owned()).or_default() += 1;
                return Ok(());
            }
            tally.accepted += 1;
            if let Some(cleaned) = without_unreached(program, &error) {
                tally.unreached += 1;
                tally.accepted -= 1;
                return compare(&cleaned, rng, tally);
            }
            let reason =
                known(&words, program).ok_or(format!("the kernel takes it, the interpreter does not: {words}"))?;
            *tally.excluded.entry(reason).or_default() += 1;
            return Ok(());
        }
    };
    interp.bind_ports(&all);
    // Half of the programs start with map contents.
    let filled = rng.chance(1, 2).then(|| generator::state(rng));
    let fill = |engine: &mut dyn Datapath| match &filled {
        Some(state) => engine.restore(state).map_err(|error| format!("its maps cannot be filled: {error}")),
        None => Ok(()),
    };
    fill(&mut interp)?;
    let VerifierResults { is_verified: verified, message, unexplained } = verifier_results(program, &kernel);
    if let Some(what) = unexplained {
        return Err(what);
    }
    message.into_iter().for_each(|message| *tally.verdicts_of_verifiers.entry(message).or_default() += 1);
    let mut kernel = match kernel {
        Ok(kernel) => kernel,
        Err(error) => {
            *tally.refused.entry(reason(&error)).or_default() += 1;
            // Anything is allowed except a panic, or a fault whose absence our verifier promises.
            for (index, bytes) in (0..).zip(&packets) {
                tally.interpreted += 1;
                let packet = Packet { bytes, port: Port(index as u32 % 4) };
                let fault = interp.process(&packet, &choices(index)).err().map(|error| error.to_string());
                if let Some(fault) = fault.filter(|fault| verified && is_excluded_by_proof(fault)) {
                    return Err(format!("accepted by our verifier, packet {index}: {fault}"));
                }
            }
            return Ok(());
        }
    };
    kernel.bind_ports(&all);
    fill(&mut kernel)?;
    tally.accepted += 1;
    for (index, bytes) in (0..).zip(&packets) {
        let packet = Packet { bytes, port: Port(index as u32 % 4) };
        let expected = match interp.process(&packet, &choices(index)) {
            Ok(outcome) => outcome,
            Err(error) => {
                let words = error.to_string();
                if verified && is_excluded_by_proof(&words) {
                    return Err(format!("accepted by our verifier, packet {index}: {words}"));
                }
                let reason = known(&words, program).ok_or(format!("packet {index}: {words}"))?;
                *tally.excluded.entry(reason).or_default() += 1;
                return Ok(());
            }
        };
        let found = kernel.process(&packet, &choices(index)).map_err(|error| format!("packet {index}: {error}"))?;
        if found != expected {
            return Err(format!("packet {index}: the kernel has {found:02x?}, the interpreter {expected:02x?}"));
        }
        tally.packets += 1;
        let verdict: Verdict = found.verdict;
        *tally.verdicts.entry(verdict.to_string()).or_default() += 1;
        let states = [kernel.snapshot(), interp.snapshot()].map(|state| state.map_err(|error| error.to_string()));
        let [found, expected] = states;
        let (found, expected) = (found?, expected?);
        if found != expected {
            return Err(format!("after packet {index}: the kernel has {found:02x?}, the interpreter {expected:02x?}"));
        }
    }
    tally.agreed += 1;
    let mut at = 0;
    while let Ok(op) = Op::decode(&program.insns, at) {
        let name = format!("{op:?}");
        *tally.instructions.entry(name.split([' ', '{']).next().unwrap_or_default().to_owned()).or_default() += 1;
        at += op.slots();
    }
    Ok(())
}

fn packet(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.chance(1, 8) { 14 + rng.below(generator::PACKET_BYTES as usize - 14) } else { 40 + rng.below(60) };
    let mut bytes = rng.bytes(len);
    // Small numbers, so that masks and comparisons are satisfied.
    for byte in &mut bytes {
        if rng.chance(1, 3) {
            *byte = *rng.pick(&[0, 0, 1, 2, 0x7f, 0x80, 0xff]);
        }
    }
    bytes
}

/// The last line of the kernel's message, without numbers.
fn reason(error: &ExecError) -> String {
    let words = match error {
        ExecError::Refused(refused) => refused.reason.clone(),
        ExecError::Rewrite { .. } => "not rewritten for the run record".to_owned(),
        ExecError::Object { source, .. } => format!("no types: {source}"),
        ExecError::Load { source, .. } => format!("the system: {source}"),
        other => other.to_string(),
    };
    without_numbers(&words)
}

fn without_numbers(words: &str) -> String {
    let mut short: String = words.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    while short.contains("##") {
        short = short.replace("##", "#");
    }
    short.chars().take(48).collect::<String>().replace(',', "")
}

/// True if this process runs the tests. Privileged programs may write addresses and uninitialized stack bytes into
/// maps, which differ between engines; without CAP_PERFMON the verifier refuses both. So the test reruns itself without
/// it, and prints the output.
#[allow(clippy::print_stdout)]
pub(crate) fn is_without_rights(test: &str) -> bool {
    if std::env::var_os(WITHOUT_RIGHTS).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-perfmon,-sys_admin"]).arg(own);
    command.args(["--include-ignored", "--exact", test, "--nocapture", "--test-threads=1"]).env(WITHOUT_RIGHTS, "1");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            flowloom_testkit::skip(test, &format!("`setpriv` does not run: {error}"));
            return false;
        }
    };
    let (text, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}{message}");
    // Skip the harness output of the child process.
    let begins = format!("test {test} ... ");
    for line in text.lines().map(|line| line.strip_prefix(&begins).unwrap_or(line)) {
        if !line.is_empty() && line != "ok" && !line.starts_with("running ") && !line.starts_with("test ") {
            println!("{line}");
        }
    }
    message.lines().filter(|line| line.starts_with("SKIP")).for_each(|line| println!("{line}"));
    false
}
