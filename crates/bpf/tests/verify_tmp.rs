#![allow(clippy::all, missing_docs)]
use std::time::Instant;
#[test]
fn objects() {
    let Some(folder) = std::env::var_os("FLOWLOOM_OBJECTS") else { return };
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "o"))
        .collect();
    files.sort();
    let (mut ok, mut bad) = (0, 0);
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Ok(object) = flowloom_bpf::elf::read(&bytes, &stem) else { continue };
        for program in object.programs {
            if !program.kind.is_xdp() || flowloom_bpf::Interpreter::new(program.clone().into()).is_err() {
                continue;
            }
            let start = Instant::now();
            match flowloom_bpf::verifier::verify(&program, &Default::default()) {
                Ok(proof) => {
                    ok += 1;
                    println!(
                        "OK {stem} {} {} insns {:?} looked {} states {} window {}",
                        program.name,
                        program.insns.len(),
                        start.elapsed(),
                        proof.looked_at,
                        proof.states,
                        proof.window()
                    );
                }
                Err(error) => {
                    bad += 1;
                    println!("NO {stem} {} {error}", program.name);
                }
            }
        }
    }
    println!("{ok} ok {bad} refused");
}
#[test]
fn one() {
    let Some(path) = std::env::var_os("FLOWLOOM_ONE") else { return };
    for path in std::env::split_paths(&path) {
        let bytes = std::fs::read(&path).unwrap();
        let object = flowloom_bpf::elf::read(&bytes, "one").unwrap();
        for program in object.programs {
            let start = Instant::now();
            let r = flowloom_bpf::verifier::verify(&program, &flowloom_bpf::verifier::Options { limit: 4_000_000 });
            match r {
                Ok(proof) => println!(
                    "{} {} slots looked {} states {} in {:?}, loops {:?}",
                    path.display(),
                    program.insns.len(),
                    proof.looked_at,
                    proof.states,
                    start.elapsed(),
                    proof.loops.values().max()
                ),
                Err(e) => println!("{} {e} in {:?}", path.display(), start.elapsed()),
            }
        }
    }
}
