// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the shell's files say: the styles of RAMs, the header for drivers and the register document.

use super::prefixes::PREFIXES;
use super::*;

/// The entries of maps that a device needs in UltraRAMs say so, and no others.
#[test]
fn entries_that_a_device_needs_in_ultra_rams_say_so() {
    let large = SOURCE.replace("value 8 entries 16", "value 8 entries 65536").replace("entries 5", "entries 524288");
    let program = asm::program("shell.bpf", &large).unwrap_or_else(|errors| panic!("{errors}"));
    let plan = planned(&program).unwrap_or_else(|error| panic!("{error}"));
    let fit = flowloom_plan::Resources::of(&plan).fit(&flowloom_plan::DEVICES[0]);
    let rendering = flowloom_rtl::Rendering::default().placed(&plan, &fit);
    assert_eq!(rendering.ultra_rams.iter().map(String::as_str).collect::<Vec<_>>(), ["classes"]);
    assert_eq!(rendering.left(&fit).count(), 0);
    let core = flowloom_rtl::Core::rendered(&plan, &program, &rendering).unwrap_or_else(|error| panic!("{error}"));
    let usual = flowloom_rtl::Core::of(&plan, &program).unwrap_or_else(|error| panic!("{error}"));
    let style = ",\n      .RamStyle(\"ultra\")\n  ) u_map1 (";
    assert!(core.text.contains(style), "no `{style}` in {}", core.text);
    assert_eq!((core.text.matches("RamStyle").count(), usual.text.matches("RamStyle").count()), (1, 0));
    let all = flowloom_rtl::Rendering { ultra_rams: BTreeSet::from(["known".to_owned()]), ..rendering.clone() };
    let core = flowloom_rtl::Core::rendered(&plan, &program, &all).unwrap_or_else(|error| panic!("{error}"));
    assert!(core.text.contains(&style.replace("map1", "map0")), "{}", core.text);
    // The array is then left.
    assert_eq!(all.left(&fit).count(), 1);
}

/// A driver's view: the document and the header name the kinds, layouts and addresses of maps.
#[test]
fn the_header_and_the_document_have_the_layouts_of_maps() {
    let own = EntryField {
        name: "packets".to_owned(),
        offset_bytes: 0,
        size_bytes: 8,
        order: Order::Little,
        meaning: "packets of the flow".to_owned(),
    };
    // The second field is beyond the end of the value.
    let value = vec![own.clone(), EntryField { name: "past_the_end".to_owned(), offset_bytes: 4, ..own }];
    let entries = BTreeMap::from([("known".to_owned(), Entry { value, ..Entry::default() })]);
    let lru = SOURCE.replace("known hash", "known lru_hash");
    let mut headers = Vec::new();
    for (source, kinds) in [
        (SOURCE, vec![("known", "HASH"), ("classes", "ARRAY"), ("all", "ARRAY"), ("ports", "PORTS")]),
        (&lru, vec![("known", "LRU")]),
        (PREFIXES, vec![("routes", "LPM")]),
    ] {
        let shell = pipeline(source).shell();
        let document = shell.document(&entries);
        for (map, kind) in kinds {
            assert!(document.contains(&format!("| `{map}` ({kind}) |")), "{map}: {document}");
            let block = shell.blocks.iter().find(|block| block.name == map).unwrap();
            assert_eq!(flowloom_rtl::registers::KINDS[block.kind as usize].name, kind);
            let top = &shell.files.last().unwrap().text;
            let parameter = format!(".Map({}),\n      .Kind(Kind{}", block.map, &kind[..1]);
            assert!(top.contains(&parameter), "no `{parameter}` in {top}");
        }
        assert!(!document.contains("past_the_end"), "{document}");
        headers.push((shell.header_name(), shell.header(&entries), document));
    }
    let [(_, hash, document), _, (name, prefixes, routes)] = &headers[..] else { panic!("three headers") };
    assert!(document.contains("| value | 0 | 8 | `packets` | little endian | packets of the flow |"), "{document}");
    assert!(document.contains("| key | 0 | 4 | `index` | little endian | index of the entry, from 0 |"), "{document}");
    assert!(routes.contains("| key | 0 | 4 | `prefix_bits` | little endian | length of the prefix in bits, 0 to 32;"));
    assert!(routes.contains("| key | 4 | 4 | `address` | bytes |"), "{routes}");
    assert_eq!(name, "prefixes_registers.h");
    for line in [
        "#define FL_SHELL_KNOWN_KEY 0x140u",
        "#define FLOWLOOM_MAP_STATUS 0x4u",
        "\tuint64_t packets; /* little endian */",
    ] {
        assert!(hash.contains(line), "{line} of {hash}");
    }
    compile("the_header_and_the_document_have_the_layouts_of_maps", hash, prefixes);
}

/// Compiles a driver that includes both headers, whose assertions check the sizes of structures.
fn compile(test: &str, first: &str, second: &str) {
    let folder = tempfile::tempdir().unwrap();
    let own = "#include \"a.h\"\n#include \"b.h\"\n#include <stddef.h>\n\
        _Static_assert(offsetof(struct fl_prefixes_routes_key, address) == 4, \"\");\n\
        _Static_assert(sizeof(struct fl_shell_classes_value) == 11, \"\");\n\
        int main(void) { return (int)FLOWLOOM_COMMAND(FLOWLOOM_OPERATION_NEXT, FLOWLOOM_FLAG_ANY); }\n";
    for (name, text) in [("a.h", first), ("b.h", second), ("main.c", own)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut command = std::process::Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).arg(folder.path().join("main.c"));
    match command.output() {
        Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => flowloom_testkit::skip(test, &format!("no C compiler `cc`: {error}")),
    }
}
