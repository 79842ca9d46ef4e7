// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The check whether the kernel can be used as an engine.

use std::fs;
use std::io;

use flowloom_engine::{Choices, Datapath, Packet, Port, Verdict};
use flowloom_isa::insn::{alu, class, helper, jmp};
use flowloom_isa::{Insn, Program};

use super::reason::{NEEDED, Reason};
use super::{KernelEngine, MIN_FRAME_BYTES};
use crate::error::ExecError;

/// Implies all of them for bpf(2).
const CAP_SYS_ADMIN: u32 = 21;

/// Runs a small program on the smallest frame.
pub(super) fn probe() -> Result<(), Reason> {
    let insn = |code, imm| Insn { code, imm, ..Insn::default() };
    let pass = Verdict::Pass.number() as i32;
    let program = Program {
        name: "fl_probe".to_owned(),
        section: "xdp".to_owned(),
        // After rewriting, the call needs a map and address arithmetic, as real programs do.
        insns: vec![
            insn(class::JMP | jmp::CALL, helper::GET_PRANDOM_U32),
            insn(class::ALU64 | alu::MOV, pass),
            insn(class::JMP | jmp::EXIT, 0),
        ],
        license: "GPL".to_owned(),
        ..Program::default()
    };
    let mut engine = KernelEngine::load(&program).map_err(|error| reason(&error))?;
    let packet = Packet { bytes: &[0; MIN_FRAME_BYTES], port: Port(0) };
    match engine.process(&packet, &Choices::seeded(0, 0, 0)) {
        Ok(outcome) if outcome.verdict == Verdict::Pass => Ok(()),
        Ok(outcome) => Err(Reason::Other(format!("its verdict was {}, expected PASS", outcome.verdict))),
        Err(error) => Err(Reason::Other(error.to_string())),
    }
}

fn reason(error: &ExecError) -> Reason {
    let io = match error {
        ExecError::Refused(refused) => Some(&refused.source),
        ExecError::Load { source, .. } => Some(source),
        _ => None,
    };
    match io {
        Some(io) if io.kind() == io::ErrorKind::PermissionDenied => denied(),
        Some(io) if matches!(io.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => Reason::NotBuilt,
        _ => Reason::Other(error.to_string()),
    }
}

fn denied() -> Reason {
    let effective = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    let missing = missing(effective.unwrap_or(0));
    if missing.is_empty() { Reason::Denied } else { Reason::NotPermitted { missing } }
}

fn missing(effective: u64) -> Vec<&'static str> {
    let has = |capability: u32| effective >> capability & 1 != 0;
    let lacks = |(_, number): &(&str, u32)| !has(*number) && !has(CAP_SYS_ADMIN);
    NEEDED.into_iter().filter(lacks).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(missing(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
        assert_eq!(missing(1 << 21), [] as [&str; 0]);
        let text = Reason::NotPermitted { missing: missing(1 << 38 | 1 << 39) }.to_string();
        assert_eq!(
            text,
            "loading XDP programs needs root or the capabilities CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF; \
             missing: CAP_NET_ADMIN"
        );
    }
}
