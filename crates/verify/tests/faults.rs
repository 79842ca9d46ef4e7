// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Injected faults are all detected, and shrunk to five packets or fewer.

use crate::common;

use common::{faulty, random};

#[test]
fn faults_of_the_machine_are_found() {
    let (table, bad) = faulty::judge(&faulty::inject_all("machine"));
    assert!(bad.is_empty(), "{bad:#?}\n{table}");
}

#[test]
fn faults_of_the_interpreter_are_found() {
    let (table, bad) = faulty::judge(&faulty::inject_all("interp"));
    assert!(bad.is_empty(), "{bad:#?}\n{table}");
}

#[test]
fn faults_of_the_kernel_are_found() {
    if !random::is_kernel_there("faults_of_the_kernel_are_found") {
        return;
    }
    let (table, bad) = faulty::judge(&faulty::inject_all("kernel"));
    assert!(bad.is_empty(), "{bad:#?}\n{table}");
}
