// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The drawings stored beside the functions equal the output of `draw`. `make drawings` rewrites them.
#![allow(clippy::unwrap_used, clippy::panic)]

use flowloom_efsm::{Drawing, compile};
use flowloom_testkit::{golden, sources};

#[test]
fn drawings_are_up_to_date() {
    let sources = sources("../../functions");
    assert!(sources.len() >= 6, "{sources:?}");
    for (path, text) in sources {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (function, _) = compile(name, &text, &[]).unwrap_or_else(|e| panic!("{name}: {:?}", e.list));
        golden(path.with_extension("svg"), &Drawing::new(&function).svg().unwrap());
    }
}
