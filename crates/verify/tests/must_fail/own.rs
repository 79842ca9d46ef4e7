// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Own programs, for cases that Linux's programs do not cover as XDP.

use flowloom_isa::{MapDef, MapKind, Program, asm};

use super::Case;

/// Name and text; all must be refused.
const TEXTS: [(&str, &str); 6] = [
    (
        "a function leaves the address of its stack in that of its caller",
        "        *(u64 *)(r10 - 8) = 0
                 r1 = r10
                 r1 += -8
                 call leave
                 r1 = *(u64 *)(r10 - 8)
                 r0 = *(u64 *)(r1 - 8)
                 r0 = 2
                 exit
         leave:  *(u64 *)(r10 - 8) = 7
                 *(u64 *)(r1 + 0) = r10
                 r0 = 0
                 exit",
    ),
    (
        "a callback leaves the address of its stack to the next round",
        "        *(u64 *)(r10 - 8) = r10
                 r1 = 4
                 r2 = subprog[round] ll
                 r3 = r10
                 r3 += -8
                 r4 = 0
                 call loop
                 r1 = *(u64 *)(r10 - 8)
                 r0 = *(u64 *)(r1 - 16)
                 r0 = 2
                 exit
         round:  *(u64 *)(r2 + 0) = r10
                 r0 = 0
                 exit",
    ),
    (
        "a tail call in a function returns another number",
        "        r6 = r1
                 call away
                 r7 = r0
                 *(u32 *)(r10 - 4) = 0
                 r2 = r10
                 r2 += -4
                 r1 = map[values] ll
                 call map_lookup_elem
                 if r0 == 0 goto out
                 r0 += r7
                 r0 = *(u64 *)(r0 + 0)
         out:    r0 = 2
                 exit
         away:   r2 = map[programs] ll
                 r3 = 0
                 call tail_call
                 r0 = 0
                 exit",
    ),
    (
        "a tail call in a function moves the packet",
        "        r6 = *(u32 *)(r1 + 0)
                 r7 = *(u32 *)(r1 + 4)
                 r2 = r6
                 r2 += 8
                 if r2 > r7 goto out
                 call away
                 r0 = *(u64 *)(r6 + 0)
         out:    r0 = 2
                 exit
         away:   r2 = map[programs] ll
                 r3 = 0
                 call tail_call
                 r0 = 0
                 exit",
    ),
    (
        "another lock than the one that is held is given up",
        "        *(u32 *)(r10 - 4) = 0
                 r2 = r10
                 r2 += -4
                 r1 = map[locked] ll
                 call map_lookup_elem
                 if r0 == 0 goto out
                 r7 = r0
                 *(u32 *)(r10 - 4) = 1
                 r2 = r10
                 r2 += -4
                 r1 = map[locked] ll
                 call map_lookup_elem
                 if r0 == 0 goto out
                 r8 = r0
                 call get_prandom_u32
                 r6 = r0
                 r1 = r7
                 r1 += 4
                 call spin_lock
                 if r6 == 0 goto same
                 r7 = r8
         same:   r1 = r7
                 r1 += 4
                 call spin_unlock
         out:    r0 = 2
                 exit",
    ),
    (
        "one instruction reads the context or the stack",
        "        r6 = r1
                 *(u64 *)(r10 - 8) = 0
                 call get_prandom_u32
                 if r0 == 0 goto read
                 r6 = r10
                 r6 += -8
         read:   r0 = *(u32 *)(r6 + 0)
                 r0 = 2
                 exit",
    ),
];

/// All own programs.
pub fn cases() -> Vec<Case> {
    TEXTS
        .iter()
        .map(|(name, text)| Case { name: format!("own: {name}"), program: program(text), must_fail: true })
        .collect()
}

fn program(text: &str) -> Program {
    let map = |name: &str, kind, value_bytes| MapDef {
        name: name.to_owned(),
        kind,
        key_bytes: 4,
        value_bytes,
        max_entries: 2,
        ..MapDef::default()
    };
    let locked = MapDef { spin_lock: Some(4), ..map("locked", MapKind::Array, 8) };
    let maps = vec![map("values", MapKind::Array, 8), map("programs", MapKind::ProgArray, 4), locked];
    let insns = asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Program { name: "own".to_owned(), license: "GPL".to_owned(), insns, maps, ..Program::default() }
}
