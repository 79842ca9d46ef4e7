//! The functions that ship, as the front end reads them.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use flowloom_efsm::compile;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn smoke() {
    for f in ["functions/port_knocking/port_knocking.efsm", "functions/big_flow/big_flow.efsm", "corpus/rewrite.efsm", "corpus/udp_flows.efsm", "corpus/pass_all.efsm"] {
        let text = std::fs::read_to_string(root().join(f)).unwrap();
        match compile(f, &text, &[]) {
            Ok((function, warnings)) => { for w in warnings { eprintln!("{w} {:?}", w.position()); } }
            Err(e) => { for d in &e.list { eprintln!("{} {:?} {}", d.code, d.position(), d) } eprintln!("{e}") }
        }
    }
}
