// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Independent models of single functions: the kernel's connection tracking, models of protocols.
// Each test binary uses a part.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod gtpu;
pub mod kvs;
pub mod netfilter;
pub mod paxos;
pub mod tcp;
pub mod tracked;

use std::path::Path;
use std::sync::Arc;

use flowloom_efsm::model::Function;

/// A function of the repository: `conntrack`, or `conntrack_paper/conntrack_paper_fixed`.
pub fn shipped(name: &str, params: &[(&str, &str)]) -> Arc<Function> {
    shipped_with(name, params, |text| text)
}

/// The same, with its text changed.
pub fn shipped_with(name: &str, params: &[(&str, &str)], change: impl Fn(String) -> String) -> Arc<Function> {
    let (folder, file) = name.split_once('/').unwrap_or((name, name));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../functions/{folder}/{file}.efsm"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let params: Vec<_> = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let (function, _) = flowloom_efsm::compile(file, &change(text), &params).unwrap_or_else(|e| panic!("{name}: {e}"));
    Arc::new(function)
}
