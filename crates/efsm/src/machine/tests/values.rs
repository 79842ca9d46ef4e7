// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules 2, 5 and 10: arithmetic, parallel updates, global registers.

use super::{Scene, scene, tcp, to, udp};

/// A scene with one row of `updates` on these variables, which always leaves a context behind.
fn updating(variables: &str, updates: &str) -> Scene {
    scene(&format!("stateful e {{ key udp.sport; states a, b; {variables} on any -> b {{ {updates} pass; }} }}"))
}

/// The registers after a packet, as `name=value` with the stored bits.
fn after(variables: &str, updates: &str) -> String {
    let mut s = updating(variables, updates);
    s.at(0, &to(0x1234).ttl(200));
    s.contexts().trim_start_matches("00070000 b ").to_owned()
}

#[test]
fn updates_are_parallel() {
    assert_eq!(after("reg x: u8 = 1; reg y: u8 = 2; reg z: u8 = 3;", "x = y; y = z; z = x;"), "x=2 y=3 z=1");
    assert_eq!(after("reg x: u8 = 1; global g: u8 = 9;", "x = g; g = x;"), "x=9");
    assert_eq!(after("reg x: u8 = 1; reg y: u8;", "x += 1; y = x + x;"), "x=2 y=2");
}

#[test]
fn results_wrap_in_their_type() {
    assert_eq!(
        after("reg x: u8 = 250; reg y: u16 = 65535; reg z: u32 = 0xffffffff;", "x += 10; y += 1; z += 2;"),
        "x=4 y=0 z=1"
    );
    assert_eq!(after("reg x: u8; reg y: u64;", "x -= 1; y -= 1;"), "x=255 y=18446744073709551615");
    assert_eq!(after("reg x: i8 = 127; reg y: i16 = -32768;", "x += 1; y -= 1;"), "x=128 y=32767");
    assert_eq!(
        after("reg x: i32 = -1; reg y: u64; reg z: i64 = -5; reg w: u32;", "y = x; w = z; z = -z;"),
        "x=4294967295 y=18446744073709551615 z=5 w=4294967291"
    );
}

#[test]
fn narrow_values_are_extended_by_their_own_sign() {
    assert_eq!(after("reg x: i8 = -3; reg y: i32 = 10; reg z: u8 = 253;", "y = x + z;"), "x=253 y=250 z=253");
    // 32 bits wide, so that the sum of two u32 wraps before it is stored in 32.
    assert_eq!(
        after("reg x: u32 = 0xffffffff; reg y: u16 = 2; reg z: u64;", "z = x + y;"),
        "x=4294967295 y=2 z=4294967297"
    );
    assert_eq!(after("reg x: i16 = -1; reg y: u32 = 7; reg z: i64;", "z = x + y;"), "x=65535 y=7 z=6");
}

#[test]
fn shifts_by_the_width_or_more_give_0() {
    let of = |amount: u64, op: &str| {
        after(&format!("reg x: u32 = 0x80000001; reg n: u64 = {amount};"), &format!("x = x {op} n;"))
    };
    // The amount has 64 bits, so the shift is computed in 64.
    assert_eq!(of(1, "<<"), "x=2 n=1");
    assert_eq!(of(31, ">>"), "x=1 n=31");
    assert_eq!(of(32, ">>"), "x=0 n=32");
    assert_eq!(of(64, "<<"), "x=0 n=64");
    assert_eq!(of(65, "<<"), "x=0 n=65");
    let of = |amount: u8, op: &str| {
        after(&format!("reg x: u32 = 0x80000001; reg n: u8 = {amount};"), &format!("x = x {op} n;"))
    };
    assert_eq!(of(31, "<<"), "x=2147483648 n=31");
    assert_eq!(of(32, "<<"), "x=0 n=32");
    assert_eq!(of(33, "<<"), "x=0 n=33");
    assert_eq!(of(255, ">>"), "x=0 n=255");
    assert_eq!(
        after("reg x: i8 = -128; reg n: u8 = 1;", "x = x >> n;"),
        "x=192 n=1",
        "of the extended value: 0xffffff80 >> 1"
    );
}

#[test]
fn minimum_maximum_rotation_and_average() {
    assert_eq!(after("reg x: i8 = -3; reg y: i8 = 2;", "x = min(x, y); y = max(x, y);"), "x=253 y=2");
    assert_eq!(after("reg x: u8 = 253; reg y: u8 = 2;", "x = min(x, y); y = max(x, y);"), "x=2 y=253");
    assert_eq!(after("reg x: u8 = 0x81; reg y: u16 = 0x8001;", "x = ror(x, 1); y = ror(y, 17);"), "x=192 y=49152");
    assert_eq!(after("reg x: u32 = 1; reg y: u64 = 1;", "x = ror(x, 32); y = ror(y, 1);"), "x=1 y=9223372036854775808");
    // 100 + ((200 - 100) >> 2), and down again with an arithmetic shift: 100 + (-99 >> 1), which is 100 - 50.
    assert_eq!(after("reg x: u32 = 100;", "x = ewma(x, ip.ttl, 2);"), "x=125");
    assert_eq!(after("reg x: u32 = 100; reg y: u32 = 1;", "x = ewma(x, y, 1);"), "x=50 y=1");
    assert_eq!(
        after("reg x: u32 = 100; reg y: u32 = 1;", "x = ewma(x, y, 32);"),
        "x=100 y=1",
        "a shift by the width gives 0"
    );
    assert_eq!(after("reg x: u32 = 100; reg y: u32 = 1;", "x = ewma(x, y, 0);"), "x=1 y=1");
}

#[test]
fn operators_of_bits() {
    assert_eq!(after("reg x: u8 = 0x0f; reg y: u8 = 0x55;", "x &= y; y ^= 0xff;"), "x=5 y=170");
    assert_eq!(after("reg x: u8 = 0x0f; reg y: u16 = 1;", "x |= 0xf0; y = ~y;"), "x=255 y=65534");
    assert_eq!(after("reg x: u16; reg y: u8;", "x = udp.dport; y = udp.dport;"), "x=4660 y=52");
}

#[test]
fn global_registers_are_shared_and_persist() {
    let mut s = scene(
        "stateful e { key udp.sport; states a; global g: u8 = 3; global h: i16 = -1;
         on any when udp.dport == 1 stay { g += 1; h += g; forward(g); } }
         stateful other { key none; states a; global g: u8; on any stay { g += 1; pass; } }",
    );
    assert_eq!(s.machine.globals(0), [3, 0xffff]);
    assert_eq!(s.at(0, &udp(1, 2, 1, 1)), "to 4");
    assert_eq!(s.at(1 << 50, &udp(1, 2, 2, 1)), "to 5");
    assert_eq!(s.contexts(), "", "they make no context");
    assert_eq!(s.machine.globals(0), [5, 6], "-1 + 3 + 4");
    assert_eq!(s.at(0, &tcp(0, 0)), "drop");
    assert_eq!((s.machine.globals(0), s.machine.globals(1)), (&[5, 6][..], &[0][..]), "each element has its own");
}
