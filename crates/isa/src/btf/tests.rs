// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use flowloom_testkit::{Rng, skip};

use super::*;

/// One type of every kind, with its special fields.
fn every_kind() -> Btf {
    let mut b = Builder::default();
    let mut name = |text| b.string(text).unwrap();
    let (int, a, s, e, v, sec, f, tag) =
        (name("int"), name("a"), name("s"), name("e"), name("v"), name(".data"), name("f"), name("tag"));
    let member = |name, of, offset_bits, width_bits| Member { name, of: TypeId(of), offset_bits, width_bits };
    let int = b.add(Type::Int { name: int, size_bytes: 4, encoding: 1, offset_bits: 0, bits: 32 });
    b.add(Type::Ptr(TypeId(0)));
    b.add(Type::Array { element: int, index: int, count: 7 });
    let members = vec![member(a, 1, 3, 5), member(Name(0), 2, 64, 0)];
    b.add(Type::Struct(Composite { name: s, size_bytes: 16, bitfields: true, members }));
    let members = vec![member(a, 1, 0, 0), member(e, 3, 0, 0)];
    b.add(Type::Union(Composite { name: Name(0), size_bytes: 28, bitfields: false, members }));
    b.add(Type::Enum { name: e, size_bytes: 4, signed: true, values: vec![(a, -1), (s, i32::MAX)] });
    b.add(Type::Fwd { name: s, union: true });
    b.add(Type::Typedef { name: v, to: TypeId(5) });
    b.add(Type::Volatile(TypeId(8)));
    b.add(Type::Const(TypeId(9)));
    b.add(Type::Restrict(TypeId(2)));
    b.add(Type::Func { name: f, proto: TypeId(13), linkage: Linkage::Static });
    b.add(Type::FuncProto { ret: TypeId(0), params: vec![(a, int), (Name(0), TypeId(0))] });
    b.add(Type::Var { name: v, of: TypeId(10), linkage: Linkage::Extern });
    let vars = vec![SecVar { var: TypeId(14), offset_bytes: 8, size_bytes: 28 }];
    b.add(Type::DataSec { name: sec, size_bytes: 36, vars });
    b.add(Type::Float { name: f, size_bytes: 8 });
    b.add(Type::DeclTag { name: tag, of: TypeId(4), component: -1, attribute: true });
    b.add(Type::TypeTag { name: tag, to: int, attribute: false });
    b.add(Type::Enum64 { name: e, size_bytes: 8, signed: false, values: vec![(a, u64::MAX - 1), (s, 1 << 40)] });
    b.finish()
}

#[test]
fn every_kind_comes_back() {
    let btf = every_kind();
    assert_eq!(btf.types().count(), 19);
    assert_eq!(Btf::parse(&btf.emit().unwrap()).unwrap(), btf);
}

#[test]
fn strings_are_interned_and_found() {
    let mut b = Builder::default();
    let (x, y) = (b.string("xdp").unwrap(), b.string("größe").unwrap());
    assert_eq!((b.string("xdp").unwrap(), b.string("").unwrap()), (x, Name(0)));
    let btf = b.finish();
    assert_eq!((btf.name(x), btf.name(y), btf.name(Name(0))), (Ok("xdp"), Ok("größe"), Ok("")));
    assert_eq!(btf.name(Name(x.0 + 1)), Ok("dp"));
    assert!(matches!(btf.name(Name(1000)), Err(BtfError::NameOffset { offset: 1000, .. })));
    assert!(matches!(btf.name(Name(y.0 + 3)), Err(BtfError::NameText { .. })));
}

#[test]
fn sizes_follow_what_types_refer_to() {
    let btf = every_kind();
    let size = |id| btf.size_bytes(TypeId(id));
    assert_eq!((size(1), size(2), size(3), size(4)), (Ok(4), Ok(8), Ok(28), Ok(16)));
    assert_eq!((size(10), size(14), size(15), size(19)), (Ok(28), Ok(28), Ok(36), Ok(8)));
    for (id, why) in [(0, "void"), (7, "declaration"), (12, "function"), (13, "function"), (99, "void")] {
        let error = size(id).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn endless_and_vast_types_have_no_size() {
    let mut b = Builder::default();
    let name = b.string("t").unwrap();
    b.add(Type::Typedef { name, to: TypeId(2) });
    b.add(Type::Const(TypeId(1)));
    b.add(Type::Array { element: TypeId(3), index: TypeId(3), count: 1 });
    let int = b.add(Type::Int { name, size_bytes: 8, encoding: 0, offset_bits: 0, bits: 64 });
    let vast = b.add(Type::Array { element: int, index: int, count: 1 << 29 });
    b.add(Type::Array { element: vast, index: int, count: 1 << 3 });
    let row = b.add(Type::Array { element: int, index: int, count: 7 });
    let table = b.add(Type::Array { element: row, index: int, count: 3 });
    let btf = Btf::parse(&b.finish().emit().unwrap()).unwrap();
    assert_eq!(btf.size_bytes(table), Ok(7 * 3 * 8));
    for id in [1, 2, 3, 5, 6] {
        assert!(matches!(btf.size_bytes(TypeId(id)), Err(BtfError::NoSize { .. })), "type {id}");
    }
}

#[test]
fn functions_and_lines_come_back() {
    let section = |section, records| ExtSection { section: Name(section), records };
    let line = |offset_bytes, line, column| LineRecord { offset_bytes, file: Name(3), text: Name(9), line, column };
    let ext = Ext {
        funcs: vec![section(1, vec![FuncRecord { offset_bytes: 0, func: TypeId(5) }])],
        lines: Vec::new(),
        adaptations: Vec::new(),
    };
    assert_eq!(Ext::parse(&ext.emit().unwrap()).unwrap(), ext);
    let lines = vec![ExtSection { section: Name(1), records: vec![line(0, 1, 0), line(16, (1 << 22) - 1, 1023)] }];
    let ext = Ext { lines, ..ext };
    assert_eq!(Ext::parse(&ext.emit().unwrap()).unwrap(), ext);
    assert_eq!(Ext::parse(&Ext::default().emit().unwrap()).unwrap(), Ext::default());
}

fn error_of(change: impl FnOnce(&mut Vec<u8>)) -> BtfError {
    let mut bytes = every_kind().emit().unwrap();
    change(&mut bytes);
    Btf::parse(&bytes).map(|_| ()).expect_err("this is damaged")
}

#[test]
fn damage_is_named() {
    let end = |b: &Vec<u8>| b.len() - 1;
    assert_eq!(error_of(|b| b[..2].reverse()), BtfError::Magic { found: 0x9feb });
    assert_eq!(error_of(|b| b[2] = 2), BtfError::Version { found: 2 });
    assert!(matches!(error_of(|b| b[4] = 20), BtfError::Truncated { what: "header", needed: 24, .. }));
    assert!(matches!(error_of(|b| b[23] = 0xff), BtfError::Truncated { what: "string table", .. }));
    assert!(matches!(error_of(|b| b[15] = 0xff), BtfError::Truncated { what: "type table", .. }));
    assert!(matches!(
        error_of(|b| {
            let at = end(b);
            b[at] = b'x'
        }),
        BtfError::Strings { .. }
    ));
    // The first type: name at 24, information at 28, size at 32, integer word at 36.
    assert!(matches!(error_of(|b| b[27] = 0x70), BtfError::NameOffset { .. }));
    assert_eq!(error_of(|b| b[31] = 31), BtfError::Kind { id: 1, offset: 0, kind: 31 });
    assert!(matches!(error_of(|b| b[30] = 1), BtfError::Field { id: 1, .. }));
    assert!(matches!(error_of(|b| b[31] = 0x81), BtfError::Field { id: 1, .. }));
    assert!(matches!(error_of(|b| b[28] = 1), BtfError::Field { id: 1, .. }));
    // The second: a pointer, whose target is at 48.
    assert_eq!(error_of(|b| b[48] = 20), BtfError::Reference { id: 2, target: 20, last: 19 });
}

#[test]
fn random_damage_does_not_panic() {
    let mut rng = Rng::from_env(3);
    let ext = Ext {
        lines: vec![ExtSection {
            section: Name(1),
            records: vec![LineRecord { offset_bytes: 0, file: Name(1), text: Name(2), line: 1, column: 1 }; 3],
        }],
        ..Ext::default()
    };
    let originals = [every_kind().emit().unwrap(), ext.emit().unwrap()];
    let (mut fine, mut refused) = (0, 0);
    for _ in 0..40_000 {
        let mut bytes = rng.pick(&originals).clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len());
            bytes[at] = *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, rng.clone().next_u64() as u8]);
        }
        if rng.chance(1, 4) {
            bytes.truncate(rng.below(bytes.len()));
        }
        let _ = Ext::parse(&bytes);
        match Btf::parse(&bytes) {
            Ok(btf) => {
                fine += 1;
                for (id, _) in btf.types() {
                    let _ = btf.size_bytes(id);
                }
                assert_eq!(Btf::parse(&btf.emit().unwrap()).as_ref(), Ok(&btf));
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(fine > 1000 && refused > 1000, "{fine} fine, {refused} refused");
}

#[test]
fn the_types_of_the_kernel_come_back_byte_for_byte() {
    let test = "the_types_of_the_kernel_come_back_byte_for_byte";
    let bytes = match std::fs::read("/sys/kernel/btf/vmlinux") {
        Ok(bytes) => bytes,
        Err(reason) => return skip(test, &reason.to_string()),
    };
    let btf = Btf::parse(&bytes).unwrap();
    assert!(btf.types().count() > 10_000);
    assert_eq!(btf.emit().unwrap(), bytes);
    let is_context = |ty: &Type| matches!(ty, Type::Struct(c) if btf.name(c.name) == Ok("xdp_md"));
    let context = btf.types().find(|(_, ty)| is_context(ty)).map(|(id, _)| id);
    assert_eq!(context.map(|id| btf.size_bytes(id)), Some(Ok(24)));
}
