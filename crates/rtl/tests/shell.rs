// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The register map and the shell.

/// The package of SystemVerilog is that of the register map.
#[test]
fn the_package_has_the_register_map() {
    flowloom_testkit::golden(&crate::common::block_path("shell/fl_registers_pkg"), &flowloom_rtl::registers::package());
}
