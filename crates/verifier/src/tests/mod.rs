// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are safe, programs that are not, and what is found out of both.
#![allow(clippy::unwrap_used, clippy::panic)]

mod found;
mod generator;
mod iterations;
mod joins;
mod random;
mod refused;
mod safe;
mod traps;
mod unlike;

use super::*;
use flowloom_isa::MapKind;
use flowloom_isa::asm;

/// Reads 34 bytes of the packet at r6; r7 is its end, r9 the context. Ends at `out`.
const PACKET: &str = "r9 = r1
r6 = *(u32 *)(r1 + 0)
r7 = *(u32 *)(r1 + 4)
r2 = r6
r2 += 34
if r2 > r7 goto out
";
const OUT: &str = "out: r0 = 2
exit
";
/// Looks the value of 16 bytes under key 1 up; it is in r0, null or not.
const LOOKUP: &str = "*(u32 *)(r10 - 4) = 1
r2 = r10
r2 += -4
r1 = map[table] ll
call map_lookup_elem
";

/// A program on a few maps.
fn program(text: &str) -> Program {
    let head = ".program f
.license \"GPL\"
.map table hash key 4 value 16 entries 8
.map ring ringbuf key 0 value 0 entries 4096
.map programs hash key 4 value 4 entries 4
";
    let mut program =
        asm::program("f.bpf", &format!("{head}{text}")).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    program.maps[2].kind = MapKind::ProgArray;
    program
}

fn verified(program: &Program) -> Result<Proof, Box<Refusal>> {
    verify(program, &Options::default()).map_err(|error| match error {
        VerifyError::Refused(refusal) => refusal,
        VerifyError::Program(error) => panic!("{error}"),
    })
}

fn proof(text: &str) -> Proof {
    verified(&program(text)).unwrap_or_else(|refusal| panic!("{refusal}\n{}\n{text}", refusal.details()))
}

fn refusal(text: &str) -> Refusal {
    *verified(&program(text)).expect_err(text)
}
