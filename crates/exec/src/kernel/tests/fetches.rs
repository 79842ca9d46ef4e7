// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations on the stack: verifiers lose the dependency of the old value on the spilled one.

use std::sync::Arc;

use flowloom_vm::Interpreter;

use super::maps::{OUT, START, assembled, packet, run};
use super::*;

/// The spilled value decides a branch on one path and not on the other.
#[test]
fn atomic_fetches_from_the_stack_do_not_prune_paths() {
    require!(KernelEngine::available());
    let fetches = [
        "r3 = 0\nr3 = atomic_fetch_add((u64 *)(r10 - 8), r3)",
        "r3 = 0\nr3 = atomic_fetch_xor((u64 *)(r10 - 8), r3)",
        "r3 = 0\nr3 = xchg_64(r10 - 8, r3)",
        "r0 = 5\nr3 = 0\nr0 = cmpxchg_64(r10 - 8, r0, r3)\nr3 = r0",
        "r4 = r10\nr4 += -8\nr3 = 0\nr3 = atomic_fetch_or((u64 *)(r4 + 0), r3)",
    ];
    for fetch in fetches {
        let text = format!(
            "{START}
    r2 = *(u8 *)(r6 + 0)
    *(u64 *)(r10 - 8) = r2
    r2 = *(u64 *)(r10 - 8)
    if r2 <= 100 goto join
    r4 = 1
    r4 += 1
join: r5 = 0
    r5 += 1
    r5 += 1
    r5 += 1
    r5 += 1
    r5 += 1
    r5 += 1
    r5 += 1
    r2 = 0
    {fetch}
    if r3 >= 50 goto large
    r0 = 1
    exit
large: r0 = 2
    exit
{OUT}"
        );
        let program = assembled(&text, Vec::new());
        let mut interp = Interpreter::new(Arc::new(program.clone())).expect("runs");
        let mut kernel = loaded(&program);
        for first in [0, 49, 50, 100, 101, 255] {
            let expected = run(&mut interp, &packet(first), 0);
            assert_eq!(run(&mut kernel, &packet(first), 0), expected, "{first} with {fetch}");
        }
    }
}
