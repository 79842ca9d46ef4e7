// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs whose plans are refused by name, and sizes at the limits.

use flowloom_isa::{Program, asm};
use flowloom_plan::Resources;
use flowloom_rtl::{Core, Pipeline, RtlError};

use crate::common::planned;

/// A program for packets of at least 14 bytes; `r6` is the packet, `r2` its end.
fn on_packet(map: &str, body: &str) -> Program {
    let text = format!(
        ".program refused\n.license \"GPL\"\n.map {map}\nr6 = *(u32 *)(r1 + 0)\nr2 = *(u32 *)(r1 + 4)\nr3 = r6\nr3 += 14\n\
         r0 = 1\nif r3 > r2 goto out\n{body}\npass: r0 = 2\nout: exit\n"
    );
    asm::program("refused", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn rendered(program: &Program) -> Result<Core, RtlError> {
    let plan = planned(program).unwrap_or_else(|error| panic!("{error}"));
    Core::of(&plan, program)
}

/// A redirect with constant flags.
fn redirect(map: &str, flags: u64) -> Result<Core, RtlError> {
    rendered(&on_packet(
        map,
        &format!("r1 = map[ports] ll\nr2 = *(u8 *)(r6 + 0)\nr3 = {flags}\ncall redirect_map\nexit"),
    ))
}

#[test]
fn only_maps_of_devices_have_broadcasts() {
    for kind in ["cpumap", "xskmap"] {
        for flags in [8, 24] {
            let error = redirect(&format!("ports {kind} key 4 value 4 entries 6"), flags).unwrap_err();
            assert!(
                matches!(&error, RtlError::Flags { map, found: Some(found), spreads: false, .. } if map == "ports" && *found == flags),
                "{kind}: {error}"
            );
        }
    }
    let error = redirect("ports devmap key 4 value 4 entries 6", 32).unwrap_err();
    let text =
        "`redirect_map` on map `ports` is given the flags 0x20, hardware has 0 to 3, and these with `BPF_F_BROADCAST`";
    assert!(error.to_string().ends_with(text), "{error}");
    assert!(redirect("ports devmap key 4 value 4 entries 6", 8).is_ok_and(|core| core.spreads));
    assert!(redirect("ports cpumap key 4 value 4 entries 6", 2).is_ok());
}

#[test]
fn bytes_at_one_offset_that_are_too_far_apart_are_refused() {
    let of = |last: u32| {
        let body = format!(
            "r7 = *(u8 *)(r6 + 0)\nr7 &= 7\nr6 += r7\nr3 = r6\nr3 += {}\nif r3 > r2 goto out\n*(u8 *)(r6 + 1) = 1\n\
             *(u8 *)(r6 + {last}) = 2",
            last + 1
        );
        rendered(&on_packet("unused array key 4 value 4 entries 1", &body))
    };
    assert!(of(256).is_ok());
    let error = of(257).unwrap_err();
    assert!(matches!(error, RtlError::Span { found: 257, expected: 256 }), "{error}");
}

#[test]
fn large_values_are_rendered_or_refused() {
    let of = |bytes: u32| {
        let body = "r5 = map[cells][0]+8 ll\nr7 = 1\nlock *(u64 *)(r5 + 0) += r7";
        let mut program = on_packet(&format!("cells array key 4 value {bytes} entries 1"), body);
        program.maps[0].initial = Some(vec![0x5a; bytes as usize]);
        rendered(&program)
    };
    let core = of(1 << 20).unwrap_or_else(|error| panic!("{error}"));
    assert!(core.text.contains(&format!("map0_q <= 8388608'h{};", "5a".repeat(1 << 20))));
    let shell = Pipeline::around(core, 64).shell();
    assert!(shell.files.iter().any(|file| file.name == "fl_shell_refused.sv"));
    let error = of((1 << 20) + 8).unwrap_err();
    assert!(matches!(&error, RtlError::Value { map, found: 0x10_0008, .. } if map == "cells"), "{error}");
}

/// A lookup in a hash map, and an update.
fn hash(sizes: &str, key_bytes: u32) -> Result<(Core, Option<u64>), RtlError> {
    let body = format!(
        "r7 = *(u64 *)(r6 + 0)\n*(u64 *)(r10 - 8) = r7\n*(u64 *)(r10 - 16) = r7\nr1 = map[flows] ll\nr2 = r10\n\
         r2 += -{key_bytes}\ncall map_lookup_elem\nif r0 != 0 goto pass\nr1 = map[flows] ll\nr2 = r10\nr2 += -{key_bytes}\nr3 = r10\n\
         r3 += -16\nr4 = 0\ncall map_update_elem"
    );
    let program = on_packet(&format!("flows hash {sizes} flags 1"), &body);
    let plan = planned(&program).unwrap_or_else(|error| panic!("{error}"));
    let rows = Resources::of(&plan).memories.iter().find(|memory| memory.holds == "entries").map(|memory| memory.rows);
    Ok((Core::of(&plan, &program)?, rows))
}

#[test]
fn a_hash_map_has_as_many_rows_as_keys_and_hashes() {
    let error = hash("key 8 value 4 entries 1073741824", 8).map(|_| ()).unwrap_err();
    assert!(matches!(&error, RtlError::Entries { map, found: 0x4000_0000, .. } if map == "flows"), "{error}");
    // The number of a row has to fit into key and value.
    for (sizes, key_bytes, entries) in [
        ("key 1 value 1 entries 100000", 1, 256),
        ("key 2 value 1 entries 1000000", 2, 65_536),
        ("key 2 value 1 entries 60", 2, 60),
    ] {
        let (core, rows) = hash(sizes, key_bytes).unwrap_or_else(|error| panic!("{sizes}: {error}"));
        assert!(rows.is_some_and(|rows| (entries..entries + 200).contains(&rows)), "{sizes}: {rows:?}");
        assert!(core.text.contains(&format!(".Entries({entries})")), "{sizes}");
    }
}

/// Looks up a key, inserts another one where it is absent, and looks up the first one again.
const AGAIN: &str = "r7 = *(u8 *)(r6 + 0)
r8 = *(u8 *)(r6 + 1)
*(u8 *)(r10 - 4) = r7
*(u8 *)(r10 - 3) = 1
*(u8 *)(r10 - 8) = r8
*(u8 *)(r10 - 7) = 2
*(u64 *)(r10 - 16) = r7
r1 = map[flows] ll
r2 = r10
r2 += -4
call map_lookup_elem
if r0 != 0 goto again
r1 = map[flows] ll
r2 = r10
r2 += -8
r3 = r10
r3 += -16
r4 = 0
call map_update_elem
if r8 > 7 goto pass
again: r1 = map[flows] ll
r2 = r10
r2 += -4
call map_lookup_elem
if r0 == 0 goto pass
r1 = *(u64 *)(r0 + 0)
r0 = 1
if r1 > 7 goto out";

#[test]
fn tables_of_a_map_with_steps_are_counted() {
    let program = on_packet("flows hash key 2 value 8 entries 60 flags 1", AGAIN);
    let plan = planned(&program).unwrap_or_else(|error| panic!("{error}"));
    assert!(plan.replay.is_some());
    let core = Core::of(&plan, &program).unwrap_or_else(|error| panic!("{error}"));
    let tables = core.text.matches("fl_hash_map #(").count() as u64;
    let counted = Resources::of(&plan).memories.into_iter().find(|memory| memory.holds == "entries");
    assert_eq!(counted.map(|memory| memory.count), Some(tables));
    assert_eq!(tables, 2);
}
