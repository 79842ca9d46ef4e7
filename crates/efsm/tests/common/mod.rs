//! What the tests of the front end share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part")]

use std::path::Path;

use flowloom_efsm::model::{
    Condition, Destination, Expr, Function, NewValue, NextState, Terminal, Wide, Width, WriteTarget,
};

/// The functions that ship, by file name.
pub(crate) fn shipped() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("corpus")];
    folders
        .extend(std::fs::read_dir(root.join("functions")).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()));
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|f| std::fs::read_dir(f).unwrap().map(|e| e.unwrap().path()))
        .filter(|p| p.extension() == Some("efsm".as_ref()))
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_owned();
    files.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

/// Checks what the model promises: every number names something, every constant fits, nothing is written twice.
///
/// # Panics
/// The model breaks a promise.
pub(crate) fn check_model(function: &Function) {
    let text = &function.source.text;
    for (index, element) in function.elements.iter().enumerate() {
        let s = element.stateful.as_ref();
        let states = s.map_or(0, |s| s.states.len());
        let (registers, globals) = (s.map_or(0, |s| s.registers.len()), s.map_or(0, |s| s.globals.len()));
        let place = format!("element `{}` of {text}", element.name);
        assert!(element.name.len() <= 15 && !element.name.is_empty(), "{place}");
        if let Some(s) = s {
            assert!(s.size > 0 && s.sweep_ns > 0 && !s.states.is_empty(), "{place}");
            assert!(
                s.key.as_ref().is_none_or(|k| flowloom_wire::KeySpec::of_fields(
                    &k.fields().collect::<Vec<_>>(),
                    k.biflow
                )
                .is_ok()),
                "{place}"
            );
            for v in s.registers.iter().chain(&s.globals) {
                assert!(v.ty.width_bits == 64 || v.initial >> v.ty.width_bits == 0, "{place}: `{}`", v.name);
            }
        }
        let check = |expr: &Expr, width: Width| {
            expr.walk(&mut |e| match e {
                Expr::Register(i) => {
                    assert!(usize::from(*i) < registers, "{place}");
                    let bits = s.unwrap().registers[usize::from(*i)].ty.width_bits;
                    assert!(u32::from(bits) <= width.bits(), "{place}: {expr:?} in {width:?}");
                }
                Expr::Global(i) => assert!(usize::from(*i) < globals, "{place}"),
                Expr::Metadata(i) => assert!(usize::from(*i) < function.metadata.len(), "{place}"),
                Expr::Field(f) => {
                    assert!(u32::from(f.width_bits()) <= width.bits(), "{place}: {expr:?} in {width:?}")
                }
                Expr::Now { unit_ns } => assert!(*unit_ns > 0, "{place}"),
                Expr::State => assert!(s.is_some(), "{place}"),
                Expr::Constant(c) if width == Width::W32 => {
                    assert!(*c >> 32 == 0 || (*c as i64) >= i64::from(i32::MIN) && (*c as i64) < 0, "{place}: {c:#x}");
                }
                Expr::RotateRight { rotate_bits, .. } => assert!(u32::from(*rotate_bits) <= width.bits(), "{place}"),
                _ => {}
            });
        };
        for row in &element.rows {
            assert!(row.states.is_sorted() && row.states.iter().all(|&i| usize::from(i) < states), "{place}");
            assert_eq!(row.states.is_empty(), s.is_none(), "{place}");
            for condition in &row.conditions {
                match condition {
                    Condition::Compare { left, right, width, .. } => {
                        check(left, *width);
                        check(right, *width);
                    }
                    Condition::Serial { left, right, serial_bits, .. } => {
                        assert!(matches!(serial_bits, 8 | 16 | 32 | 64), "{place}");
                        let width = if *serial_bits == 64 { Width::W64 } else { Width::W32 };
                        check(left, width);
                        check(right, width);
                    }
                    Condition::Masked { operand, mask, value, .. } => {
                        let bits = operand.field().map_or(128, |field| u32::from(field.width_bits()));
                        assert!(bits == 128 || mask >> bits == 0, "{place}: {condition:?}");
                        assert_eq!(value & !mask, 0, "{place}: {condition:?}");
                    }
                    Condition::Range { field, low, high, .. } => {
                        let bits = u32::from(field.width_bits());
                        assert!(low <= high && (bits == 64 || high >> bits == 0), "{place}: {condition:?}");
                    }
                    Condition::Same { left, right, .. } => {
                        let width = |wide: &Wide| wide.field().map_or(128, |field| field.width_bits());
                        assert_eq!((width(left), width(right)), (128, 128), "{place}");
                    }
                    Condition::OneOf { operand, values, width, .. } => {
                        check(operand, *width);
                        assert!(
                            values.is_sorted() && *width == Width::W64 || values.iter().all(|v| v >> 32 == 0),
                            "{place}"
                        );
                    }
                    Condition::Full { .. } => assert!(element.stateful.is_some(), "{place}"),
                }
            }
            if let NextState::To { state, idle_ns, hard_ns } = row.next {
                assert!(usize::from(state) < states, "{place}");
                assert!([idle_ns, hard_ns].into_iter().flatten().all(|t| t > 0 && t < 1 << 62), "{place}");
            }
            let mut written: Vec<Destination> = row.updates.iter().map(|u| u.destination).collect();
            written.sort_unstable();
            written.dedup();
            assert_eq!(written.len(), row.updates.len(), "{place}");
            for update in &row.updates {
                if let NewValue::Number { value, width } = &update.value {
                    check(value, *width);
                }
            }
        }
        let actions = element.rows.iter().map(|r| &r.actions).chain([&element.otherwise.actions]);
        for actions in actions {
            let mut targets: Vec<WriteTarget> = actions.writes.iter().map(|w| w.target).collect();
            targets.sort_unstable();
            targets.dedup();
            assert_eq!(targets.len(), actions.writes.len(), "{place}");
            for write in &actions.writes {
                if let WriteTarget::Field(field) = write.target {
                    assert!(field.is_writable(), "{place}");
                    let is_wide = field.width_bits() > 64;
                    assert_eq!(is_wide, !matches!(write.value, NewValue::Number { .. }), "{place}: {write:?}");
                }
                if let NewValue::Number { value, width } = &write.value {
                    check(value, *width);
                }
            }
            if let Terminal::Goto(to) = actions.terminal {
                assert!(usize::from(to) > index && usize::from(to) < function.elements.len(), "{place}");
            }
        }
        for write in &element.otherwise.actions.writes {
            assert!(matches!(write.target, WriteTarget::Metadata(_)), "{place}");
            assert!(matches!(write.value, NewValue::Number { value: Expr::Constant(_), .. }), "{place}");
        }
    }
}
