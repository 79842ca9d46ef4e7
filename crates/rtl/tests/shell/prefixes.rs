// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transactions on a map of prefixes.

use super::*;

/// Leads packets by the longest prefix of their first four bytes.
pub(super) const PREFIXES: &str = r#".program prefixes
.license "GPL"
.map routes lpm_trie key 8 value 8 entries 3 flags 1
        r2 = *(u32 *)(r1 + 4)
        r6 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r6
        r3 += 40
        if r3 > r2 goto out
        r3 = 32
        *(u32 *)(r10 - 8) = r3
        r3 = *(u32 *)(r6 + 0)
        *(u32 *)(r10 - 4) = r3
        r1 = map[routes] ll
        r2 = r10
        r2 += -8
        call map_lookup_elem
        r5 = r0
        r0 = 2
        if r5 == 0 goto out
        r0 = 3
out:    exit
"#;

/// An address of IPv4 and the length of its prefix.
fn prefix(bits: u32, address: [u8; 4]) -> Vec<u8> {
    [bits.to_le_bytes(), address].concat()
}

/// Transactions on a map of prefixes have the errors of Linux for such a map.
#[test]
fn errors_of_a_map_of_prefixes_are_those_of_the_kernel() {
    let test = "errors_of_a_map_of_prefixes_are_those_of_the_kernel";
    let Some((model, shell)) = build_around(test, &pipeline(PREFIXES), |_, text| text) else { return };
    let mut bench = Bench::new(&model, &shell, 1);
    bench.until_ready();
    let block = bench.blocks[0].clone();
    let mut command = |operation: u32, key: Vec<u8>, flags: u32| {
        bench.put(block.key_address(), &key);
        bench.put(block.value_address(), &[operation as u8 + key[4]; 8]);
        match bench.command(0, operation, flags) {
            0 if operation == LOOKUP => Ok(bench.take(block.value_address(), 8)[0]),
            0 => Ok(0),
            error => Err(error),
        }
    };
    let any = [10, 1, 2, 3];
    assert_eq!(command(LOOKUP, prefix(32, any), 0), Err(ENOENT));
    assert_eq!(command(DELETE, prefix(8, any), 0), Err(ENOENT));
    assert_eq!(command(UPDATE, prefix(8, any), 2), Err(ENOENT));
    assert_eq!(command(UPDATE, prefix(8, any), 3), Err(EINVAL));
    assert_eq!(command(UPDATE, prefix(8, any), 1), Ok(0));
    assert_eq!(command(UPDATE, prefix(8, any), 1), Err(EEXIST));
    // A prefix may be as long as an address, and no longer.
    assert_eq!(command(UPDATE, prefix(33, any), 0), Err(EINVAL));
    assert_eq!(command(DELETE, prefix(33, any), 0), Err(EINVAL));
    assert_eq!(command(LOOKUP, prefix(33, any), 0), Err(ENOENT));
    assert_eq!(command(UPDATE, prefix(32, any), 0), Ok(0));
    assert_eq!(command(UPDATE, prefix(16, any), 0), Ok(0));
    assert_eq!(command(UPDATE, prefix(24, any), 0), Err(ENOSPC));
    assert_eq!(command(UPDATE, prefix(16, any), 2), Ok(0));
    assert_eq!(command(LOOKUP, prefix(32, [10, 9, 9, 9]), 0), Ok(UPDATE as u8 + 10));
    assert_eq!(command(DELETE, prefix(32, any), 0), Ok(0));
    assert_eq!(command(UPDATE, prefix(24, any), 0), Ok(0));
}
