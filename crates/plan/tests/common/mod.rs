// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classical programs, and plans of them.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flowloom_isa::{Program, asm};
use flowloom_plan::{Options, Plan, Refusal};
use flowloom_testkit::Clang;
use flowloom_verifier::{Options as Proving, verify};

/// Everything in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The programs in C below `functions/ebpf`, and the one in assembler.
pub(crate) fn classical(clang: &Clang) -> &'static [Program] {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| read(clang))
}

/// The files in the folders of `functions/ebpf`.
pub(crate) fn files() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/ebpf");
    entries(&top).into_iter().filter(|path| path.is_dir()).flat_map(|folder| entries(&folder)).collect()
}

fn read(clang: &Clang) -> Vec<Program> {
    let mut programs = Vec::new();
    for file in files() {
        let name = file.to_string_lossy().into_owned();
        if name.ends_with(".bpf.c") {
            let object = clang.compile_file(&file, &["-mcpu=v3", "-Wno-sign-compare"]).unwrap();
            let object = flowloom_object::read(&object, &name).unwrap();
            programs.extend(object.programs.into_iter().filter(|program| program.kind.is_xdp()));
        } else if name.ends_with(".bpf") {
            let text = std::fs::read_to_string(&file).unwrap();
            programs.push(asm::program(&name, &text).unwrap_or_else(|errors| panic!("{errors}")));
        }
    }
    programs
}

/// A program for packets of at least this many bytes: `r6` is the packet, `r2` its end. The body may go to `pass` or
/// `out`.
pub(crate) fn on_packet(name: &str, least_bytes: u32, maps: &[&str], body: &str) -> Program {
    let maps = maps.iter().map(|map| format!(".map {map}\n")).collect::<String>();
    let text = format!(
        ".program {name}\n.license \"Dual MIT/GPL\"\n{maps}r6 = *(u32 *)(r1 + 0)\nr2 = *(u32 *)(r1 + 4)\nr3 = r6\n\
         r3 += {least_bytes}\nr0 = 1\nif r3 > r2 goto out\n{body}\npass: r0 = 2\nout: exit\n"
    );
    asm::program(name, &text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The plan of a program that is safe.
pub(crate) fn plan(program: &Program, options: &Options) -> Result<Plan, Box<Refusal>> {
    let proof = verify(program, &Proving::default()).unwrap_or_else(|error| panic!("{error}"));
    flowloom_plan::plan(program, &proof, options)
}

/// The plan of a program that has one.
pub(crate) fn planned(program: &Program, options: &Options) -> Plan {
    plan(program, options).unwrap_or_else(|refusal| panic!("{refusal}"))
}
